"""emulate: a function with every FP8 dot_general in it computed as a profile's GEMM.

The function is traced, its program rewritten and evaluated. Derivatives of an emulated function are
emulated programs themselves: JAX differentiates the function as it was, and what comes out of that
is rewritten. So grad gives the same program outside and inside.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr

from mmaemu_jax.arguments import flag_argument, name_argument, type_name, unknown_option
from mmaemu_jax.backends import check_backend
from mmaemu_jax.errors import UnemulatedDotWarning, UnsupportedFeatureError, message
from mmaemu_jax.notices import Notice, issue
from mmaemu_jax.platforms import Profile, SplitArgument, parse_splitk, profile_argument
from mmaemu_jax.transforms.dot_program import abstract
from mmaemu_jax.transforms.emulation_report import EmulationReport, report_on
from mmaemu_jax.transforms.rewriting import Rewriter, Rewritten
from mmaemu_jax.transforms.takeover import EmulationOptions, EpilogueMode, OnUnsupported, Refusal

_FUNCTION = "emulate"


def emulate(
    fn: Callable[..., Any],
    profile: str | Profile | None = "hopper-xla",
    splitk: SplitArgument = "auto_or_unsplit",
    *,
    use_fast_accum: bool | None = None,
    epilogue: EpilogueMode = "xla",
    backend: str = "auto",
    on_unsupported: OnUnsupported = "warn",
) -> "Emulated":
    """``fn`` with every FP8 ``dot_general`` in it computed as ``profile`` computes that GEMM.

    Taken over are dots of two FP8 arrays and dots of arrays that were dequantised from FP8 (a
    conversion, possibly scaled by a scalar), wherever they are: inside jit, scan, while, cond,
    remat, custom derivatives, custom_vmap, shard_map, in forward and backward passes, with any
    contracting and batch dimensions. docs/emulate.md says what XLA does and what follows from it.

    Args:
        fn: a function that JAX can trace; jitted or not. Arguments that are no arrays (Python
            numbers among them) are static. emulate composes with jit, vmap and grad on both sides.
        profile, splitk, backend: as in :func:`scaled_mm`. M, N and K are decided on as XLA pads
            them, to multiples of 16.
        use_fast_accum: overrides what the dots' precision says, which is: DEFAULT is fast (R10);
            HIGH and HIGHEST slow (R11); an FP8 algorithm of JAX as it says.
        epilogue: "xla" folds a scalar that scales a dot's result into the GEMM, where XLA's FP8
            rewriter does; "jaxpr" leaves it a multiplication of the rounded result.
        on_unsupported: what becomes of FP8 products that cannot be taken over: "warn" leaves them
            as they are, with an UnemulatedDotWarning; "raise" refuses the call.

    Returns:
        A function like fn. Its ``report(*args, **kwargs)`` lists what is taken over and what not.

    Raises:
        TypeError, ValueError: an option of the wrong type or value.
        BackendUnavailableError: the backend cannot run here.
        When called: whatever fn raises when it is traced; SplitKUnknownError as scaled_mm;
        UnsupportedFeatureError with ``on_unsupported="raise"``.
    """
    if not callable(fn):
        what = f"{_FUNCTION}: fn must be callable, got {fn!r} of type {type_name(fn)}."
        raise TypeError(message(what, ["pass a function: emulate(fn)(*args)"]))
    platform = profile_argument(_FUNCTION, profile)
    parse_splitk(_FUNCTION, splitk, platform)
    if use_fast_accum is not None:
        use_fast_accum = flag_argument(_FUNCTION, "use_fast_accum", use_fast_accum)
    for name, value, known in (
        ("epilogue", epilogue, get_args(EpilogueMode)),
        ("on_unsupported", on_unsupported, get_args(OnUnsupported)),
    ):
        if value not in known:
            raise unknown_option(_FUNCTION, name, value, known)
    name_argument(_FUNCTION, "backend", backend)
    check_backend(_FUNCTION, backend)
    options = EmulationOptions(platform, splitk, use_fast_accum, epilogue, backend, on_unsupported)
    return Emulated(fn, options)


class Emulated:
    """What :func:`emulate` returns: called like the function it wraps."""

    def __init__(self, fn: Callable[..., Any], options: EmulationOptions):
        functools.update_wrapper(self, fn, updated=())
        self._fn, self._options = fn, options
        self._rewriter = Rewriter(options, self._run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fn, arrays = _of_arrays(self._fn, args, kwargs)
        return self._run(fn, arrays)

    def report(self, *args: Any, **kwargs: Any) -> EmulationReport:
        """What a call with these arguments takes over and what not; nothing is computed.

        Args:
            args, kwargs: those of a call; a ``jax.ShapeDtypeStruct`` stands for an array.
        """
        fn, arrays = _of_arrays(self._fn, args, kwargs)
        rewriter = Rewriter(self._options, self._run)
        rewritten = rewriter.rewrite(jax.make_jaxpr(fn)(*arrays))
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        return report_on(name, rewritten, self._options)

    def _run(self, fn: Callable, args: Sequence[Any]) -> Any:
        """``fn(*args)`` emulated; args are pytrees of arrays."""
        leaves, in_tree = jax.tree.flatten(tuple(args))
        out_trees = []

        def flat(*leaves):
            out, out_tree = jax.tree.flatten(fn(*jax.tree.unflatten(in_tree, leaves)))
            out_trees.append(out_tree)
            return out

        closed = jax.make_jaxpr(flat)(*leaves)
        call = self._differentiable(closed)
        if jax.sharding.get_abstract_mesh().manual_axes:
            call = jax.jit(call)  # shard_map outside of jit refuses custom_vjp with symbolic zeros
        out = call(*closed.consts, *leaves)
        return jax.tree.unflatten(out_trees[-1], out)

    def _differentiable(self, closed: ClosedJaxpr) -> Callable:
        """``closed`` on its constants and arguments, emulated, and so its derivatives."""
        constants = len(closed.consts)

        def original(*values):
            return jax.core.eval_jaxpr(closed.jaxpr, values[:constants], *values[constants:])

        @jax.custom_vjp
        def emulated(*values):
            rewritten = self._rewriter.rewrite(closed)
            self._check(rewritten)
            jaxpr = rewritten.jaxpr.jaxpr
            return jax.core.eval_jaxpr(jaxpr, values[:constants], *values[constants:])

        def forward(*primals):
            values = [p.value for p in primals]
            chosen = [i for i, p in enumerate(primals) if p.perturbed and _has_tangents(p.value)]

            def linearized(*values):
                def of_chosen(*xs):
                    replaced = dict(zip(chosen, xs, strict=True))
                    return original(*(replaced.get(i, v) for i, v in enumerate(values)))

                return jax.linearize(of_chosen, *(values[i] for i in chosen))

            out, linear = self._run(linearized, values)
            return out, _Residuals(linear, tuple(chosen), tuple(map(jax.typeof, values)))

        def backward(residuals, cotangents):
            return self._pulled_back(residuals, cotangents)

        emulated.defvjp(forward, backward, symbolic_zeros=True)
        return emulated

    def _pulled_back(self, residuals: "_Residuals", cotangents) -> tuple:
        """The cotangents of all values from those of the results, zeros left out throughout."""
        given = [i for i, ct in enumerate(cotangents) if not isinstance(ct, SymbolicZero)]
        gradients: list[Any] = [None] * len(residuals.types)
        if given and residuals.chosen:
            primals = [abstract(residuals.types[i]) for i in residuals.chosen]

            def transposed(linear, cotangents):
                def some(*tangents):
                    out = linear(*tangents)
                    return [out[i] for i in given]

                return jax.linear_transpose(some, *primals)(cotangents)

            found = self._run(transposed, (residuals.linear, [cotangents[i] for i in given]))
            for i, gradient in zip(residuals.chosen, found, strict=True):
                gradients[i] = gradient
        return tuple(gradients)

    def _check(self, rewritten: Rewritten) -> None:
        """Raises or warns about what is left, and warns about what is taken over."""
        refusals = [f for f in rewritten.found if isinstance(f.outcome, Refusal)]
        for found in refusals:
            if found.outcome.error is not None:
                raise found.outcome.error
        if refusals:
            text = str(report_on(self.__name__, rewritten, self._options).left_text())
            if self._options.on_unsupported == "raise":
                raise UnsupportedFeatureError(
                    message(
                        f"{_FUNCTION}: FP8 products that cannot be emulated: {text}",
                        ["on_unsupported='warn' leaves them to JAX"],
                    )
                )
            what = f"{_FUNCTION}: FP8 products are left to JAX, whose bits are no GPU's: {text}"
            ways = ["on_unsupported='raise' refuses them", "filter UnemulatedDotWarning"]
            issue([Notice(UnemulatedDotWarning, message(what, ways))])
        issue(rewritten.notices)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["linear"], meta_fields=["chosen", "types"]
)
@dataclasses.dataclass(frozen=True)
class _Residuals:
    """What a backward pass needs: the linear program, and which values of what types it is of."""

    linear: Callable
    chosen: tuple[int, ...]
    types: tuple


def _has_tangents(value) -> bool:
    dtype = value.dtype
    is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return jnp.issubdtype(dtype, np.inexact) or (
        jnp.issubdtype(dtype, jax.dtypes.extended) and not is_key
    )


def _of_arrays(fn: Callable, args: tuple, kwargs: dict) -> tuple[Callable, list]:
    """``fn`` as a function of the arrays among its arguments, and these."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]

    def of_arrays(*arrays):
        merged = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            merged[i] = array
        args, kwargs = jax.tree.unflatten(tree, merged)
        return fn(*args, **kwargs)

    return of_arrays, [leaves[i] for i in places]


def _is_array(leaf) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind not in "OSU"
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
