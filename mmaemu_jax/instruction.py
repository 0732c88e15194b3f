"""Instruction models as data: the numbers of one tensor-core block step (R3 to R9).

A :class:`Preset` names one model and carries where its numbers come from. C++ and the float64
reference both receive only its numbers (:class:`InstructionModel`); neither knows a GPU's name.
"""

import dataclasses
import typing

from mmaemu_jax.accumulate import MAX_CHUNK_K
from mmaemu_jax.errors import unknown_name

Evidence = typing.Literal["replayed", "inherited", "experimental"]


@dataclasses.dataclass(frozen=True)
class InstructionModel:
    """The numbers a kernel needs for one block step."""

    nfma: int
    frac: int
    frac_out: int
    min_exp: int
    late_c: bool

    def __post_init__(self):
        for field, low, high in (("nfma", 1, 1024), ("frac", 1, 40), ("frac_out", 1, 23)):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"Preset: {field} must be an int, got {value!r}.")
            if not low <= value <= high:
                raise ValueError(f"Preset: {field} must be in {low}..{high}, got {value}.")
        if isinstance(self.min_exp, bool) or not isinstance(self.min_exp, int):
            raise TypeError(f"Preset: min_exp must be an int, got {self.min_exp!r}.")
        if not -1000 <= self.min_exp <= 127:
            raise ValueError(f"Preset: min_exp must be in -1000..127, got {self.min_exp}.")
        if not isinstance(self.late_c, bool):
            raise TypeError(f"Preset: late_c must be a bool, got {self.late_c!r}.")


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named instruction model.

    Attributes:
        name: how it is called; free for a custom model.
        nfma: products per block step (1..1024).
        frac: fraction bits kept when terms are aligned (1..40), R5.
        frac_out: fraction bits of a block result (1..23), R7.
        min_exp: floor of the alignment exponent, R4.
        late_c: the accumulator is added after the block sum, in fp32 RNE (R8).
        slow_chunk: elements per chain under slow accumulation (R11); None means that slow
            accumulation and split-K were never characterised, so they raise.
        evidence: "replayed", "inherited" or "experimental"; a custom model is experimental.
        provenance: where the numbers come from.
    """

    name: str
    nfma: int
    frac: int
    frac_out: int
    min_exp: int
    late_c: bool = False
    slow_chunk: int | None = None
    evidence: Evidence = "experimental"
    provenance: str = "user-defined"

    def __post_init__(self):
        _ = self.model  # its constructor checks the numbers
        if self.slow_chunk is not None and (
            isinstance(self.slow_chunk, bool) or not isinstance(self.slow_chunk, int)
        ):
            raise TypeError(f"Preset: slow_chunk must be an int or None, got {self.slow_chunk!r}.")
        if self.slow_chunk is not None and not 1 <= self.slow_chunk <= MAX_CHUNK_K:
            raise ValueError(
                f"Preset: slow_chunk must be in 1..{MAX_CHUNK_K}, got {self.slow_chunk}."
            )
        if not (isinstance(self.evidence, str) and self.evidence in typing.get_args(Evidence)):
            raise ValueError(
                f"Preset: evidence must be one of {typing.get_args(Evidence)}, "
                f"got {self.evidence!r}."
            )

    @property
    def model(self) -> InstructionModel:
        """The numbers alone, as kernels and the reference receive them."""
        return InstructionModel(self.nfma, self.frac, self.frac_out, self.min_exp, self.late_c)

    @property
    def maturity(self) -> str:
        """ "validated" (replayed or inherited) or "experimental" (it warns)."""
        return "experimental" if self.evidence == "experimental" else "validated"


ADA = Preset(
    "ada",
    nfma=16,
    frac=13,
    frac_out=13,
    min_exp=-132,
    slow_chunk=128,
    evidence="replayed",
    provenance="RTX 4060 mma.sync and cuBLASLt 12.8.3.14 recordings (rtx4060_*); toolbox Ada, L40S",
)
HOPPER = Preset(
    "hopper",
    nfma=32,
    frac=13,
    frac_out=13,
    min_exp=-132,
    slow_chunk=128,
    evidence="inherited",
    provenance="mmaemu 0.1.0's H100 PCIe replay (cuBLASLt 12.8.3.14), h100_oracle; "
    "the instruction with c = 0 is replayed from the toolbox's H100 and H200 vectors",
)
B200_MMA_SYNC = Preset(
    "b200_mma_sync",
    nfma=32,
    frac=25,
    frac_out=23,
    min_exp=-133,
    late_c=True,
    provenance="toolbox B200 vectors (mma.sync rewritten to HMMA); not the native B200 FP8 path",
)

_PRESETS = {p.name: p for p in (ADA, HOPPER, B200_MMA_SYNC)}
_ALIASES = {"blackwell": "b200_mma_sync"}


def list_presets() -> tuple[str, ...]:
    """Names of the shipped presets (aliases left out)."""
    return tuple(_PRESETS)


def get_preset(name: "str | Preset") -> Preset:
    """The preset called ``name``; a :class:`Preset` is returned as it is.

    Raises:
        TypeError: ``name`` is neither a string nor a Preset.
        ValueError: no preset of that name; the message lists those there are.
    """
    return preset_argument("get_preset", name)


def preset_argument(function: str, value: "str | Preset") -> Preset:
    """:func:`get_preset` for ``function``, which the errors name."""
    if isinstance(value, Preset):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{function}: preset must be a name or a Preset, got {type(value).__name__}."
        )
    name = _ALIASES.get(value, value)
    if name not in _PRESETS:
        error = unknown_name("preset", name, [*_PRESETS, *_ALIASES], "pass a mmaemu_jax.Preset")
        raise ValueError(f"{function}: {error}")
    return _PRESETS[name]
