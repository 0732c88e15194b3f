"""Recorded split-K decisions, one table per GPU and library, read on first use.

A table answers for the keys it holds; of any other key it says that it is absent. The files, and
where they come from: tables/README.md.
"""

import bisect
import dataclasses
import functools
import hashlib
import importlib.resources
import io
import json
import pathlib
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from types import MappingProxyType

import numpy as np

from mmaemu_jax.arguments import unknown_option
from mmaemu_jax.errors import MmaemuError, message
from mmaemu_jax.platforms.envelope import (
    Bound,
    Envelope,
    HeldOutTest,
    KGridEnvelope,
    MaxSplitEnvelope,
)
from mmaemu_jax.platforms.split_setting import Setting, SettingFacts

_KINDS = ("json", "npz")
_FOLDER = importlib.resources.files("mmaemu_jax.platforms") / "tables"


@dataclasses.dataclass(frozen=True)
class Row:
    """A recorded decision.

    Attributes:
        S: number of splits.
        scheme: how the parts are combined (R12, R13); "none" when S == 1.
        custom: the customOption of the split kernel, None when S == 1.
        custom_verified: splits with this customOption were compared with hardware, bit for bit.
    """

    S: int
    scheme: str
    custom: int | None
    custom_verified: bool


@dataclasses.dataclass(frozen=True)
class Combination:
    """What the bits of a split depend on besides the operands' shapes and values."""

    use_fast_accum: bool
    S: int
    scheme: str
    out_dtype: str
    format_a: str
    format_b: str


@dataclasses.dataclass(frozen=True, eq=False)
class Shapes:
    """The (M, N, K) of a table and their positions.

    Attributes:
        ranges: of each (K, N), the positions [start, end) of its shapes.
        Ms: M of each position, ascending within a range.
    """

    ranges: Mapping[tuple[int, int], tuple[int, int]]
    Ms: list[int]

    def position(self, M: int, N: int, K: int) -> int | None:
        """The position of a shape, or None if the table does not have it."""
        start, end = self.ranges.get((K, N), (0, 0))
        found = bisect.bisect_left(self.Ms, M, start, end)
        return found if found < end and self.Ms[found] == M else None


@dataclasses.dataclass(frozen=True, eq=False)
class SplitTable:
    """One recorded table; :func:`load_table` gives it.

    Attributes:
        table_id: its name.
        gpu: the GPU it was recorded on.
        library: the library it was recorded from.
        scale_result_recorded: calls with a scale_result were recorded too (and split alike).
        settings: what is recorded of each setting that has rows.
        envelope: what can be inferred outside the rows.
        verified: combinations whose bits were compared with hardware's.
        shapes: the shapes of all settings together.
        decisions: by code; code 0 says that there is no row.
        columns: of each setting, its column of ``codes``.
        codes: uint8 [columns, positions].
    """

    table_id: str
    gpu: str
    library: str
    scale_result_recorded: bool
    settings: Mapping[Setting, SettingFacts]
    envelope: Envelope
    verified: frozenset[Combination]
    shapes: Shapes
    decisions: tuple[Row | None, ...]
    columns: Mapping[Setting, int]
    codes: np.ndarray

    def lookup(
        self,
        M: int,
        N: int,
        K: int,
        format_a: str,
        format_b: str,
        out_dtype: str,
        use_fast_accum: bool,
        workspace_bytes: int,
    ) -> Row | None:
        """The recorded decision of a key, or None where the table has no row.

        Formats and the output dtype are names ("e4m3", "float32"). Nothing is checked: a key that
        makes no sense has no row.
        """
        setting = (format_a, format_b, out_dtype, use_fast_accum, workspace_bytes)
        column = self.columns.get(setting)  # type: ignore[arg-type]
        position = self.shapes.position(M, N, K)
        if column is None or position is None:
            return None
        return self.decisions[self.codes[column, position]]

    def bound(self, setting: Setting, K: int) -> Bound | str:
        """The envelope's bound on M * N, or the reason why there is none."""
        return self.envelope.bound(setting, K)

    def is_verified(self, combination: Combination) -> bool:
        """Whether the bits of this combination were compared with hardware's."""
        return combination in self.verified


@functools.cache
def list_tables() -> tuple[str, ...]:
    """The names of the shipped tables."""
    return tuple(_manifest(_FOLDER))


def is_table(table_id: str) -> bool:
    """Whether ``table_id`` is a shipped table's name or the FOLDER/NAME of a recorded one."""
    path = pathlib.Path(table_id)
    return table_id in list_tables() or (
        path.name != table_id and path.with_name(f"{path.name}.json").is_file()
    )


@functools.cache
def load_table(table_id: str) -> SplitTable:
    """The shipped table of that name, or a recorded one by its path FOLDER/NAME.

    It is read and checked on the first call, and kept.

    Raises:
        ValueError: no table of that name; the message lists those there are.
        MmaemuError: a file is missing or not the one that its manifest names.
    """
    path = pathlib.Path(table_id)
    return read_table(_FOLDER if path.name == table_id else path.parent, path.name)


def read_table(folder: Traversable, table_id: str) -> SplitTable:
    """:func:`load_table` from another folder, and read anew each time."""
    manifest = _manifest(folder)
    if table_id not in manifest:
        raise unknown_option(
            "load_table", "table_id", table_id, manifest, "use a profile without a table_id"
        )
    facts = json.loads(_checked_bytes(folder, f"{table_id}.json", manifest[table_id]["json"]))
    data = _checked_bytes(folder, f"{table_id}.npz", manifest[table_id]["npz"])
    with np.load(io.BytesIO(data)) as members:
        arrays = {name: members[name] for name in members.files}
    return _table(facts, arrays)


def _manifest(folder: Traversable) -> dict[str, dict[str, str]]:
    """The sha256 of both files of every table."""
    data = _bytes(folder, "manifest.json")
    try:
        manifest = json.loads(data)
        if all(isinstance(entry[kind], str) for entry in manifest.values() for kind in _KINDS):
            return manifest
    except (ValueError, AttributeError, TypeError, KeyError):  # no JSON, or of another form
        pass
    raise _damaged("manifest.json does not list the digests of the tables")


def _checked_bytes(folder: Traversable, name: str, expected: str) -> bytes:
    data = _bytes(folder, name)
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise _damaged(
            f"{name} is not the file that manifest.json beside it names: its sha256 is {found}, "
            f"not {expected}"
        )
    return data


def _bytes(folder: Traversable, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _damaged(f"{name} cannot be read ({error})") from error


def _damaged(what: str) -> MmaemuError:
    ways_out = [
        "reinstall mmaemu_jax, or record the table again",
        "pass the split explicitly, which reads no table",
    ]
    return MmaemuError(message(f"load_table: {what}.", ways_out))


def _table(facts: dict, arrays: dict[str, np.ndarray]) -> SplitTable:
    settings = {_setting(entry): _setting_facts(entry) for entry in facts["settings"]}
    arrays["codes"].flags.writeable = False
    device = facts["device"]
    return SplitTable(
        table_id=facts["table_id"],
        gpu=f"{device['gpu']} ({device['sm_count']} SMs)",
        library=f"cuBLASLt {device['cublaslt']}",
        scale_result_recorded=facts["scale_result_recorded"],
        settings=MappingProxyType(settings),
        envelope=_envelope(facts["envelope"], settings),
        verified=frozenset(_combinations(facts["verified_combinations"])),
        shapes=_shapes(arrays["M"], arrays["N"], arrays["K"]),
        decisions=(None, *(Row(**entry) for entry in facts["decisions"])),
        columns={_setting(entry): entry["column"] for entry in facts["settings"]},
        codes=arrays["codes"],
    )


def _setting(entry: dict) -> Setting:
    return Setting(*(entry[field] for field in Setting._fields))


def _setting_facts(entry: dict) -> SettingFacts:
    counts = {field: entry[field] for field in ("rows", "split_rows")}
    limits = {field: entry[field] for field in ("max_split_MN", "min_split_K")}
    return SettingFacts(**counts, **limits, S_values=tuple(entry["S_values"]))


def _combinations(entries: list[dict]):
    for entry in entries:
        names = {field: value for field, value in entry.items() if field != "S_values"}
        yield from (Combination(S=S, **names) for S in entry["S_values"])


def _envelope(entry: dict, settings: Mapping[Setting, SettingFacts]) -> Envelope:
    if entry["kind"] == "max_split":
        return MaxSplitEnvelope(entry["margin"], settings)
    tests = {test.pop("workspace_bytes"): HeldOutTest(**test) for test in entry["tests"]}
    bounds = {_setting(bound): tuple(bound["MN"]) for bound in entry["bounds"]}
    return KGridEnvelope(entry["K_min"], entry["K_max"], tuple(entry["K_grid"]), bounds, tests)


def _shapes(M: np.ndarray, N: np.ndarray, K: np.ndarray) -> Shapes:
    """From columns that are sorted by K, then N, then M."""
    starts = np.flatnonzero(np.diff(K, prepend=-1) | np.diff(N, prepend=-1)).tolist()
    ends = [*starts[1:], len(M)]
    pairs = zip(K[starts].tolist(), N[starts].tolist(), strict=True)
    return Shapes(dict(zip(pairs, zip(starts, ends, strict=True), strict=True)), M.tolist())
