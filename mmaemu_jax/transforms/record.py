"""record_gemms: a JAX function that also hands out every FP8 GEMM it runs, operands and result.

The program runs as it is. Each FP8 dot_general, and each GEMM of this package, gets a callback
that its result passes through unchanged, so that nothing is reordered and loops are recorded too.
"""

import functools
import itertools
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import JaxprEqn, Var

from mmaemu_jax.arguments import type_name
from mmaemu_jax.contraction import contraction_argument
from mmaemu_jax.errors import UnemulatedDotWarning, message
from mmaemu_jax.notices import Notice, issue
from mmaemu_jax.outputs.recorded import RecordedGemm, write_gemm
from mmaemu_jax.platforms import get_profile
from mmaemu_jax.primitive import scaled_mm_p
from mmaemu_jax.transforms.dot_program import as_scale, equations_for, left_matrices, right_matrices
from mmaemu_jax.transforms.emulate import split_arrays
from mmaemu_jax.transforms.emulation_report import LeftProduct
from mmaemu_jax.transforms.flow import aval_of
from mmaemu_jax.transforms.fp8_operands import moved_equations
from mmaemu_jax.transforms.inlining import CALLS
from mmaemu_jax.transforms.jaxprs import Occurrence, open_jaxpr
from mmaemu_jax.transforms.rewriting import FlatLevel, Rewriter
from mmaemu_jax.transforms.source_location import source_location
from mmaemu_jax.transforms.takeover import ALIGNMENT, EmulationOptions, Takeover

_FUNCTION = "record_gemms"
#: Levels that say nothing about a layer.
_CALLS = frozenset({"", *CALLS})


def record_gemms(
    fn: Callable[..., Any], into: str | os.PathLike | Callable[[RecordedGemm], Any]
) -> Callable[..., Any]:
    """``fn``, which also records the FP8 GEMMs it runs, for :func:`check_outputs`.

    Recorded are the dots that :func:`emulate` takes over (of FP8 arrays, or of arrays dequantised
    from FP8 by a scalar), with the bits that JAX gives them here, and this package's own GEMMs (a
    dot that starts from c aside). fn runs as one jitted program. XLA cannot fold what follows a
    recorded result into its GEMM, so that an output scale is no part of a native recording.

    M, N and K are padded with zeros to multiples of 16, as XLA does. A batched dot becomes one
    recording for each element. Names are the number in the program, the scope or source line, and
    the number of the execution for what runs more than once.

    Args:
        fn: a function that JAX can trace, as for :func:`emulate`; pass ``jax.grad(f)`` itself to
            record backward passes. One device.
        into: a folder for ``.npz`` files, or a function that is called with each recording.

    Returns:
        A function like fn; when it returns, everything is recorded.

    Raises:
        TypeError: fn is not callable, ``into`` neither a path nor callable.
        When called: whatever fn raises. FP8 products that cannot be recorded are named by an
        UnemulatedDotWarning.
    """
    if not callable(fn):
        what = f"{_FUNCTION}: fn must be callable, got {fn!r} of type {type_name(fn)}."
        raise TypeError(message(what, [f"pass a function: {_FUNCTION}(fn, folder)(*args)"]))
    if isinstance(into, str | os.PathLike):
        keep = functools.partial(_write, pathlib.Path(into))
    elif callable(into):
        keep = into
    else:
        what = f"{_FUNCTION}: into must be a path or a function, got {type_name(into)}."
        raise TypeError(message(what, ["into='dumps'", "gemms = []; into=gemms.append"]))

    @functools.wraps(fn)
    def recording(*args: Any, **kwargs: Any) -> Any:
        return _run(fn, args, kwargs, keep)

    return recording


def _write(folder: pathlib.Path, gemm: RecordedGemm) -> None:
    write_gemm(gemm, folder / f"{gemm.name}.npz")


def _run(fn: Callable, args: tuple, kwargs: dict, keep: Callable) -> Any:
    of_arrays, arrays = split_arrays(fn, args, kwargs)
    closed, shapes = jax.make_jaxpr(of_arrays, return_shape=True)(*arrays)
    rewritten = _Recorder(keep).rewrite(closed)
    left = [found.entry for found in rewritten.found if isinstance(found.entry, LeftProduct)]
    if left:
        what = f"{_FUNCTION}: not recorded: {'; '.join(map(str, left))}."
        issue([Notice(UnemulatedDotWarning, what)])
    program = functools.partial(eval_jaxpr, open_jaxpr(rewritten.jaxpr), closed.consts)
    out = jax.block_until_ready(jax.jit(program)(*arrays))
    return jax.tree.unflatten(jax.tree.structure(shapes), out)


class _Recorder(Rewriter):
    """Rewrites jaxprs so that GEMMs are handed to ``keep``, numbered in the order they are met."""

    def __init__(self, keep: Callable[[RecordedGemm], Any]):
        options = EmulationOptions(
            profile=get_profile("hopper-xla"),
            splitk="auto_or_unsplit",
            use_fast_accum=None,
            epilogue="jaxpr",
            backend="auto",
            on_unsupported="warn",
            contraction=contraction_argument(_FUNCTION, "gather"),
        )
        super().__init__(options, lambda compute, args: compute(*args))
        self._keep = keep
        self._numbers = itertools.count()

    @property
    def level(self) -> type[FlatLevel]:
        return _RecordingLevel

    def tap(self, occurrence: Occurrence, fast: bool) -> "_Tap":
        """What receives the GEMM of this equation."""
        return _Tap(f"{next(self._numbers):03d}-{_place(occurrence)}", fast, self._keep)


class _RecordingLevel(FlatLevel):
    """A flat jaxpr whose GEMMs stay, each followed by what hands it out."""

    _rewriter: _Recorder

    def _emulated(self, dot: JaxprEqn, takeover: Takeover) -> list[JaxprEqn]:
        operands, eqns = [], []
        for operand in (takeover.a, takeover.b):
            atom, moved = moved_equations(operand)
            eqns.extend(moved)
            operands.append(atom)
        scales = [(x.scale, x.divided) for x in (takeover.a, takeover.b)]
        tap = self._rewriter.tap(self._occurrence(dot), takeover.gemm.accumulate == "fast")
        (contract_a, contract_b), (batch_a, batch_b) = dot.params["dimension_numbers"]

        def program(result, a, b, *scalars):
            given = iter(scalars)
            factors = [
                np.float32(1) if scale is None else as_scale(next(given), divided)
                for scale, divided in scales
            ]
            x = left_matrices(a, batch_a, contract_a)
            y = right_matrices(b, batch_b, contract_b)
            return tap(result, x, y, *factors)

        raw = Var(aval_of(dot.outvars[0]))
        eqns.append(dot.replace(outvars=[raw]))
        given = [scale for scale, _ in scales if scale is not None]
        eqns.extend(equations_for(program, dot, [raw, *operands, *given], dot.outvars[0]))
        return eqns

    def _other(self, eqn: JaxprEqn) -> list[JaxprEqn]:
        if eqn.primitive is not scaled_mm_p or eqn.params["params"].has_c:
            return super()._other(eqn)
        params = eqn.params["params"]
        tap = self._rewriter.tap(self._occurrence(eqn), not params.plan.chunk_k)

        def program(result, a, b, *scales):
            y = b if params.b_layout == "nk" else b.swapaxes(-1, -2)
            return tap(result, a, y, *scales)

        raw = Var(aval_of(eqn.outvars[0]))
        given = [raw, *eqn.invars]
        taps = equations_for(program, eqn, given, eqn.outvars[0])
        return [eqn.replace(outvars=[raw]), *taps]

    def _occurrence(self, eqn: JaxprEqn) -> Occurrence:
        return Occurrence(eqn, (*self._path, *self._paths[id(eqn)]))


class _Tap:
    """Hands out one GEMM of the program each time that it runs."""

    def __init__(self, name: str, fast: bool, keep: Callable[[RecordedGemm], Any]):
        self._name, self._fast, self._keep = name, fast, keep
        self._runs = itertools.count()

    def __call__(self, result: jax.Array, a: jax.Array, b: jax.Array, *scales: Any) -> jax.Array:
        """``result``, in the program; a [*L, M, K], b [*L, N, K], scales [*L] each."""
        shape = jax.ShapeDtypeStruct(result.shape, result.dtype)
        return jax.pure_callback(self._record, shape, result, a, b, *scales)

    def _record(self, result, a, b, *scales):
        result, a, b, *scales = map(np.asarray, (result, a, b, *scales))
        *leading, m, _ = a.shape
        n = b.shape[-2]
        leading = np.broadcast_shapes(tuple(leading), b.shape[:-2])
        outs = result.reshape(*leading, m, n)
        run = next(self._runs)
        for index in np.ndindex(*leading):
            one = [x[_within(index, x.shape[:-2])] for x in (a, b, outs)]
            factors = [s[_within(index, s.shape)] for s in scales]
            name = self._name + (f"_run{run:04}" if run else "")
            name += "".join(f"-{i}" for i in index) if outs.size > m * n else ""
            self._keep(_padded(name, *one, *factors, fast=self._fast))
        return result


def _within(index: tuple[int, ...], leading: tuple[int, ...]) -> tuple[int, ...]:
    """``index`` in an operand that is shared along the dimensions of size 1."""
    return tuple(i if size > 1 else 0 for i, size in zip(index, leading, strict=False))


def _padded(name: str, a, b, out, scale_a, scale_b, scale_result=None, *, fast) -> RecordedGemm:
    """The GEMM as XLA pads it; zero codes change no output (R9), and give zeros."""
    k = -a.shape[1] % ALIGNMENT
    n = -len(b) % ALIGNMENT
    return RecordedGemm(
        name,
        np.pad(a, ((0, 0), (0, k))),
        np.pad(b, ((0, n), (0, k))),
        np.pad(out, ((0, 0), (0, n))),
        np.float32(scale_a),
        np.float32(scale_b),
        fast,
        None if scale_result is None else np.float32(scale_result),
        M=len(a) + -len(a) % ALIGNMENT,
    )


def _place(occurrence: Occurrence) -> str:
    """The scope of an equation, or its source line, fit for the name of a file."""
    location = source_location(occurrence)
    line = f"{pathlib.Path(location.file).stem}.{location.line}" if location.file else ""
    scopes = [part for part in occurrence.scope.split("/") if part not in _CALLS]
    text = ".".join(scopes) or line or occurrence.eqn.primitive.name
    return re.sub(r"[^\w.()=-]+", "_", text)[-80:]
