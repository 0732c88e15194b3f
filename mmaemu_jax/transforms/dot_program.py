"""One emulated dot_general: operands laid out as matrices, the GEMM, the result laid out again.

Its equations are traced apart and then take the dot's place. XLA pads M, N and K with zeros to
multiples of 16 and slices the result. Here the GEMM is decided at the padded shape and computed at
the real one, which gives the same bits: zero codes change no chain (R9), no k-tile of R12 or R13
begins in them, and rows and columns do not know of each other.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Var

from mmaemu_jax import primitive
from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.contraction import Contraction, contract
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.quantize import float32_bits
from mmaemu_jax.reference.epilogue import round_to_half
from mmaemu_jax.transforms.derivatives import abstract
from mmaemu_jax.transforms.flow import Atom, aval_of
from mmaemu_jax.transforms.jaxprs import open_jaxpr

DimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


@dataclasses.dataclass(frozen=True)
class DotProgram:
    """What an emulated dot computes: ``program(a, b, *scales)``.

    Attributes:
        dimension_numbers: those of the dot_general.
        model, plan, backend: of the GEMM, as in :func:`primitive.bind`.
        gemm_dtype: the GEMM's output dtype.
        out_dtype: the dot's, to which another gemm_dtype is converted.
        contraction: how K is contracted that is spread over devices, or over a virtual mesh.
        scales: for a, for b, for the folded scaling of the result and for scale_result: whether
            the scalar divides, or None where there is none.
    """

    dimension_numbers: DimensionNumbers
    model: InstructionModel
    plan: AccumulationPlan
    backend: str
    gemm_dtype: np.dtype
    out_dtype: np.dtype
    contraction: Contraction
    scales: Sequence[bool | None]

    def __call__(self, a: jax.Array, b: jax.Array, *scalars: jax.Array) -> jax.Array:
        (contract_a, contract_b), (batch_a, batch_b) = self.dimension_numbers
        batch = [a.shape[i] for i in batch_a]
        rows = [a.shape[i] for i in _free(a, contract_a, batch_a)]
        columns = [b.shape[i] for i in _free(b, contract_b, batch_b)]
        result = contract(
            self._gemm,
            left_matrices(a, batch_a, contract_a),
            right_matrices(b, batch_b, contract_b),
            *self._scales(scalars, len(batch)),
            contraction=self.contraction,
            function="emulate",
        )
        return result.reshape(*batch, *rows, *columns).astype(self.out_dtype)

    def _gemm(self, a: jax.Array, b: jax.Array, *scales: jax.Array) -> jax.Array:
        return primitive.bind(
            a,
            b,
            *scales,
            model=self.model,
            plan=self.plan,
            out_dtype=self.gemm_dtype,
            b_layout="nk",
            backend=self.backend,
        )

    def _scales(self, scalars: Sequence[jax.Array], leading: int) -> list[jax.Array]:
        """The GEMM's scales; a folded scaling of the result is the first (R16)."""
        given = iter(scalars)
        of_a, of_b, folded, of_result = (
            None if divided is None else as_scale(next(given), divided) for divided in self.scales
        )
        one = jnp.ones((1,) * leading, jnp.float32)
        scales = [folded if of_a is None else of_a, of_b]
        scales += [] if of_result is None else [of_result]
        return [one if s is None else s.reshape((1,) * leading) for s in scales]


def as_scale(scalar: jax.Array, divided: bool) -> jax.Array:
    """A scalar as a float32 scale; a divisor's reciprocal is rounded to its own dtype, as by XLA.

    By bits, since XLA:CPU may skip a rounding to bfloat16 that is followed by a conversion back.
    """
    value = scalar.reshape(())
    bits = float32_bits(value)
    if divided:
        reciprocal = jnp.float32(1) / lax.bitcast_convert_type(bits, jnp.float32)
        bits = float32_bits(reciprocal)
        if value.dtype != jnp.float32:
            half = round_to_half(bits, np.dtype(value.dtype))
            bits = float32_bits(lax.bitcast_convert_type(half, value.dtype))
    return lax.bitcast_convert_type(bits, jnp.float32)


def _free(x: jax.Array, contract: Sequence[int], batch: Sequence[int]) -> list[int]:
    return [i for i in range(x.ndim) if i not in contract and i not in batch]


def _matrices(x: jax.Array, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]):
    """``x`` as (*batch, rows, columns), with each group of dimensions made one."""
    x = x.transpose([*batch, *rows, *columns])
    sizes = [x.shape[i] for i in range(len(batch))]
    middle = len(batch) + len(rows)
    return x.reshape(*sizes, math.prod(x.shape[len(batch) : middle]), math.prod(x.shape[middle:]))


def left_matrices(x: jax.Array, batch: Sequence[int], contract: Sequence[int]) -> jax.Array:
    """The first operand of a dot as (*batch, M, K)."""
    return _matrices(x, batch, _free(x, contract, batch), contract)


def right_matrices(x: jax.Array, batch: Sequence[int], contract: Sequence[int]) -> jax.Array:
    """The second operand as (*batch, N, K); from (*batch, K, N) by a transpose of matrices, which
    the GEMM's lowering takes into its layout."""
    columns = _free(x, contract, batch)
    if [*batch, *contract, *columns] == list(range(x.ndim)):
        return jnp.swapaxes(_matrices(x, batch, contract, columns), -1, -2)
    return _matrices(x, batch, columns, contract)


def equations_for(
    program: Callable[..., jax.Array], dot: JaxprEqn, operands: Sequence[Atom], result: Var
) -> list[JaxprEqn]:
    """Equations that set ``result`` to ``program`` of ``operands``, in ``dot``'s name."""
    with dot.ctx.manager:
        mesh = jax.sharding.get_abstract_mesh()
        axes = [(axis, mesh.shape[axis]) for axis in mesh.manual_axes]  # those types may name
        trace = jax.make_jaxpr(program, axis_env=axes)
        closed = trace(*(abstract(aval_of(atom)) for atom in operands))
    inner = open_jaxpr(closed)
    assert not inner.constvars, "an emulated dot has no constants"
    names: dict[Var, Atom] = dict(zip(inner.invars, operands, strict=True))
    eqns = []
    for eqn in inner.eqns:
        outvars = [result if var is inner.outvars[0] else Var(var.aval) for var in eqn.outvars]
        invars = [names.get(x, x) if isinstance(x, Var) else x for x in eqn.invars]
        names.update(zip(eqn.outvars, outvars, strict=True))
        eqns.append(eqn.replace(invars=invars, outvars=outvars, source_info=dot.source_info))
    return eqns
