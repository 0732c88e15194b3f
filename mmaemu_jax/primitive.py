"""The one primitive, ``mmaemu_scaled_mm``: abstract evaluation, lowering, batching, refusal of AD.

Only this module, and partition.py below it, touch JAX's internals (jax.extend, jax.interpreters,
jax.ffi), but for jaxprs, which transforms/ reads, and the names of the handlers, which
registration.py tells XLA. The primitive computes a whole FP8 GEMM, scales and output dtype
included:

    operands  a (*L, M, K), b (*L, N, K) or (*L, K, N), scale_a (*L), scale_b (*L),
              [scale_result (*L)], [c (*L, M, N)]
    result    (*B, M, N)

``*L`` are any number of leading batch dimensions, the same number on every operand, each of them 1
or the result's: vmap adds one, and an operand that is not batched is never copied (R25).
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from mmaemu_jax import _native, backends, cuda, reference
from mmaemu_jax.accumulate import AccumulationPlan
from mmaemu_jax.dimensions import BLayout, Names, operand_names, result_names, sizes_by_name
from mmaemu_jax.errors import UnsupportedFeatureError, message
from mmaemu_jax.instruction import InstructionModel
from mmaemu_jax.notices import issue
from mmaemu_jax.partition import is_partitioned, lower_partitioned, request_devices
from mmaemu_jax.sharding_type import result_sharding


@dataclasses.dataclass(frozen=True)
class GemmParams:
    """Everything static about one GEMM; the primitive's only parameter, part of jit's keys.

    Attributes:
        model, plan: the numbers that kernels and the reference interpret.
        out_dtype: one of the five output dtypes.
        b_layout: "nk" for b (*L, N, K), "kn" for (*L, K, N); both are packed without a transpose.
        backend: "auto" or a backend that :func:`backends.check_backend` accepted.
        has_scale_result, has_c: which optional operands follow, in this order.
    """

    model: InstructionModel
    plan: AccumulationPlan
    out_dtype: np.dtype
    b_layout: BLayout
    backend: str
    has_scale_result: bool
    has_c: bool

    def names(self, leading: int) -> tuple[Names, ...]:
        """The names of the operands' dimensions, of which ``leading`` are batch dimensions."""
        return operand_names(leading, self.b_layout, self.has_scale_result, self.has_c)


scaled_mm_p = Primitive("mmaemu_scaled_mm")
scaled_mm_p.def_impl(functools.partial(xla.apply_primitive, scaled_mm_p))


def bind(
    a,
    b,
    scale_a,
    scale_b,
    scale_result=None,
    c=None,
    *,
    model: InstructionModel,
    plan: AccumulationPlan,
    out_dtype,
    b_layout: BLayout,
    backend: str,
) -> jax.Array:
    """Runs the primitive on checked operands; shapes as in the module's docstring."""
    operands = [x for x in (a, b, scale_a, scale_b, scale_result, c) if x is not None]
    params = GemmParams(
        model, plan, np.dtype(out_dtype), b_layout, backend, scale_result is not None, c is not None
    )
    return scaled_mm_p.bind(*_vary_alike(operands), params=params)


def _vary_alike(operands):
    """Operands that vary over the same manual axes of a shard_map, as the result then does."""
    varying = [jax.typeof(x).manual_axis_type.varying for x in operands]
    axes = frozenset().union(*varying)
    return [
        x if own == axes else jax.lax.pcast(x, tuple(sorted(axes - own)), to="varying")
        for x, own in zip(operands, varying, strict=True)
    ]


@scaled_mm_p.def_abstract_eval
def _abstract_eval(*operands, params: GemmParams):
    a, shapes = operands[0], [x.shape for x in operands]
    leading = len(a.shape) - 2
    names = params.names(leading)
    sizes = sizes_by_name(shapes, names)
    if sizes is None:
        raise TypeError(f"mmaemu_scaled_mm: operand shapes {shapes} do not fit.")
    own = result_names(leading)
    # Inside shard_map a's type says over which mesh axes it, and so the result, varies.
    return a.update(
        shape=tuple(sizes[name] for name in own),
        dtype=params.out_dtype,
        weak_type=False,
        sharding=result_sharding(operands, names, own),
    )


# --------------------------------------------------------------------------------- transformations


def _batch(operands, dims, *, params: GemmParams):
    """vmap adds one leading dimension; operands that are not mapped get a 1 there, no copy."""
    batched = [_batch_first(x, d) for x, d in zip(operands, dims, strict=True)]
    return scaled_mm_p.bind(*batched, params=params), 0


def _batch_first(x, dim: int | None):
    if dim is None:
        return jax.numpy.expand_dims(x, 0)
    if math.prod(x.shape[:dim]) == 1:
        # Only ones before it: a reshape moves no data, where XLA copies for a transpose.
        return x.reshape(x.shape[dim], *x.shape[:dim], *x.shape[dim + 1 :])
    return jax.numpy.moveaxis(x, dim, 0)


batching.primitive_batchers[scaled_mm_p] = _batch


def _refuse_differentiation(*_: Any, **__: Any):
    raise UnsupportedFeatureError(
        message(
            "scaled_mm: the emulated GEMM has no derivative of its own (grad, jvp, vjp).",
            [
                "a jax.custom_vjp around the call",
                "jax.lax.stop_gradient on its operands",
                "mmaemu_jax.training.fp8_dot_general, which has gradients by a recipe",
            ],
        )
    )


ad.primitive_jvps[scaled_mm_p] = _refuse_differentiation

# ---------------------------------------------------------------------------------------- lowering


def _ffi_attributes(params: GemmParams, kernel: str) -> dict[str, Any]:
    """The dictionaries that csrc/ffi/attrs.h decodes."""
    model, plan = params.model, params.plan
    return {
        "model": {
            "nfma": np.int32(model.nfma),
            "frac": np.int32(model.frac),
            "frac_out": np.int32(model.frac_out),
            "min_exp": np.int32(model.min_exp),
            "late_c": model.late_c,
        },
        "plan": {
            "chunk_k": np.int64(plan.chunk_k),
            "splits": np.int64(plan.splits),
            "tile_k": np.int64(plan.tile_k),
            "interleaved": plan.interleaved,
            "pairwise": plan.pairwise,
        },
        "kernel": kernel,
        "has_scale_result": params.has_scale_result,
        "has_c": params.has_c,
    }


def _untransposed(value: mlir.ir.Value) -> mlir.ir.Value | None:
    """The value of which ``value`` is the transpose of the last two dimensions, if it is one.

    ``w.T`` in the caller's program arrives here as a stablehlo.transpose, possibly below the
    reshape by which vmap adds leading ones. Taking its operand instead, with the other b_layout,
    leaves the transpose dead: XLA:CPU's own transpose of float8 takes longer than the GEMM.
    """
    if isinstance(value.owner, mlir.ir.Block):
        return None  # a function argument
    owner = value.owner.operation
    if owner.name == "stablehlo.transpose":
        permutation = list(mlir.ir.DenseI64ArrayAttr(owner.attributes["permutation"]))
        rank = len(permutation)
        swapped = [*range(rank - 2), rank - 1, rank - 2]
        return owner.operands[0] if permutation == swapped else None
    if owner.name in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
        return _below_added_ones(owner, value)
    return None


def _below_added_ones(owner: mlir.ir.Operation, value: mlir.ir.Value) -> mlir.ir.Value | None:
    """As _untransposed, where ``owner`` only adds ones among the leading dimensions.

    A symbolic size is a negative number in these shapes, and so no size of the static result.
    """
    outer = mlir.ir.RankedTensorType(value.type)
    inner = mlir.ir.RankedTensorType(owner.operands[0].type)
    if outer.shape[-2:] != inner.shape[-2:] or math.prod(outer.shape) != math.prod(inner.shape):
        return None
    if owner.name == "stablehlo.broadcast_in_dim":
        dimensions = list(mlir.ir.DenseI64ArrayAttr(owner.attributes["broadcast_dimensions"]))
        if dimensions != sorted(dimensions):
            return None
    source = _untransposed(owner.operands[0])
    if source is None:
        return None
    shape = [*outer.shape[:-2], outer.shape[-1], outer.shape[-2]]
    reshape = mlir.ir.Operation.create(
        "stablehlo.reshape",
        results=[mlir.ir.RankedTensorType.get(shape, outer.element_type)],
        operands=[source],
    )
    return reshape.result


def _without_transpose(b: mlir.ir.Value, params: GemmParams) -> tuple[mlir.ir.Value, GemmParams]:
    source = _untransposed(b)
    if source is None:
        return b, params
    layout = "kn" if params.b_layout == "nk" else "nk"
    return source, dataclasses.replace(params, b_layout=layout)


def _lower_to_kernel(ctx, a, b, *rest, params: GemmParams, kernel: str):
    b, params = _without_transpose(b, params)
    # A kernel's workspace is one more result, which XLA allocates and nobody reads.
    m, n, k = *ctx.avals_out[0].shape[-2:], ctx.avals_in[0].shape[-1]
    workspace = cuda.workspace_bytes(kernel, m, n, k, params.b_layout)
    if workspace:
        ctx = ctx.replace(avals_out=[*ctx.avals_out, ShapedArray((workspace,), np.uint8)])
    rule = jax.ffi.ffi_lowering(_native.GEMM_TARGET)
    attributes = _ffi_attributes(params, kernel)
    return rule(ctx, a, b, *rest, b_layout=params.b_layout, **attributes)[:1]


def _lower_in_parts(ctx, a, b, *rest, params: GemmParams):
    """A program that the compiler partitions: each device runs the primitive on its part (R24).

    A transpose of b is seen here: inside the parts b is an argument.
    """
    b, params = _without_transpose(b, params)
    shapes = [x.shape for x in ctx.avals_in]
    shapes[1] = tuple(mlir.ir.RankedTensorType(b.type).shape)
    leading = len(shapes[0]) - 2

    def compute(*operands):
        return scaled_mm_p.bind(*operands, params=params)

    return lower_partitioned(
        ctx,
        (a, b, *rest),
        shapes,
        [x.dtype for x in ctx.avals_in],
        params.names(leading),
        result_names(leading),
        compute,
        f"{_native.GEMM_TARGET} {params!r}",
    )


def _reference(a, b, scale_a, scale_b, *optional, params: GemmParams):
    if params.b_layout == "kn":
        b = jax.numpy.swapaxes(b, -1, -2)
    rest = list(optional)
    scale_result = rest.pop(0) if params.has_scale_result else None
    c = rest.pop(0) if params.has_c else None
    return reference.gemm(
        a, b, scale_a, scale_b, scale_result, c,
        model=params.model, plan=params.plan, out_dtype=params.out_dtype,
    )  # fmt: skip


_lower_reference = mlir.lower_fun(_reference, multiple_results=False)


def _lower_to_reference(ctx, *operands, params: GemmParams):
    # Only shapes and dtypes: the reference's loops start from constants, whose types would not say
    # that they vary over the mesh axes of a shard_map.
    avals = [ShapedArray(x.shape, x.dtype) for x in ctx.avals_in]
    return _lower_reference(ctx.replace(avals_in=avals), *operands, params=params)


def _lower_cpu(ctx, *operands, params: GemmParams):
    if params.backend == "reference":
        return _lower_to_reference(ctx, *operands, params=params)
    if cuda.is_cuda(params.backend):
        backends.check_platforms("scaled_mm", params.backend, "cpu")
    kernel = backends.cpu_kernel(params.backend)
    return _lower_to_kernel(ctx, *operands, params=params, kernel=kernel)


def _lower_cuda(ctx, *operands, params: GemmParams):
    if params.backend == "reference" or isinstance(cuda.extension(), str):
        return _lower_elsewhere(ctx, *operands, params=params)
    if not cuda.is_cuda(params.backend):
        backends.check_platforms("scaled_mm", params.backend, "cuda")
    from mmaemu_jax import cuda_gate  # which runs GEMMs by this module; only GPUs need it

    kernel, notices = cuda_gate.choose("scaled_mm", params.backend)
    issue(notices)
    return _lower_to_kernel(ctx, *operands, params=params, kernel=kernel)


def _lower_cpu_and_cuda(ctx, *operands, params: GemmParams):
    """One call for both, whose handlers share a name and choose for themselves."""
    if params.backend != "auto" or isinstance(cuda.extension(), str):
        return _lower_elsewhere(ctx, *operands, params=params)
    return _lower_to_kernel(ctx, *operands, params=params, kernel="auto")


def _lower_elsewhere(ctx, *operands, params: GemmParams):
    """A platform without kernels: the reference gives the same bits (R24), and says so once.

    So it does in a program for several platforms of which one has no kernels.
    """
    platforms = ", ".join(p for p in ctx.module_context.platforms if p != "cpu")
    issue(backends.fallback_notices("scaled_mm", params.backend, platforms))
    return _lower_to_reference(ctx, *operands, params=params)


def _lower(ctx, *operands, params: GemmParams):
    if is_partitioned(ctx):
        return _lower_in_parts(ctx, *operands, params=params)
    # One rule for every platform: JAX cannot combine several that are not cacheable.
    platforms = frozenset(ctx.module_context.platforms)
    return _LOWERINGS.get(platforms, _lower_elsewhere)(ctx, *operands, params=params)


_LOWERINGS = {
    frozenset({"cpu"}): _lower_cpu,
    frozenset({"cuda"}): _lower_cuda,
    frozenset({"cpu", "cuda"}): _lower_cpu_and_cuda,
}


def _register() -> None:
    request_devices(scaled_mm_p)
    # Not cacheable: a cached lowering sees function arguments instead of the caller's operations,
    # so _untransposed would never find a transpose.
    mlir.register_lowering(scaled_mm_p, _lower, cacheable=False)


_register()
