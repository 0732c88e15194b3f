"""Random products that show which bits a step of a chain keeps."""

import numpy as np

from mmaemu_jax.identify.plan import Plan, chains_of
from mmaemu_jax.identify.probes import SIGN, Formats, Sparse, factors, power, random_code

#: Positions taken from a probe's first blocks: enough for a sum much above its terms.
_PER_CELL = (64, 64)


def cells_of(plan: Plan, k: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A few positions in each of some blocks: neighbours in one chain, and one each of others.

    Some are the last blocks of two chains: what those drop is cut by no other block.
    """
    chains = chains_of(plan, k)
    wanted = 10 if plan.block == 1 else int(rng.integers(1, 4))
    long = [c for c in chains if len(c) >= wanted] or [max(chains, key=len)]
    first = long[rng.integers(len(long))]
    others = [c for c in chains if c is not first]
    others = [others[i] for i in rng.permutation(len(others))[:2]]
    if rng.random() < 0.3:
        picked = [chain[-1] for chain in (first, *others)]
    else:
        start = rng.integers(len(first) - min(wanted, len(first)) + 1)
        picked = list(first[start : start + wanted])
        picked += [chain[rng.integers(len(chain))] for chain in others]
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
    a, b = factors(rng, formats, np.clip(e, low - 4, high))
    silent = rng.random((count, len(cells))) < 0.25
    absent = silent[:, cell] | (rng.random(shape) < rng.choice([0.0, 0.4, 0.8, 0.9], (count, 1)))
    one_sided = absent & (rng.random(shape) < 0.5)
    a[absent] &= SIGN
    b[absent & ~one_sided] &= SIGN
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
        code_a, code_b = a[i, x] ^ SIGN, b[i, x]
        for matrix in (a, b):
            matrix[i] = np.where(hushed, matrix[i] & SIGN, matrix[i])
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
    signs = (sign.astype(np.uint8) * SIGN, np.uint8(0))
    steep = rng.random((len(rows), 1)) < 0.7
    smalls = factors(rng, formats, sum(tops) - rng.integers(4, 27, shape))
    back = rows[rng.random(len(rows)) < 0.5]
    other = np.flatnonzero(cell == 1 - first)[: len(full)]
    for matrix, fmt, top, bits, own in zip((a, b), formats, tops, signs, smalls, strict=True):
        large = random_code(rng, fmt, np.full(shape, top)) & 0x7F
        large |= np.where(steep, (1 << fmt.mantissa_bits) - 1, 0).astype(np.uint8)
        filled = large | bits
        matrix[np.ix_(rows, full)] = np.where(small, own, filled)
        taken = np.isin(rows, back)
        flip = SIGN if matrix is a else 0
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
        matrix[empty] &= SIGN
        matrix[cleared] &= SIGN
    top = sum(f.emax for f in formats) - rng.integers(0, 8, len(rows))
    count = min(len(inside), 6)
    columns = rng.permuted(np.tile(inside, (len(rows), 1)), axis=1)[:, :count]
    gaps = rng.integers(6, 30, (len(rows), count - 2))
    subnormal = np.flatnonzero(rng.random(len(rows)) < 0.25)  # one factor of the large products
    low = sum(f.emin for f in formats) + rng.integers(-4, 8, (len(subnormal), count - 2))
    gaps[subnormal] = top[subnormal, None] - low
    few = rng.random(gaps.shape) < 0.6
    code_a, code_b = factors(rng, formats, top[:, None] - gaps)
    at = rows[:, None], columns[:, 2:]
    a[at], b[at] = np.where(few, code_a, 0), code_b
    large_a, large_b = factors(rng, formats, top)
    side = rng.integers(0, 2, len(subnormal))
    for i, codes in enumerate((large_a, large_b)):
        fmt = formats[i]
        e = np.where(side == i, fmt.emin - rng.integers(1, 4, side.shape), fmt.emax)
        codes[subnormal] = random_code(rng, fmt, e - (side != i) * rng.integers(0, 3, side.shape))
    for column, flip in ((columns[:, 0], 0), (columns[:, 1], SIGN)):
        a[rows, column], b[rows, column] = large_a ^ flip, large_b


def _put_near_ties(rng, formats: Formats, a, b, rows: np.ndarray) -> None:
    """In these rows only three powers of two: large, about half of its last bit, and a tiny one."""
    a[rows] &= SIGN
    b[rows] &= SIGN
    low, high = (sum(e) for e in zip(*((f.emin, f.emax) for f in formats), strict=True))
    e = high - rng.integers(0, 6, len(rows))
    gaps = rng.choice([3, 4, 8, 11, 12, 14, 15, 23, 24, 25], len(rows))
    for exponents in (e, e - gaps, np.full(len(rows), low)):
        columns = rng.integers(0, a.shape[1], len(rows))
        wanted = np.maximum(exponents, low)
        lowest = np.maximum(formats[0].emin, wanted - formats[1].emax)
        highest = np.minimum(formats[0].emax, wanted - formats[1].emin)
        e_a = lowest + (rng.random(len(rows)) * (highest - lowest + 1)).astype(np.int64)
        sign = rng.integers(0, 2, len(rows)) * SIGN
        a[rows, columns] = power(formats[0], e_a) | sign
        b[rows, columns] = power(formats[1], wanted - e_a)
