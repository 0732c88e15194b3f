"""Dimension numbers to batches of matrices and back: what lax.dot_general means by them."""

import dataclasses
import math

import jax
import numpy as np
from jax import lax

from mmaemu_jax.errors import message


@dataclasses.dataclass(frozen=True)
class Layout:
    """The dimensions of one dot_general.

    As matrices, lhs is (B, M, K), rhs is (B, K, N) and the result (B, M, N); without batch
    dimensions there is no B.
    """

    lhs_shape: tuple[int, ...]
    rhs_shape: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]

    @property
    def _lhs_free(self) -> tuple[int, ...]:
        return _others(self.lhs_shape, self.lhs_contract, self.lhs_batch)

    @property
    def _rhs_free(self) -> tuple[int, ...]:
        return _others(self.rhs_shape, self.rhs_contract, self.rhs_batch)

    @property
    def _batch(self) -> tuple[int, ...]:
        return (math.prod(self.lhs_shape[d] for d in self.lhs_batch),) if self.lhs_batch else ()

    @property
    def mnk(self) -> tuple[int, int, int]:
        """M, N and K."""
        lhs, rhs = self.lhs_shape, self.rhs_shape
        return (
            math.prod(lhs[d] for d in self._lhs_free),
            math.prod(rhs[d] for d in self._rhs_free),
            math.prod(lhs[d] for d in self.lhs_contract),
        )

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape that dot_general returns."""
        lhs, rhs = self.lhs_shape, self.rhs_shape
        return (
            *(lhs[d] for d in self.lhs_batch),
            *(lhs[d] for d in self._lhs_free),
            *(rhs[d] for d in self._rhs_free),
        )

    def lhs_matrix(self, x: jax.Array) -> jax.Array:
        """lhs as (B, M, K)."""
        m, _, k = self.mnk
        order = (*self.lhs_batch, *self._lhs_free, *self.lhs_contract)
        return _transpose(x, order).reshape(*self._batch, m, k)

    def rhs_matrix(self, x: jax.Array) -> jax.Array:
        """rhs as (B, K, N)."""
        _, n, k = self.mnk
        order = (*self.rhs_batch, *self.rhs_contract, *self._rhs_free)
        return _transpose(x, order).reshape(*self._batch, k, n)

    def result_matrix(self, x: jax.Array) -> jax.Array:
        """The result, or its gradient, as (B, M, N)."""
        m, n, _ = self.mnk
        return x.reshape(*self._batch, m, n)

    def result(self, matrix: jax.Array) -> jax.Array:
        """(B, M, N) as the result."""
        return matrix.reshape(self.result_shape)

    def lhs(self, matrix: jax.Array) -> jax.Array:
        """(B, M, K) as lhs."""
        order = (*self.lhs_batch, *self._lhs_free, *self.lhs_contract)
        return _untranspose(matrix, self.lhs_shape, order)

    def rhs(self, matrix: jax.Array) -> jax.Array:
        """(B, K, N) as rhs."""
        order = (*self.rhs_batch, *self.rhs_contract, *self._rhs_free)
        return _untranspose(matrix, self.rhs_shape, order)


def make_layout(function: str, lhs, rhs, dimension_numbers) -> Layout:
    """The layout of ``lax.dot_general(lhs, rhs, dimension_numbers)``, checked as lax does.

    Raises:
        TypeError: what lax refuses; the message names ``function``.
    """
    f32 = np.dtype(np.float32)
    like = [jax.ShapeDtypeStruct(x.shape, f32) for x in (lhs, rhs)]
    try:
        jax.eval_shape(lambda a, b: lax.dot_general(a, b, dimension_numbers), *like)
        (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = (
            [_dimensions(d, x.ndim) for d, x in zip(pair, (lhs, rhs), strict=True)]
            for pair in dimension_numbers
        )
    except (TypeError, ValueError) as error:
        raise TypeError(
            message(
                f"{function}: dimension_numbers {dimension_numbers!r} do not fit lhs {lhs.shape} "
                f"and rhs {rhs.shape}: {error}",
                ["((lhs contracting, rhs contracting), (lhs batch, rhs batch)), as in jax.lax"],
            )
        ) from error
    return Layout(lhs.shape, rhs.shape, lhs_contract, rhs_contract, lhs_batch, rhs_batch)


def _dimensions(dims, ndim: int) -> tuple[int, ...]:
    return tuple(int(d) % ndim for d in dims)


def _others(shape, *taken) -> tuple[int, ...]:
    used = {d for dims in taken for d in dims}
    return tuple(d for d in range(len(shape)) if d not in used)


def _transpose(x: jax.Array, order: tuple[int, ...]) -> jax.Array:
    return x if order == tuple(range(x.ndim)) else lax.transpose(x, order)


def _untranspose(matrix: jax.Array, shape, order) -> jax.Array:
    x = matrix.reshape([shape[d] for d in order])
    return _transpose(x, tuple(int(d) for d in np.argsort(order)))
