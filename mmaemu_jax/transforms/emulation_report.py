"""The report of emulate: what is taken over and how, what is left and why."""

import dataclasses
from typing import Any

from mmaemu_jax.platforms import SplitDecision
from mmaemu_jax.transforms.flow import Atom, aval_of
from mmaemu_jax.transforms.fp8_gemms import format_name
from mmaemu_jax.transforms.jaxprs import Occurrence
from mmaemu_jax.transforms.source_location import SourceLocation, source_location, where
from mmaemu_jax.transforms.takeover import Takeover


@dataclasses.dataclass(frozen=True)
class EmulatedGemm:
    """A dot that is computed as a GEMM of the profile.

    Attributes:
        location, scope, times, loops, conditional: where it is and how often it runs, as in
            :class:`GemmSite`.
        M, N, K, batch: ``batch`` products of [M, K] by [K, N].
        padded: (M, N, K) as the library sees them, by which the split is decided.
        format_a, format_b: "e4m3" or "e5m2".
        out_dtype: the GEMM's output dtype.
        accumulate: "fast" (R10) or "slow" (R11).
        split: the split-K decision.
        scale_a, scale_b: how the operand is scaled: "" (not), "multiplied" or "divided".
        epilogue: how the result is scaled inside the GEMM, likewise.
        scale_result: how an FP8 result is scaled before it is rounded (R18), likewise.
        note: what XLA would do besides, or why nothing is folded; "" if there is nothing to say.
    """

    location: SourceLocation
    scope: str
    M: int
    N: int
    K: int
    batch: int
    padded: tuple[int, int, int]
    format_a: str
    format_b: str
    out_dtype: str
    accumulate: str
    split: SplitDecision
    scale_a: str
    scale_b: str
    epilogue: str
    scale_result: str
    note: str
    times: int
    loops: tuple[str, ...]
    conditional: bool

    def __str__(self) -> str:
        batch = f"{self.batch} x " if self.batch != 1 else ""
        m, n, k = self.padded
        padded = f" (padded {m} x {n} x {k})" if self.padded != (self.M, self.N, self.K) else ""
        split = f"S={self.split.S} {self.split.scheme} ({self.split.source})"
        parts = [
            f"{batch}{self.M} x {self.N} x {self.K}{padded}",
            f"{self.format_a} x {self.format_b} -> {self.out_dtype}",
            self.accumulate,
            split,
        ]
        for what, how in (
            ("a", self.scale_a),
            ("b", self.scale_b),
            ("result", self.epilogue),
            ("FP8 result", self.scale_result),
        ):
            if how:
                parts.append(f"{what} {how} by a scalar")
        return ", ".join(parts) + (f"; {self.note}" if self.note else "")


@dataclasses.dataclass(frozen=True)
class LeftProduct:
    """An FP8 product that is left as it is.

    Attributes:
        location, scope: where it is.
        primitive: what it is, such as "dot_general".
        operands: dtypes and shapes of its operands, as text.
        reason: why.
    """

    location: SourceLocation
    scope: str
    primitive: str
    operands: str
    reason: str

    def __str__(self) -> str:
        return f"{self.primitive} of {self.operands}: {self.reason}"


@dataclasses.dataclass(frozen=True)
class EmulationReport:
    """What :func:`emulate` does with a function; ``str()`` of it is a report for people.

    Attributes:
        function, profile, epilogue: of the emulated function.
        emulated: the dots that are taken over, in program order.
        left: the FP8 products that are not.
    """

    function: str
    profile: str
    epilogue: str
    emulated: tuple[EmulatedGemm, ...]
    left: tuple[LeftProduct, ...]

    def left_text(self) -> str:
        """The products that are left, as one text; each reason once."""
        lines = (f"{where(left.location)}: {left}".rstrip(".") for left in self.left)
        return "; ".join(dict.fromkeys(lines)) + "."

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; symbolic dimensions become strings."""
        return _plain(dataclasses.asdict(self))

    def __str__(self) -> str:
        head = f"{self.function}, emulated as profile {self.profile!r}, epilogue={self.epilogue!r}"
        emulated = f"{len(self.emulated)} FP8 GEMM{'s' * (len(self.emulated) != 1)} emulated"
        left = f"{len(self.left)} FP8 product{'s' * (len(self.left) != 1)} left"
        lines = [f"{head}: {emulated}, {left}."]
        lines += [f"{where(gemm.location)}  {gemm.scope or '-'}  {gemm}" for gemm in self.emulated]
        lines += [f"{where(x.location)}  {x.scope or '-'}  LEFT: {x}" for x in self.left]
        return "\n".join(lines)


def emulated_gemm(occurrence: Occurrence, takeover: Takeover) -> EmulatedGemm:
    """The entry of a dot that is taken over."""
    gemm = takeover.gemm
    return EmulatedGemm(
        location=source_location(occurrence),
        scope=occurrence.scope,
        M=gemm.M,
        N=gemm.N,
        K=gemm.K,
        batch=gemm.batch,
        padded=takeover.padded,
        format_a=format_name(gemm.dtype_a),
        format_b=format_name(gemm.dtype_b),
        out_dtype=gemm.out_dtype.name,
        accumulate=gemm.accumulate,
        split=takeover.plan.decision,
        scale_a=_scaling(takeover.a.scale, takeover.a.divided),
        scale_b=_scaling(takeover.b.scale, takeover.b.divided),
        epilogue=_scaling(takeover.epilogue.scale, takeover.epilogue.divided),
        scale_result=_scaling(takeover.epilogue.result_scale, takeover.epilogue.result_divided),
        note=takeover.epilogue.note,
        times=occurrence.times,
        loops=occurrence.loops,
        conditional=occurrence.conditional,
    )


def _scaling(scale: Atom | None, divided: bool) -> str:
    if scale is None:
        return ""
    return "divided" if divided else "multiplied"


def left_product(occurrence: Occurrence, reason: str) -> LeftProduct:
    """The entry of a product that is left."""
    eqn = occurrence.eqn
    avals = map(aval_of, eqn.invars[:2])
    return LeftProduct(
        location=source_location(occurrence),
        scope=occurrence.scope,
        primitive=eqn.primitive.name,
        operands=" and ".join(f"{aval.dtype.name}{list(aval.shape)}" for aval in avals),
        reason=reason,
    )


def _plain(value: Any) -> Any:
    """``value`` with lists for tuples and text for what JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, int | float | str | bool | None) else str(value)
