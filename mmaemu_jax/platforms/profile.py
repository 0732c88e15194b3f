"""Profiles: whose bits a GEMM returns. A GPU, its library and the caller, as data with provenance.

The arithmetic is the profile's preset; a profile adds how K is split, what the library refuses
and how well each of these is known.
"""

import dataclasses
import typing

from mmaemu_jax.accumulate import SplitRule
from mmaemu_jax.arguments import is_one_of, type_name, unknown_option
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.formats import FORMATS
from mmaemu_jax.instruction import Evidence, Preset, get_preset, preset_argument
from mmaemu_jax.platforms.split_table import is_table, list_tables

#: (format of input, format of mat2, output dtype), by name.
Rejection = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Profile:
    """One platform and caller; a user's own profile works everywhere a name does.

    Attributes:
        name: how it is called.
        preset: the arithmetic, a name or a :class:`Preset` (``arithmetic`` is always the latter).
        split_rule: how the platform cuts K (R12, R13); None: S > 1 is unsupported.
        gpu: the reference GPU.
        library: its matrix library.
        caller: who calls the library.
        workspace_bytes: the caller's workspace; 0 never splits, None is unknown.
        rejects: calls the library refuses: (format of input, format of mat2, output dtype).
        evidence: for the unsplit GEMM: "replayed", "inherited" or "experimental" (it warns).
        split_evidence: the same for S > 1.
        table_id: the recorded table of its split-K decisions, or None: the name of a shipped one,
            or FOLDER/NAME of one that ``python -m mmaemu_jax record`` wrote.
        pad_key_to: the caller pads M, N and K to multiples of this before the library sees them.
        provenance: where all of this comes from.

    Raises:
        TypeError, ValueError: a field of the wrong type or value.
    """

    name: str
    preset: str | Preset
    split_rule: SplitRule | None = None
    gpu: str = "unspecified"
    library: str = "unspecified"
    caller: str = "unspecified"
    workspace_bytes: int | None = None
    rejects: tuple[Rejection, ...] = ()
    evidence: Evidence = "experimental"
    split_evidence: Evidence = "experimental"
    table_id: str | None = None
    provenance: str = "user-defined"
    pad_key_to: int = 1

    def __post_init__(self):
        object.__setattr__(self, "preset", preset_argument("Profile", self.preset))
        for field in ("name", "gpu", "library", "caller", "provenance"):
            _check_type(field, getattr(self, field), str)
        _check_table(self.table_id)
        _check_padding(self.pad_key_to)
        _check_type("split_rule", self.split_rule, SplitRule | None)
        _check_workspace(self.workspace_bytes)
        _check_rejects(self.rejects)
        for field in ("evidence", "split_evidence"):
            _check_one_of(field, getattr(self, field), typing.get_args(Evidence))
        chunk = self.arithmetic.slow_chunk
        if self.split_rule is not None and chunk is not None and chunk % self.split_rule.tile_k:
            raise ValueError(
                f"Profile: split_rule.tile_k must divide the preset's slow_chunk, "
                f"got {self.split_rule.tile_k} and {chunk}."
            )

    @property
    def arithmetic(self) -> Preset:
        """The preset itself."""
        return get_preset(self.preset)

    @property
    def splits(self) -> bool:
        """S > 1 is modelled: the profile has a split rule and the preset chunks (R12, R13)."""
        return self.split_rule is not None and self.arithmetic.slow_chunk is not None

    @property
    def maturity(self) -> str:
        """Either "validated" (profile and preset) or "experimental" (computing with it warns)."""
        parts = (self.evidence, self.arithmetic.evidence)
        return "experimental" if "experimental" in parts else "validated"


def _check_type(field: str, value, kind) -> None:
    if not isinstance(value, kind):
        wanted = getattr(kind, "__name__", str(kind))
        raise TypeError(f"Profile: {field} must be {wanted}, got {value!r} ({type_name(value)}).")


def _check_one_of(field: str, value, allowed) -> None:
    if not is_one_of(value, allowed):
        raise ValueError(f"Profile: {field} must be one of {', '.join(allowed)}, got {value!r}.")


def _check_workspace(value) -> None:
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise TypeError(f"Profile: workspace_bytes must be an int or None, got {value!r}.")
    if value is not None and value < 0:
        raise ValueError(f"Profile: workspace_bytes must not be negative, got {value}.")


def _check_table(value) -> None:
    _check_type("table_id", value, str | None)
    if value is not None and not is_table(value):
        way_out = "pass FOLDER/NAME of a recorded table, or leave table_id out and pass the split"
        raise unknown_option("Profile", "table_id", value, list_tables(), way_out)


def _check_padding(value) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"Profile: pad_key_to must be an int, got {value!r}.")
    if value < 1:
        raise ValueError(f"Profile: pad_key_to must be positive, got {value}.")


def _check_rejects(rejects) -> None:
    _check_type("rejects", rejects, tuple)
    formats, outputs = [f.name for f in FORMATS], [d.name for d in OUTPUT_DTYPES]
    for entry in rejects:
        if not isinstance(entry, tuple) or len(entry) != 3:
            raise TypeError(
                f"Profile: each entry of rejects must be (format of input, format of mat2, "
                f"output dtype), got {entry!r}."
            )
        for value, allowed in zip(entry, (formats, formats, outputs), strict=True):
            _check_one_of("a name in rejects", value, allowed)
