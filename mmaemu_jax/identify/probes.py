"""Operands that ask one question per output: codes a [M, K] and b [N, K] of designed pairs.

Output (i, i) is the dot product of row i of a and row i of b, so one call carries min(M, N)
questions that share nothing.
"""

import dataclasses

import ml_dtypes
import numpy as np

from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.identify.evaluate import Operands
from mmaemu_jax.identify.plan import Plan, walk

_SIGN = 0x80
#: Positions taken from a probe's first blocks: enough for a sum much above its terms.
_PER_CELL = (32, 32)
Formats = tuple[Fp8Format, Fp8Format]


@dataclasses.dataclass(frozen=True)
class Sparse:
    """Pairs of rows that are zero but at a few columns: codes a, b uint8 [pairs, columns]."""

    a: np.ndarray
    b: np.ndarray
    positions: np.ndarray

    def __getitem__(self, rows) -> "Sparse":
        return Sparse(self.a[rows], self.b[rows], self.positions)

    def __len__(self) -> int:
        return len(self.a)

    def operands(self, formats: Formats, k: int) -> Operands:
        """For evaluation, each pair by itself."""
        used = ((self.a | self.b) & ~np.uint8(_SIGN) & 0xFF).any(0)
        return Operands(formats, self.a[:, used], self.b[:, used], self.positions[used], k, True)

    def matrices(self, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Codes a [M, K] and b [N, K] with the pairs first and zeros after them."""
        m, n, k = shape
        a, b = np.zeros((m, k), np.uint8), np.zeros((n, k), np.uint8)
        a[: len(self.a), self.positions], b[: len(self.b), self.positions] = self.a, self.b
        return a, b


def _power(fmt: Fp8Format, e):
    """The code of 2^e, a normal number."""
    return (e + fmt.bias) << fmt.mantissa_bits


# ------------------------------------------------------------------------------ the tree of sums


def lowest_exponent(out_dtype: np.dtype) -> int:
    """Exponent of the smallest positive output."""
    info = ml_dtypes.finfo(out_dtype)
    return int(info.minexp) - int(info.nmant)


def small_exponent(formats: Formats, lowest: int) -> tuple[int, int]:
    """Exponents of two normal factors with the smallest product that is at least 2^lowest."""
    a, b = (fmt.emin for fmt in formats)
    rise = max(0, lowest - a - b)
    room = min(rise, -a)
    return a + room, b + rise - room


def contrast(formats: Formats, out_dtype: np.dtype) -> int:
    """log2 of the largest product over the small one of a triple, rounded down."""
    largest = formats[0].max_finite * formats[1].max_finite
    return int(np.log2(largest)) - sum(small_exponent(formats, lowest_exponent(out_dtype)))


def draw_triples(rng: np.random.Generator, count: int, k: int) -> np.ndarray:
    """int64 [3, count]: p, q, r near each other on all scales, many about block boundaries."""
    found = np.empty((3, 0), np.int64)
    while found.shape[1] < count:
        n = 2 * count
        size = 2 ** rng.integers(2, 9, n)
        boundary = rng.integers(0, max(1, k), n) // size * size + rng.integers(-1, 2, n)
        x = np.where(rng.random(n) < 0.6, boundary, rng.integers(0, k, n))

        def away(n=n):
            distance = (2.0 ** rng.uniform(0, np.log2(max(2, k / 2)), n)).astype(np.int64)
            return distance * rng.choice([-1, 1], n)

        triple = np.stack([x, x + away(), x + away()])
        triple = rng.permuted(triple, axis=0)
        p, q, r = triple
        ok = (p != q) & (p != r) & (q != r) & (triple >= 0).all(0) & (triple < k).all(0)
        found = np.concatenate([found, triple[:, ok]], axis=1)
    return found[:, :count]


def triple_matrices(
    formats: Formats, triples: np.ndarray, shape: tuple[int, int, int], small: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Codes: the largest product at p, its opposite at q, 2^sum(small) at r."""
    m, n, k = shape
    a, b = np.zeros((m, k), np.uint8), np.zeros((n, k), np.uint8)
    i = np.arange(triples.shape[1])
    p, q, r = triples
    top_a, top_b = (fmt.largest_code for fmt in formats)
    a[i, p], a[i, q], a[i, r] = top_a, top_a | _SIGN, _power(formats[0], small[0])
    b[i, p], b[i, q], b[i, r] = top_b, top_b, _power(formats[1], small[1])
    return a, b


# ---------------------------------------------------------------------------- the steps of a chain


def chains_of(plan: Plan, k: int) -> list[list[np.ndarray]]:
    """Positions of every block of every chain, chains in the order of their first position."""
    everything, chains = np.arange(k), []
    walk(
        plan.levels,
        everything,
        everything,
        k,
        chain=lambda elements, own: chains.append(plan.blocks_of(elements, own)),
        add=lambda x, y: None,
    )
    return sorted(chains, key=lambda blocks: int(blocks[0][0]))


def cells_of(plan: Plan, k: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A few positions in each of some blocks: neighbours in one chain, and one each of others."""
    chains = chains_of(plan, k)
    wanted = 10 if plan.block == 1 else 3
    long = [c for c in chains if len(c) >= wanted] or [max(chains, key=len)]
    first = long[rng.integers(len(long))]
    start = rng.integers(max(1, len(first) - wanted + 1))
    picked = list(first[start : start + wanted])
    others = [c for c in chains if c is not first]
    for index in rng.permutation(len(others))[:2]:
        chain = others[index]
        picked.append(chain[rng.integers(len(chain))])
    most = (*_PER_CELL, *[3] * len(picked))
    return [rng.permutation(block)[:n] for block, n in zip(picked, most, strict=False)]


def draw_steps(
    rng: np.random.Generator, formats: Formats, cells: list[np.ndarray], count: int
) -> Sparse:
    """Random products around one exponent per cell, with cancellation, subnormals and zeros.

    What a rounding drops shows where the large terms that caused it cancel: in the same cell, or in
    a later one.
    """
    positions = np.concatenate(cells)
    cell = np.repeat(np.arange(len(cells)), [len(c) for c in cells])
    shape = (count, len(positions))
    low = sum(f.emin for f in formats)
    high = sum(f.emax for f in formats)
    centre = rng.integers(low, high + 1, (count, len(cells)))
    spread = rng.choice([0, 2, 6, 12, 24], (count, len(cells)))
    e = centre[:, cell] - (rng.random(shape) * (spread[:, cell] + 1)).astype(np.int64)
    a, b = _factors(rng, formats, np.clip(e, low - 4, high))
    silent = rng.random((count, len(cells))) < 0.25
    absent = silent[:, cell] | (rng.random(shape) < rng.choice([0.0, 0.4, 0.8, 0.9], (count, 1)))
    one_sided = absent & (rng.random(shape) < 0.5)
    a[absent] &= _SIGN
    b[absent & ~one_sided] &= _SIGN
    rows = np.arange(count)
    kind = rng.random(count)
    _fill(rng, formats, a, b, cell, rows[kind < 0.2])
    _cancel(rng, formats, a, b, cell, rows)
    _open_window(rng, formats, a, b, cell, rows[(kind > 0.6) & (kind < 0.85)])
    _put_near_ties(rng, formats, a, b, rows[kind > 0.85])
    order = np.argsort(positions)
    return Sparse(a[:, order], b[:, order], positions[order])


def _cancel(rng, formats: Formats, a, b, cell: np.ndarray, rows: np.ndarray) -> None:
    """In most rows one or two terms, mostly the largest, are taken back in some cell, which is
    mostly silent otherwise."""
    for chance in (0.8, 0.3):
        i = rows[rng.random(len(rows)) < chance]
        values = [f.values[matrix[i]] for f, matrix in zip(formats, (a, b), strict=True)]
        random = rng.integers(len(cell), size=len(i))
        x = np.where(rng.random(len(i)) < 0.7, np.abs(values[0] * values[1]).argmax(1), random)
        into = rng.integers(cell.max() + 1, size=len(i))
        y = np.array([rng.choice(np.flatnonzero(cell == c)) for c in into], np.int64)
        quiet = (rng.random(len(i)) < 0.6) & (into != cell[x])
        hushed = quiet[:, None] & (cell == into[:, None])
        code_a, code_b = a[i, x] ^ _SIGN, b[i, x]
        for matrix in (a, b):
            matrix[i] = np.where(hushed, matrix[i] & _SIGN, matrix[i])
        take = x != y
        a[i[take], y[take]], b[i[take], y[take]] = code_a[take], code_b[take]


def _fill(rng, formats: Formats, a, b, cell: np.ndarray, rows: np.ndarray) -> None:
    """In these rows a cell is full of large products of one sign, but for a few small ones: the
    widest sums. In half of them the next cell takes the large ones back, so that few bits show
    what became of the small ones."""
    first = rng.integers(0, min(2, cell.max() + 1))
    full = np.flatnonzero(cell == first)
    shape = (len(rows), len(full))
    tops = [f.emax - 1 for f in formats]
    small = rng.random(shape) < rng.choice([0.0, 1.0, 3.0], (len(rows), 1)) / len(full)
    sign = (rng.random((len(rows), 1)) < 0.5) ^ (rng.random(shape) < 0.03)
    signs = (sign.astype(np.uint8) * _SIGN, np.uint8(0))
    steep = rng.random((len(rows), 1)) < 0.7
    smalls = _factors(rng, formats, sum(tops) - rng.integers(4, 27, shape))
    back = rows[rng.random(len(rows)) < 0.5]
    other = np.flatnonzero(cell == 1 - first)[: len(full)]
    for matrix, fmt, top, bits, own in zip((a, b), formats, tops, signs, smalls, strict=True):
        large = random_code(rng, fmt, np.full(shape, top)) & 0x7F
        large |= np.where(steep, (1 << fmt.mantissa_bits) - 1, 0).astype(np.uint8)
        filled = large | bits
        matrix[np.ix_(rows, full)] = np.where(small, own, filled)
        taken = np.isin(rows, back)
        flip = _SIGN if matrix is a else 0
        matrix[np.ix_(back, other)] = np.where(small, 0, filled ^ flip)[taken, : len(other)]


def _open_window(rng, formats: Formats, a, b, cell: np.ndarray, rows: np.ndarray) -> None:
    """In these rows a cell holds two large opposite products and a few small ones, whose bits show
    how far below the large ones a term is still seen. Some rows have nothing else."""
    inside = np.flatnonzero(cell == rng.integers(0, min(2, cell.max() + 1)))
    if len(inside) < 3:
        return
    empty = rows[rng.random(len(rows)) < 0.7]
    cleared = np.ix_(rows, inside)
    for matrix in (a, b):
        matrix[empty] &= _SIGN
        matrix[cleared] &= _SIGN
    top = sum(f.emax for f in formats) - rng.integers(0, 8, len(rows))
    count = min(len(inside), 6)
    columns = rng.permuted(np.tile(inside, (len(rows), 1)), axis=1)[:, :count]
    gaps = rng.integers(6, 30, (len(rows), count - 2))
    few = rng.random(gaps.shape) < 0.6
    code_a, code_b = _factors(rng, formats, top[:, None] - gaps)
    at = rows[:, None], columns[:, 2:]
    a[at], b[at] = np.where(few, code_a, 0), code_b
    large_a, large_b = _factors(rng, formats, top)
    for column, flip in ((columns[:, 0], 0), (columns[:, 1], _SIGN)):
        a[rows, column], b[rows, column] = large_a ^ flip, large_b


def _put_near_ties(rng, formats: Formats, a, b, rows: np.ndarray) -> None:
    """In these rows only three powers of two: large, about half of its last bit, and a tiny one."""
    a[rows] &= _SIGN
    b[rows] &= _SIGN
    low, high = (sum(e) for e in zip(*((f.emin, f.emax) for f in formats), strict=True))
    e = high - rng.integers(0, 6, len(rows))
    gaps = rng.choice([3, 4, 8, 11, 12, 14, 15, 23, 24, 25], len(rows))
    for exponents in (e, e - gaps, np.full(len(rows), low)):
        columns = rng.integers(0, a.shape[1], len(rows))
        wanted = np.maximum(exponents, low)
        lowest = np.maximum(formats[0].emin, wanted - formats[1].emax)
        highest = np.minimum(formats[0].emax, wanted - formats[1].emin)
        e_a = lowest + (rng.random(len(rows)) * (highest - lowest + 1)).astype(np.int64)
        sign = rng.integers(0, 2, len(rows)) * _SIGN
        a[rows, columns] = _power(formats[0], e_a) | sign
        b[rows, columns] = _power(formats[1], wanted - e_a)


def _factors(rng, formats: Formats, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Random codes whose exponents sum to ``e``, below emin by subnormals."""
    fmt_a, fmt_b = formats
    lowest = np.maximum(fmt_a.emin - 3, e - fmt_b.emax)
    highest = np.maximum(lowest, np.minimum(fmt_a.emax, e - fmt_b.emin + 3))
    e_a = lowest + (rng.random(e.shape) * (highest - lowest + 1)).astype(np.int64)
    return random_code(rng, fmt_a, e_a), random_code(rng, fmt_b, e - e_a)


def random_code(rng, fmt: Fp8Format, e: np.ndarray) -> np.ndarray:
    """Random finite codes with these exponents, which below emin are those of subnormals."""
    bits = fmt.mantissa_bits
    fraction = rng.integers(0, 1 << bits, e.shape)
    normal = ((np.maximum(e, fmt.emin) + fmt.bias) << bits) | fraction
    subnormal = ((1 << bits) | fraction) >> np.clip(fmt.emin - e, 1, bits)
    code = np.minimum(np.where(e >= fmt.emin, normal, np.maximum(subnormal, 1)), fmt.largest_code)
    return (code | rng.integers(0, 2, e.shape) * _SIGN).astype(np.uint8)


# ------------------------------------------------------------------------------------- everything


def dense(
    rng: np.random.Generator, formats: Formats, shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Full matrices whose rows differ in kind: normal, wide or subnormal values, cancelling halves,
    and sums of one sign."""
    m, n, k = shape
    kinds = np.arange(max(m, n)) % 5

    def draw(fmt, rows, flip):
        kind = kinds[:rows]
        spread = np.choose(kind, [3, 12, 20, 6, 1])[:, None]
        top = np.choose(kind, [2, 6, 6, fmt.emin + 1, 6])[:, None]
        codes = random_code(rng, fmt, top - (rng.random((rows, k)) * spread).astype(np.int64))
        half = k // 2
        again = flip & ((kind == 2) | (kind == 3))
        codes[again, half : 2 * half] = codes[again, :half] ^ _SIGN
        few = (kind == 4)[:, None] & (rng.random((rows, k)) < 0.02)
        codes[kind == 4] &= 0x7F
        codes[few] = random_code(rng, fmt, np.full(int(few.sum()), fmt.emin))
        return codes

    a, b = draw(formats[0], m, True), draw(formats[1], n, False)
    mirrored = (kinds[:n] == 2) | (kinds[:n] == 3)
    b[mirrored, k // 2 : k // 2 * 2] = b[mirrored, : k // 2]
    return a, b


def special(formats: Formats, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows with NaN, Inf and zeros: NaN of both signs, Inf times zero, opposite Infs, an Inf."""
    m, n, k = shape
    a, b = np.zeros((m, k), np.uint8), np.zeros((n, k), np.uint8)
    a[:, 0], b[:, 0] = _power(formats[0], 0), _power(formats[1], 0)
    nan = 0x7F
    if m > 2:
        a[1, 0], a[2, 0] = nan, nan | _SIGN
    if formats[0].has_infinity and m > 5 and k > 1:
        infinity = 0x7C
        a[3, 0], a[4, 0], a[5, :2] = infinity, infinity | _SIGN, (infinity, infinity | _SIGN)
        b[0, 1] = _power(formats[1], 0)
    return a, b
