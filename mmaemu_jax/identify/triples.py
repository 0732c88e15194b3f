"""Triples of products that cancel or not: a large one, its opposite, and a small one."""

import ml_dtypes
import numpy as np

from mmaemu_jax.identify.probes import SIGN, Formats, power


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
    a[i, p], a[i, q], a[i, r] = top_a, top_a | SIGN, power(formats[0], small[0])
    b[i, p], b[i, q], b[i, r] = top_b, top_b, power(formats[1], small[1])
    return a, b
