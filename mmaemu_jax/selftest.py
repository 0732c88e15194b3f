"""selftest: every backend of this machine against the reference, on adversarial operands."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np

from mmaemu_jax import cuda, primitive
from mmaemu_jax.accumulate import CONTIGUOUS_128, INTERLEAVED_64, SplitK, SplitRule, make_plan
from mmaemu_jax.backends import backends_status
from mmaemu_jax.errors import BackendUnavailableError, message, unknown_name
from mmaemu_jax.formats import E4M3, E5M2, Fp8Format
from mmaemu_jax.instruction import get_preset
from mmaemu_jax.testing.bits import compare_bits
from mmaemu_jax.testing.cases import families, hard_scales, operands

_UNSPLIT = SplitK(1)
#: No multiple of any tile, block or chunk.
SHAPE = (13, 37, 330)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One arithmetic that is tested, on every family of operands."""

    preset: str
    format_a: Fp8Format
    format_b: Fp8Format
    out_dtype: np.dtype
    use_fast_accum: bool = True
    split: SplitK = _UNSPLIT
    rule: SplitRule | None = None
    has_scale_result: bool = False

    @property
    def name(self) -> str:
        mode = "fast" if self.use_fast_accum else "slow"
        split = "" if self.split.S == 1 else f" S={self.split.S} {self.split.scheme}"
        formats = f"{self.format_a.name}x{self.format_b.name}->{self.out_dtype.name}"
        return f"{self.preset} {formats} {mode}{split}"


def _out(dtype) -> np.dtype:
    return np.dtype(dtype)


SETTINGS = (
    Setting("hopper", E4M3, E4M3, _out(ml_dtypes.bfloat16)),
    Setting("hopper", E4M3, E5M2, _out(np.float32), False, SplitK(2, "contiguous"), CONTIGUOUS_128),
    Setting("ada", E5M2, E4M3, _out(np.float16), False, SplitK(3, "pairwise"), INTERLEAVED_64),
    Setting("ada", E4M3, E4M3, E4M3.dtype, True, SplitK(4, "serial"), INTERLEAVED_64, True),
    Setting("ada", E5M2, E5M2, E5M2.dtype, False, has_scale_result=True),
    Setting("b200_mma_sync", E4M3, E5M2, _out(np.float32)),
)


@dataclasses.dataclass(frozen=True)
class BackendResult:
    """What the self-test found of one backend.

    Attributes:
        name: of the backend.
        values: outputs compared.
        problems: one text for each setting in which bits differ or the backend failed.
        why_not: why it was not tested, or "".
    """

    name: str
    values: int = 0
    problems: tuple[str, ...] = ()
    why_not: str = ""

    def __str__(self) -> str:
        if self.why_not:
            return f"{self.name:<12} not tested: {self.why_not}"
        if self.problems:
            return "\n  ".join([f"{self.name:<12} FAILED", *self.problems])
        return f"{self.name:<12} ok, {self.values} values have the reference's bits"


@dataclasses.dataclass(frozen=True)
class SelfTestReport:
    """All results; ``ok`` if no tested backend differs from the reference."""

    results: tuple[BackendResult, ...]

    @property
    def ok(self) -> bool:
        return not any(result.problems for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {"ok": self.ok, "backends": [dataclasses.asdict(r) for r in self.results]}

    def __str__(self) -> str:
        return "\n".join(str(result) for result in self.results)


def selftest(
    backend: str | None = None, *, progress: Callable[[str], None] | None = None
) -> SelfTestReport:
    """Compares backends with the reference, bit for bit, in a few seconds.

    Args:
        backend: the one to test; None is every one that this machine can run.
        progress: is given a line of text now and then.

    Raises:
        ValueError: no kernel backend of that name.
    """
    say = progress or (lambda line: None)
    # "cuda" stands for its kernels, and for the reason where there are none.
    kernels = [s for s in backends_status() if ":" in s.name or not s.usable]
    if backend is not None:
        names = [s.name for s in kernels]
        if backend not in names:
            error = unknown_name("backend", backend, names, "leave it out to test all")
            raise ValueError(f"selftest: {error}")
        kernels = [s for s in kernels if s.name == backend]
    usable = [s.name for s in kernels if s.usable]
    values, problems = dict.fromkeys(usable, 0), {name: [] for name in usable}
    for number, setting in enumerate(SETTINGS, 1):
        say(f"[{number}/{len(SETTINGS)}] {setting.name}")
        arguments = _arguments(setting, seed=number)
        desired = _compute(setting, arguments, "reference") if usable else np.zeros(())
        for name in usable:
            values[name] += desired.size
            problems[name] += _problems(setting, arguments, name, desired)
    return SelfTestReport(
        tuple(
            BackendResult(s.name, values[s.name], tuple(problems[s.name]))
            if s.usable
            else BackendResult(s.name, why_not=s.why_not)
            for s in kernels
        )
    )


def _arguments(setting: Setting, seed: int) -> list[np.ndarray]:
    """One GEMM of each family as a batch, with hard scales; NaN and Inf are among the codes."""
    formats = setting.format_a, setting.format_b
    pairs = [operands(f, *formats, *SHAPE, seed, finite=False) for f in families()]
    scales = np.resize(np.array(hard_scales(), np.uint32), 3 * len(pairs)).view(np.float32)
    arrays = [
        np.stack(codes).view(fmt.dtype)
        for codes, fmt in zip(zip(*pairs, strict=True), formats, strict=True)
    ]
    count = 3 if setting.has_scale_result else 2
    return [*arrays, *scales.reshape(3, -1)[:count]]


def _compute(setting: Setting, arguments: list[np.ndarray], backend: str) -> np.ndarray:
    preset = get_preset(setting.preset)
    plan = make_plan(setting.use_fast_accum, setting.split, setting.rule, preset.slow_chunk)

    def program(*arrays):
        return primitive.bind(
            *arrays,
            model=preset.model,
            plan=plan,
            out_dtype=setting.out_dtype,
            b_layout="nk",
            backend=backend,
        )

    platform = "gpu" if cuda.is_cuda(backend) else "cpu"
    with jax.default_device(jax.devices(platform)[0]):
        return np.asarray(jax.jit(program)(*arguments))


def _problems(setting: Setting, arguments: list, backend: str, desired: np.ndarray) -> list[str]:
    try:
        actual = _compute(setting, arguments, backend)
    except (jax.errors.JaxRuntimeError, BackendUnavailableError) as error:
        return [f"{setting.name}: {error}"]
    report = compare_bits(actual, desired, max_examples=1)
    if report.equal:
        return []
    way_out = "report this with the output of 'python -m mmaemu_jax info'"
    return [message(f"{setting.name}: {report}", [way_out, "use backend='reference'"])]
