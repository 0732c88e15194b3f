"""check_outputs: recorded FP8 GEMMs, one after the other, against the bits of a profile."""

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from mmaemu_jax.arguments import flag_argument
from mmaemu_jax.errors import ExperimentalPresetWarning, MmaemuError, message
from mmaemu_jax.notices import Notice
from mmaemu_jax.outputs.changes import explanations, where
from mmaemu_jax.outputs.compute import outputs_of, plan_of
from mmaemu_jax.outputs.recorded import RecordedGemm, read_gemm
from mmaemu_jax.outputs.report import CheckedGemm, OutputsReport, call_text
from mmaemu_jax.platforms import Profile, SplitArgument, parse_splitk, profile_argument
from mmaemu_jax.testing.bits import bits_of, compare_bits

Recorded = RecordedGemm | str | os.PathLike

_BIAS = Notice(
    ExperimentalPresetWarning,
    "The bias is added to the scaled sum before its one rounding to float32; no GPU is known to "
    "return these bits.",
)


def check_outputs(
    gemms: Recorded | Iterable[Recorded],
    profile: str | Profile | None = None,
    splitk: SplitArgument = "auto_or_unsplit",
    *,
    explain: bool = False,
    on_checked: Callable[[CheckedGemm], None] | None = None,
) -> OutputsReport:
    """Computes recorded GEMMs with the bits of ``profile`` and compares every output bit.

    What is not known of a split is assumed and told as the source of the decision; nothing warns.
    Calls with a bias, which scaled_mm refuses, are compared too (experimental, and said).

    Args:
        gemms: recorded GEMMs, or paths of ``.npz`` files and of folders of them (read one at a
            time, in the order of their names), or one of these.
        profile: whose bits, as in :func:`scaled_mm`.
        splitk: as in :func:`scaled_mm`, for all of them.
        explain: of each GEMM that differs, look for what explains every bit: the other
            accumulation, another split of K, both, an operand recorded as another format or with an
            inverted scale, another GPU's arithmetic; then whatever else
            :func:`mmaemu_jax.identify.classify` tries, on a sample of the outputs.
        on_checked: called with each GEMM when it is done.

    Returns:
        A row for each GEMM; those that cannot be read or computed say why.

    Raises:
        TypeError, ValueError: a wrong argument.
        MmaemuError: a folder without recordings.
    """
    function = "check_outputs"
    platform = profile_argument(function, profile)
    parse_splitk(function, splitk, platform)
    wants_reasons = flag_argument(function, "explain", explain)
    checked = []
    for name, recorded in listed(gemms):
        found = _checked(name, recorded, platform, splitk, wants_reasons)
        checked.append(found)
        if on_checked is not None:
            on_checked(found)
    return OutputsReport(platform.name, wants_reasons, tuple(checked))


def listed(gemms: Recorded | Iterable[Recorded]) -> list[tuple[str, Recorded]]:
    """(name, recording or file) of each GEMM; folders are looked into.

    Raises:
        TypeError: something else.
        MmaemuError: a folder without recordings.
    """
    every = [gemms] if isinstance(gemms, RecordedGemm | str | os.PathLike) else list(gemms)
    return [pair for given in every for pair in _listed(given)]


def _listed(given: Recorded) -> Iterator[tuple[str, Recorded]]:
    if isinstance(given, RecordedGemm):
        yield given.name, given
        return
    if not isinstance(given, str | os.PathLike):
        what = f"check_outputs: a RecordedGemm or a path was expected, got {given!r}."
        raise TypeError(message(what, ["mmaemu_jax.RecordedGemm(...)", "the path of an .npz"]))
    path = pathlib.Path(given)
    if not path.is_dir():
        yield path.stem, path
        return
    files = sorted(path.rglob("*.npz"))
    if not files:
        raise MmaemuError(
            message(f"check_outputs: there is no .npz in {path}.", ["record some GEMMs first"])
        )
    for file in files:
        yield file.relative_to(path).with_suffix("").as_posix(), file


def _checked(
    name: str, recorded: Recorded, profile: Profile, splitk: SplitArgument, explain: bool
) -> CheckedGemm:
    try:
        gemm = recorded if isinstance(recorded, RecordedGemm) else read_gemm(recorded, name)
    except (MmaemuError, OSError, TypeError, ValueError) as error:
        return CheckedGemm(name, problem=str(error))
    call = call_text(gemm)
    try:
        plan = plan_of(gemm, profile, splitk)
    except (MmaemuError, ValueError) as error:
        return CheckedGemm(name, gemm.shape, call, problem=str(error))
    if plan is None:  # R15
        return CheckedGemm(
            name, gemm.shape, call, report=compare_bits(gemm.out, np.zeros_like(gemm.out))
        )
    expected = outputs_of(gemm, plan.model, plan.accumulation)
    report = compare_bits(gemm.out, expected)
    notices = (*plan.notices, *([_BIAS] if gemm.bias is not None else []))
    reasons: tuple[str, ...] = ()
    place = ""
    if not report.equal:
        differs = bits_of(gemm.out) != bits_of(expected)
        place = where(differs)
        reasons = explanations(gemm, plan, differs) if explain else ()
    return CheckedGemm(name, gemm.shape, call, plan.decision, report, notices, reasons, place)
