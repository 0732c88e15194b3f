"""Derivatives of a transformed program: the transformed derivatives of the program as it was.

JAX differentiates the original program; its forward and its backward pass are then transformed like
any other program, and so can be differentiated again. Arguments that are not differentiated and
results without a cotangent are left out, as JAX leaves them out of its own passes.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, eval_jaxpr
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr

#: Transforms and evaluates: a function and its arguments, pytrees of arrays, to its results.
Run = Callable[[Callable[..., Any], Sequence[Any]], Any]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["linear"], meta_fields=["chosen", "types"]
)
@dataclasses.dataclass(frozen=True)
class _Residuals:
    """What a backward pass needs: the linear program, and of which values of what types it is.

    The linear program is the derivative, or its transpose where JAX's linear_transpose does not
    know a type: extended dtypes, such as those in which flax keeps its scales.
    """

    linear: Callable[..., Any]
    chosen: tuple[int, ...]
    types: tuple[ShapedArray, ...]

    @property
    def is_transposed(self) -> bool:
        return any(_is_extended(self.types[i].dtype) for i in self.chosen)


def differentiable(closed: ClosedJaxpr, evaluate: Callable[..., Any], run: Run) -> Callable:
    """``evaluate``, which computes a transformed ``closed``, with derivatives.

    Args:
        closed: the original program.
        evaluate: takes the constants of ``closed`` and then its arguments.
        run: transforms and evaluates the passes.
    """
    constants = len(closed.consts)

    def original(*values):
        return eval_jaxpr(closed.jaxpr, values[:constants], *values[constants:])

    def forward(*primals):
        values = [p.value for p in primals]
        chosen = [i for i, p in enumerate(primals) if p.perturbed and _has_tangents(p.value)]

        def linearized(*values):
            if not chosen:
                return original(*values), None

            def of_chosen(*xs):
                replaced = dict(zip(chosen, xs, strict=True))
                return original(*(replaced.get(i, v) for i, v in enumerate(values)))

            is_extended = any(_is_extended(values[i].dtype) for i in chosen)
            differentiate = jax.vjp if is_extended else jax.linearize
            return differentiate(of_chosen, *(values[i] for i in chosen))

        out, linear = run(linearized, values)
        return out, _Residuals(linear, tuple(chosen), tuple(map(jax.typeof, values)))

    def backward(residuals, cotangents):
        return _pulled_back(residuals, cotangents, run)

    evaluated = jax.custom_vjp(evaluate)
    evaluated.defvjp(forward, backward, symbolic_zeros=True)
    # Outside of jit, a shard_map refuses a custom_vjp with symbolic zeros.
    in_shard_map = bool(jax.sharding.get_abstract_mesh().manual_axes)
    return jax.jit(evaluated) if in_shard_map else evaluated


def _pulled_back(residuals: _Residuals, cotangents: Sequence[Any], run: Run) -> tuple[Any, ...]:
    """The cotangents of all values; None stands for zero."""
    zeros = {
        i: cast(ShapedArray, ct.aval)
        for i, ct in enumerate(cotangents)
        if isinstance(ct, SymbolicZero)
    }
    given = [i for i in range(len(cotangents)) if i not in zeros]
    gradients: list[Any] = [None] * len(residuals.types)
    if not given or not residuals.chosen:
        return tuple(gradients)
    primals = [abstract(residuals.types[i]) for i in residuals.chosen]

    def pulled(pull, cotangents):
        every = {i: _zeros(aval) for i, aval in zeros.items()}
        every.update(zip(given, cotangents, strict=True))
        return pull([every[i] for i in range(len(every))])

    def transposed(linear, cotangents):
        def some(*tangents):
            out = linear(*tangents)
            return [out[i] for i in given]

        return jax.linear_transpose(some, *primals)(cotangents)

    backward = pulled if residuals.is_transposed else transposed
    found = run(backward, (residuals.linear, [cotangents[i] for i in given]))
    for i, gradient in zip(residuals.chosen, found, strict=True):
        gradients[i] = gradient
    return tuple(gradients)


def _zeros(aval: ShapedArray) -> np.ndarray | jax.Array:
    is_float0 = aval.dtype == jax.dtypes.float0
    return (np if is_float0 else jnp).zeros(aval.shape, aval.dtype)


def _has_tangents(value: jax.Array) -> bool:
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return jnp.issubdtype(value.dtype, np.inexact) or (_is_extended(value.dtype) and not is_key)


def _is_extended(dtype) -> bool:
    return jnp.issubdtype(dtype, jax.dtypes.extended)


def abstract(aval: ShapedArray) -> jax.ShapeDtypeStruct:
    """``aval`` as an argument to trace with, its sharding and manual mesh axes included."""
    sharding = None if aval.sharding.mesh.empty else aval.sharding
    return jax.ShapeDtypeStruct(
        aval.shape, aval.dtype, sharding=sharding, manual_axis_type=aval.manual_axis_type
    )
