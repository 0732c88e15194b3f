"""Layers for the training tests: dot_generals by letters, and what their gradients must be."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj
from mmaemu_jax.training import Recipe
from mmaemu_jax.training.cast import cast, scale_output


@dataclasses.dataclass(frozen=True)
class Case:
    """One dot_general; each letter is a dimension, batch letters first in the result."""

    lhs: str
    rhs: str
    sizes: dict[str, int]
    batch: str = ""

    @property
    def contract(self) -> str:
        return "".join(c for c in self.lhs if c in self.rhs and c not in self.batch)

    @property
    def rows(self) -> str:
        return "".join(c for c in self.lhs if c not in self.rhs)

    @property
    def columns(self) -> str:
        return "".join(c for c in self.rhs if c not in self.lhs)

    @property
    def dimension_numbers(self):
        return tuple(
            tuple(tuple(x.index(c) for c in letters) for x in (self.lhs, self.rhs))
            for letters in (self.contract, self.batch)
        )

    def shape(self, letters: str) -> tuple[int, ...]:
        return tuple(self.sizes[c] for c in letters)

    def operands(self, dtype, rhs_dtype=None, seed: int = 0):
        """lhs, rhs and a gradient of the result, of no special form."""
        rng = np.random.default_rng(seed)
        result = self.batch + self.rows + self.columns
        shapes = [self.shape(letters) for letters in (self.lhs, self.rhs, result)]
        x, w, g = (rng.standard_normal(s) * scale for s, scale in zip(shapes, (1, 0.05, 1e-3)))  # noqa: B905
        return (
            jnp.asarray(x, dtype),
            jnp.asarray(w, dtype if rhs_dtype is None else rhs_dtype),
            jnp.asarray(g, dtype),
        )

    def matrices(self, x, letters: str, rows: str, columns: str):
        """[batch, rows, columns] by transposition and reshape alone."""
        order = [letters.index(c) for c in self.batch + rows + columns]
        sizes = [math.prod(self.shape(part)) for part in (self.batch, rows, columns)]
        return x.transpose(order).reshape(sizes)

    def unmatrices(self, x, letters: str, rows: str, columns: str):
        """The inverse of :meth:`matrices`."""
        source = self.batch + rows + columns
        order = [source.index(c) for c in letters]
        return x.reshape(self.shape(source)).transpose(order)


def expected(case: Case, recipe: Recipe, operands, state, *, fast, swap_wgrad: bool, out_dtypes):
    """The result and the two gradients by direct scaled_mm calls on the quantised operands.

    ``fast`` are the accumulate modes of fprop, dgrad and wgrad; ``swap_wgrad`` says that wgrad is
    the GEMM of grad^T and lhs, not of lhs^T and grad. Written for this one purpose, without the
    package's own layouts.
    """
    lhs, rhs, grad = operands
    k, rows, columns = case.contract, case.rows, case.columns
    compute = rhs.dtype
    quantised = [
        jax.jit(cast, static_argnums=(0, 3))(q, x, s, d)
        for q, x, s, d in (
            (recipe.lhs, lhs, state and state.lhs, compute),
            (recipe.rhs, rhs, state and state.rhs, compute),
            (recipe.grad, grad, state and state.grad, grad.dtype),
        )
    ]
    x = case.matrices(quantised[0].codes, case.lhs, rows, k)
    w = case.matrices(quantised[1].codes, case.rhs, k, columns)
    g = case.matrices(quantised[2].codes, case.batch + rows + columns, rows, columns)
    sx, sw, sg = (q.inverse for q in quantised)

    def product(a, b, scale_a, scale_b, dtype, fast):
        return jnp.stack([one(*pair, scale_a, scale_b, dtype, fast) for pair in zip(a, b)])  # noqa: B905

    def one(a, b, scale_a, scale_b, dtype, fast):
        if recipe.scales == "folded":
            alpha = np.asarray(scale_a * scale_b, np.float32).astype(dtype).astype(np.float32)
            scale_a, scale_b = alpha, np.float32(1)
        after = recipe.scales == "after"
        if after:
            alpha = np.asarray(scale_a * scale_b, np.float32).astype(dtype).astype(np.float32)
            scale_a, scale_b = np.float32(1), np.float32(1)
        y = mj.scaled_mm(
            a, b, scale_a, scale_b, out_dtype=dtype, use_fast_accum=fast, profile="hopper", splitk=1
        )
        return jax.jit(scale_output)(y, alpha) if after else y

    def t(matrix):
        return jnp.swapaxes(matrix, 1, 2)

    y = product(x, w, sx, sw, out_dtypes[0], fast[0])
    dx = product(g, t(w), sg, sw, out_dtypes[1], fast[1])
    if swap_wgrad:
        dw = t(product(t(g), x, sg, sx, out_dtypes[2], fast[2]))
    else:
        dw = product(t(x), g, sx, sg, out_dtypes[2], fast[2])
    return (
        case.unmatrices(y, case.batch + rows + columns, rows, columns),
        case.unmatrices(dx, case.lhs, rows, k),
        case.unmatrices(dw, case.rhs, k, columns),
        [q.state for q in quantised],
    )
