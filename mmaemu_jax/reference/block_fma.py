"""One block step in exact float64 (R1 to R8).

Terms are scaled so that the grid 2^(E - frac) of R5 becomes the integers; what is then summed are
integers below 2^53 (:func:`check_exact`), so their float64 sum is exact in any order (R6).
"""

import jax.numpy as jnp
from jax import Array

from mmaemu_jax.errors import BackendUnavailableError, message
from mmaemu_jax.formats import Fp8Format
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.reference import _f64

#: Exponent of a zero code: no sum with it reaches a real product exponent (R3).
_NO_TERM = -10_000

#: No non-zero term has a smaller exponent, so a lower floor of R4 cannot be seen.
_LOWEST_TERM_EXPONENT = -149


def check_exact(model: InstructionModel):
    """Refuse a model whose block sums float64 may not hold.

    On the grid of R5 a product is below 4 * 2^frac and the accumulator below 2 * 2^frac, so
    every partial sum is below (4 nfma + 2) 2^frac. Every model that InstructionModel admits
    passes: 4098 * 2^40 < 2^53.

    Raises:
        BackendUnavailableError: that bound exceeds 2^53.
    """
    if (4 * model.nfma + 2) << model.frac > 1 << 53:
        raise BackendUnavailableError(
            message(
                f"The float64 reference cannot hold the block sums of nfma={model.nfma} and "
                f"frac={model.frac} exactly: it needs (4 nfma + 2) 2^frac <= 2^53.",
                ("use the integer kernels (backend='cpu')", "a smaller nfma or frac"),
            )
        )


def decode(codes: Array, fmt: Fp8Format) -> tuple[Array, Array]:
    """Values (float64) and exponents (int32, R2) of uint8 codes; no exponent for 0, Inf, NaN."""
    value = jnp.asarray(fmt.values)[codes.astype(jnp.int32)]
    e = jnp.maximum(_f64.exponent(value), fmt.emin)
    return value, jnp.where((value == 0) | ~jnp.isfinite(value), _NO_TERM, e)


def block_step(
    a: tuple[Array, Array], b: tuple[Array, Array], c: Array, model: InstructionModel
) -> Array:
    """The accumulators after one block, by R3 to R8.

    Inf and NaN ride along by IEEE arithmetic and stay until the end, as R14 wants.

    Args:
        a: decoded values and exponents, each ``[nfma, B, M]``.
        b: likewise ``[nfma, B, N]``.
        c: float64 ``[B, M, N]`` holding float32 values.
        model: the instruction's numbers.

    Returns:
        float64 ``[B, M, N]`` holding float32 values; a zero is +0.
    """
    (a_value, a_exponent), (b_value, b_exponent) = a, b

    def outer(op, x, y, i):
        return op(x[i][:, :, None], y[i][:, None, :])

    # R4. A zero factor puts its exponent sum below every floor.
    floor = max(model.min_exp, _LOWEST_TERM_EXPONENT)
    top = jnp.full(c.shape, floor, jnp.int32)
    if not model.late_c:
        top = jnp.clip(_f64.exponent(c), floor, _f64.F32_EMAX)
    top = _f64.loop(
        model.nfma,
        lambda i, e: jnp.maximum(e, outer(jnp.add, a_exponent, b_exponent, i)),
        top,
    )

    # R5, R6 in units of 2^(E - frac): |E - frac| < 200, so the scaling is exact.
    units = _f64.pow2(model.frac - top)
    total = jnp.zeros_like(c) if model.late_c else jnp.trunc(c * units)
    total = _f64.loop(
        model.nfma,
        lambda i, s: s + jnp.trunc(outer(jnp.multiply, a_value, b_value, i) * units),
        total,
    )
    d = jnp.where(jnp.isfinite(total), _truncate(total, top - model.frac, model.frac_out), total)
    return _f64.add_f32(d, c) if model.late_c else d


def _truncate(total: Array, unit_exponent: Array, frac_out: int) -> Array:
    """R7 of the integers ``total`` in units of 2^unit_exponent."""
    e = jnp.maximum(_f64.exponent(total) + unit_exponent, _f64.F32_EMIN)
    grid = e - frac_out
    kept = jnp.trunc(total * _f64.pow2(unit_exponent - grid))
    return jnp.where(kept == 0, 0.0, kept * _f64.pow2(grid))
