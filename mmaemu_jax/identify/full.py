"""Operands without zeros between: full matrices, and those with NaN and Inf."""

import numpy as np

from mmaemu_jax.identify.probes import SIGN, Formats, power, random_code


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
        codes[again, half : 2 * half] = codes[again, :half] ^ SIGN
        few = (kind == 4)[:, None] & (rng.random((rows, k)) < 0.02)
        codes[kind == 4] &= 0x7F
        codes[few] = random_code(rng, fmt, np.full(int(few.sum()), fmt.emin))
        return codes

    a, b = draw(formats[0], m, True), draw(formats[1], n, False)
    mirrored = (kinds[:n] == 2) | (kinds[:n] == 3)
    b[mirrored, k // 2 : k // 2 * 2] = b[mirrored, : k // 2]
    return a, b


def special(formats: Formats, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows with NaN, Inf and zeros: NaN of both signs, Inf times zero, opposite Infs, an Inf.

    They are rows of a, or, if it has too few, columns of b.
    """
    m, n, k = shape
    a, b = np.zeros((m, k), np.uint8), np.zeros((n, k), np.uint8)
    a[:, 0], b[:, 0] = power(formats[0], 0), power(formats[1], 0)
    side = int(m < min(n, 6))
    own, other = (a, b) if side == 0 else (b, a)
    nan = 0x7F
    if len(own) > 2:
        own[1, 0], own[2, 0] = nan, nan | SIGN
    if formats[side].has_infinity and len(own) > 5 and k > 1:
        infinity = 0x7C
        own[3, 0], own[4, 0], own[5, :2] = infinity, infinity | SIGN, (infinity, infinity | SIGN)
        other[0, 1] = power(formats[1 - side], 0)
    return a, b
