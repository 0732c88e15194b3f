"""emulate: a function with every FP8 dot_general in it computed as a profile's GEMM.

The function is traced, its program rewritten and evaluated. Derivatives of an emulated function are
emulated programs themselves: JAX differentiates the function as it was, and what comes out of that
is rewritten. So grad gives the same program outside and inside.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, get_args

import jax
import numpy as np
from jax.core import eval_jaxpr

from mmaemu_jax.arguments import (
    flag_argument,
    is_one_of,
    name_argument,
    type_name,
    unknown_option,
)
from mmaemu_jax.backends import check_backend
from mmaemu_jax.contraction import ContractionArgument, contraction_argument
from mmaemu_jax.errors import UnemulatedDotWarning, UnsupportedFeatureError, message
from mmaemu_jax.notices import Notice, issue
from mmaemu_jax.platforms import Profile, SplitArgument, parse_splitk, profile_argument
from mmaemu_jax.transforms.derivatives import differentiable
from mmaemu_jax.transforms.emulation_report import EmulationReport
from mmaemu_jax.transforms.jaxprs import open_jaxpr
from mmaemu_jax.transforms.rewriting import Rewriter, Rewritten
from mmaemu_jax.transforms.takeover import EmulationOptions, EpilogueMode, OnUnsupported

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
    contraction: ContractionArgument = "gather",
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
        contraction: a mode or a :class:`Contraction` for dots whose K is spread over devices, or
            over a virtual mesh. In a shard_map these are the dots whose result is summed over mesh
            axes: "per_device" (or a contraction that names the axes) does that sum as well.

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
        if not is_one_of(value, known):
            raise unknown_option(_FUNCTION, name, value, known)
    name_argument(_FUNCTION, "backend", backend)
    check_backend(_FUNCTION, backend)
    how = contraction_argument(_FUNCTION, contraction)
    options = EmulationOptions(
        platform, splitk, use_fast_accum, epilogue, backend, on_unsupported, how
    )
    return Emulated(fn, options)


class Emulated:
    """What :func:`emulate` returns: called like the function it wraps."""

    def __init__(self, fn: Callable[..., Any], options: EmulationOptions):
        functools.update_wrapper(self, fn, updated=())
        self._fn, self._options = fn, options
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._rewriter = Rewriter(options, self._run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fn, arrays = split_arrays(self._fn, args, kwargs)
        return self._run(fn, arrays)

    def report(self, *args: Any, **kwargs: Any) -> EmulationReport:
        """What a call with these arguments takes over and what not; nothing is computed.

        Args:
            args, kwargs: those of a call; a ``jax.ShapeDtypeStruct`` stands for an array.
        """
        fn, arrays = split_arrays(self._fn, args, kwargs)
        # A rewriter of its own: what this one remembers of a jit has the places of another call.
        rewritten = Rewriter(self._options, self._run).rewrite(jax.make_jaxpr(fn)(*arrays))
        return rewritten.report(self._name, self._options)

    def _run(self, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        """``fn(*args)`` emulated; args are pytrees of arrays."""
        leaves, in_tree = jax.tree.flatten(tuple(args))
        out_trees = []

        def flat(*leaves):
            out, out_tree = jax.tree.flatten(fn(*jax.tree.unflatten(in_tree, leaves)))
            out_trees.append(out_tree)
            return out

        closed = jax.make_jaxpr(flat)(*leaves)
        constants = len(closed.consts)

        def evaluate(*values):
            rewritten = self._rewriter.rewrite(closed)
            self._notify(rewritten)
            jaxpr = open_jaxpr(rewritten.jaxpr)
            return eval_jaxpr(jaxpr, values[:constants], *values[constants:])

        out = differentiable(closed, evaluate, self._run)(*closed.consts, *leaves)
        return jax.tree.unflatten(out_trees[-1], out)

    def _notify(self, rewritten: Rewritten) -> None:
        """Raises or warns about what is left, and warns about what is taken over."""
        for found in rewritten.found:
            if found.error is not None:
                raise found.error
        report = rewritten.report(self._name, self._options)
        if report.left and self._options.on_unsupported == "raise":
            what = f"{_FUNCTION}: FP8 products that cannot be emulated: {report.left_text()}"
            raise UnsupportedFeatureError(
                message(what, ["on_unsupported='warn' leaves them to JAX"])
            )
        notices = [notice for found in rewritten.found for notice in found.notices]
        if report.left:
            text = f"{_FUNCTION}: FP8 products are left to JAX, whose bits are no GPU's: "
            ways_out = ["on_unsupported='raise' refuses them", "filter UnemulatedDotWarning"]
            text = message(text + report.left_text(), ways_out)
            notices.append(Notice(UnemulatedDotWarning, text))
        issue(dict.fromkeys(notices))


def split_arrays(fn: Callable, args: tuple, kwargs: dict) -> tuple[Callable, list]:
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
