"""The operands of every dot_general of a loss, forward and backward, as the reference has them."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mmaemu_jax.errors import UnsupportedFeatureError, message


@dataclasses.dataclass(frozen=True)
class DotCall:
    """Everything static about one call of a dot_general."""

    dimension_numbers: Any
    arguments: tuple
    keywords: tuple[tuple[str, Any], ...]

    def apply(self, dot_general, lhs, rhs) -> jax.Array:
        """The call, by ``dot_general``."""
        return dot_general(
            lhs, rhs, self.dimension_numbers, *self.arguments, **dict(self.keywords)
        )


@dataclasses.dataclass(frozen=True)
class CapturedDot:
    """One call with its data.

    Attributes:
        site: its name.
        call: how it was made.
        operands: lhs, rhs and the gradient of the result.
    """

    site: str
    call: DotCall
    operands: tuple[jax.Array, jax.Array, jax.Array]

    @property
    def shapes(self) -> tuple[dict[str, int], ...]:
        """m, n, k of the product, of the gradient of lhs and of the gradient of rhs."""
        lhs, rhs, _ = self.operands
        (contracted, _), (batch, _) = self.call.dimension_numbers
        k = math.prod(lhs.shape[axis] for axis in contracted)
        batches = math.prod(lhs.shape[axis] for axis in batch)
        m, n = lhs.size // (k * batches), rhs.size // (k * batches)
        return tuple(
            {"m": m_, "n": n_, "k": k_} for m_, n_, k_ in ((m, n, k), (m, k, n), (k, n, m))
        )


def capture(loss, params, batch, dot_general, sites: Sequence[str] | None) -> tuple[CapturedDot, ...]:
    """Every call that ``loss(params, batch, dot_general)`` makes of its dot_general.

    Zeros are added to each result; the gradients of these zeros are the gradients of the results.

    Args:
        loss: calls its third argument outside of loops.
        params, batch: its first two.
        dot_general: the arithmetic to capture under.
        sites: names of the calls in order; None numbers them.

    Raises:
        ValueError: ``sites`` has another length than there are calls.
        UnsupportedFeatureError: calls inside scan, while, cond, vmap or remat.
    """
    calls: list[DotCall] = []
    shapes: list[jax.ShapeDtypeStruct] = []

    def recorded(taps, params, batch):
        operands = []
        calls.clear()
        shapes.clear()

        def recording(lhs, rhs, dimension_numbers, *arguments, **keywords):
            call = DotCall(_hashable(dimension_numbers), arguments, tuple(sorted(keywords.items())))
            result = call.apply(dot_general, lhs, rhs)
            calls.append(call)
            shapes.append(jax.ShapeDtypeStruct(result.shape, result.dtype))
            operands.append((lhs, rhs))
            return result if taps is None else result + taps[len(calls) - 1]

        return loss(params, batch, recording), operands

    try:
        jax.eval_shape(functools.partial(recorded, None), params, batch)
        taps = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
        grads, operands = jax.jit(jax.grad(recorded, has_aux=True))(taps, params, batch)
    except jax.errors.UnexpectedTracerError as error:
        raise UnsupportedFeatureError(
            message(
                "compare: the loss calls its dot_general inside a loop, branch or other transformed "
                "function, where the operands of single GEMMs cannot be captured.",
                ["write the layers as a Python loop", "pass gemms=False"],
            )
        ) from error
    names = [str(i) for i in range(len(calls))] if sites is None else list(sites)
    if len(names) != len(calls):
        raise ValueError(
            message(
                f"compare: sites names {len(names)} calls, the loss makes {len(calls)}.",
                ["name every call of the loss in order", "leave sites out"],
            )
        )
    return tuple(
        CapturedDot(name, call, (lhs, rhs, grad))
        for name, call, (lhs, rhs), grad in zip(names, calls, operands, grads, strict=True)
    )


def _hashable(dimension_numbers):
    (lhs, rhs), (lhs_batch, rhs_batch) = dimension_numbers
    return (tuple(lhs), tuple(rhs)), (tuple(lhs_batch), tuple(rhs_batch))
