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
        return dot_general(lhs, rhs, self.dimension_numbers, *self.arguments, **dict(self.keywords))


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


class Capture:
    """Finds every call that ``loss(params, batch, dot_general)`` makes of its dot_general.

    Zeros are added to each result; the gradients of these zeros are the gradients of the results.

    Args:
        loss: calls its third argument outside of loops.
        dot_general: the arithmetic to capture under.
        sites: names of the calls in order; None numbers them.
    """

    def __init__(self, loss, dot_general, sites: Sequence[str] | None):
        self._loss = loss
        self._dot_general = dot_general
        self._sites = sites
        self._calls: list[DotCall] = []
        self._results: list[jax.ShapeDtypeStruct] = []
        self._gradients = jax.jit(jax.grad(self._recorded, has_aux=True))

    def __call__(self, params, batch) -> tuple[CapturedDot, ...]:
        """The calls with their data.

        Raises:
            ValueError: ``sites`` has another length than there are calls.
            UnsupportedFeatureError: calls inside scan, while, cond, vmap or remat.
        """
        try:
            if not self._results:
                jax.eval_shape(functools.partial(self._recorded, None), params, batch)
            taps = [jnp.zeros(result.shape, result.dtype) for result in self._results]
            grads, operands = self._gradients(taps, params, batch)
        except jax.errors.UnexpectedTracerError as error:
            raise UnsupportedFeatureError(
                message(
                    "compare: the loss calls its dot_general inside a loop, branch or other "
                    "transformed function, where the operands of single GEMMs cannot be captured.",
                    ["write the layers as a Python loop", "pass gemms=False"],
                )
            ) from error
        return tuple(
            CapturedDot(name, call, (lhs, rhs, grad))
            for name, call, (lhs, rhs), grad in zip(
                self._names(), self._calls, operands, grads, strict=True
            )
        )

    def _recorded(self, taps, params, batch):
        """The loss, and the operands of every call; the calls themselves go to this object."""
        operands = []
        calls: list[DotCall] = []
        results: list[jax.ShapeDtypeStruct] = []

        def recording(lhs, rhs, dimension_numbers, *arguments, **keywords):
            call = DotCall(_hashable(dimension_numbers), arguments, tuple(sorted(keywords.items())))
            result = call.apply(self._dot_general, lhs, rhs)
            calls.append(call)
            results.append(jax.ShapeDtypeStruct(result.shape, result.dtype))
            operands.append((lhs, rhs))
            return result if taps is None else result + taps[len(calls) - 1]

        loss = self._loss(params, batch, recording)
        self._calls, self._results = calls, results
        return loss, operands

    def _names(self) -> list[str]:
        count = len(self._calls)
        names = [str(i) for i in range(count)] if self._sites is None else list(self._sites)
        if len(names) != count:
            raise ValueError(
                message(
                    f"compare: sites names {len(names)} calls, the loss makes {count}.",
                    ["name every call of the loss in order", "leave sites out"],
                )
            )
        return names


def _hashable(dimension_numbers):
    (lhs, rhs), (lhs_batch, rhs_batch) = dimension_numbers
    return (tuple(lhs), tuple(rhs)), (tuple(lhs_batch), tuple(rhs_batch))
