"""Triples of products that cancel or not: a large one, its opposite, and a small one."""

import ml_dtypes
import numpy as np

from mmaemu_jax.identify.probes import SIGN, Formats, Sparse, power
from mmaemu_jax.identify.questions import Layout


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


def draw_triples(rng: np.random.Generator, layout: Layout, k: int) -> np.ndarray:
    """int64 [3, count]: p, q, r, two or all near each other, many about block boundaries.

    Those with one leader share p and q.
    """
    found = np.empty((3, 0), np.int64)
    while found.shape[1] < layout.count:
        n = 2 * layout.count
        size = 2 ** rng.integers(2, 9, n)
        boundary = rng.integers(0, max(1, k), n) // size * size + rng.integers(-1, 2, n)
        x = np.where(rng.random(n) < 0.6, boundary, rng.integers(0, k, n))
        far = np.where(rng.random(n) < 0.3, rng.integers(0, k, n), x + _away(rng, n, k))
        triple = np.stack([x, x + _away(rng, n, k), far])
        found = _valid(np.concatenate([found, rng.permuted(triple, axis=0)], axis=1), k)
    found = found[:, : layout.count]
    return found if layout.each == 1 else _with_leaders(rng, found, layout, k)


def _with_leaders(rng, triples: np.ndarray, layout: Layout, k: int) -> np.ndarray:
    """Each leader's p and q with one r after the other, most of them near p or q."""
    p, q = np.tile(triples[:2, : layout.leaders], layout.each)
    r = triples[2]
    todo = np.arange(layout.count)
    while len(todo):
        near = np.where(rng.random(len(todo)) < 0.5, p[todo], q[todo])
        near = np.where(rng.random(len(todo)) < 0.8, near, rng.integers(0, k, len(todo)))
        r[todo] = near + _away(rng, len(todo), k)
        invalid = (r < 0) | (r >= k) | (r == p) | (r == q)
        todo = np.flatnonzero(invalid)
    return np.stack([p, q, r])


def _away(rng, n: int, k: int) -> np.ndarray:
    distance = (2.0 ** rng.uniform(0, np.log2(max(2, k / 2)), n)).astype(np.int64)
    return distance * rng.choice([-1, 1], n)


def _valid(triples: np.ndarray, k: int) -> np.ndarray:
    p, q, r = triples
    apart = (p != q) & (p != r) & (q != r)
    return triples[:, apart & (triples >= 0).all(0) & (triples < k).all(0)]


def triple_probes(
    formats: Formats, triples: np.ndarray, layout: Layout, small: tuple[int, int]
) -> Sparse:
    """Codes: the largest product at p, its opposite at q, 2^sum(small) at r."""
    positions, index = np.unique(triples, return_inverse=True)
    p, q, r = index.reshape(triples.shape)
    i = np.arange(len(p))
    codes = [np.zeros((len(p), len(positions)), np.uint8) for _ in formats]
    for side, (matrix, fmt, e) in enumerate(zip(codes, formats, small, strict=True)):
        if layout.each > 1 and side == layout.shared:
            for leader in range(layout.leaders):
                own = slice(leader, None, layout.leaders)
                matrix[own, r[own]] = power(fmt, e)
        matrix[i, r] = power(fmt, e)
        matrix[i, p] = matrix[i, q] = fmt.largest_code
    codes[1 - layout.shared][i, q] |= SIGN
    return Sparse(codes[0], codes[1], positions)
