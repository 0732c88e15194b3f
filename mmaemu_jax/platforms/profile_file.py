"""A platform as a data file: a profile in JSON, beside the table of split-K decisions it names."""

import dataclasses
import json
import os
import pathlib
from typing import Any

from mmaemu_jax.accumulate import SplitRule
from mmaemu_jax.arguments import type_name
from mmaemu_jax.atomic_file import write_bytes_atomically
from mmaemu_jax.errors import MmaemuError, message
from mmaemu_jax.instruction import Preset, get_preset, list_presets
from mmaemu_jax.platforms.profile import Profile
from mmaemu_jax.platforms.split_table import is_table, list_tables


def is_profile_file(name: str) -> bool:
    """Whether a profile's name is the path of a file."""
    return name.endswith(".json")


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """The profile of a file that :func:`write_profile` or ``python -m mmaemu_jax record`` wrote.

    Args:
        path: the JSON file. Its fields are :class:`Profile`'s; what it leaves out has the default.
            A ``table_id`` is a table in the file's folder, or else a shipped one.

    Raises:
        OSError: the file cannot be read.
        MmaemuError: it is not a profile in JSON.
        TypeError, ValueError: a field of the wrong type or value, as :class:`Profile` says it; a
            ``path`` that is none.
    """
    path = _path("read_profile", path)
    try:
        fields = json.loads(path.read_text())
    except ValueError as e:
        raise _not_a_profile(path, f"it is not JSON ({e})") from e
    if not isinstance(fields, dict):
        raise _not_a_profile(path, f"it holds a {type(fields).__name__}, not an object")
    return _from_fields(path, Profile, _decoded(path, fields))


def write_profile(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Writes ``profile`` as JSON, for :func:`read_profile` and ``profile="PATH.json"``.

    The path of a recorded table is kept relative to the file's folder.

    Raises:
        TypeError: ``profile`` is no Profile, or ``path`` no path.
        OSError: the file cannot be written.
    """
    if not isinstance(profile, Profile):
        raise TypeError(
            message(
                f"write_profile: profile must be a Profile, got {type_name(profile)}.",
                ["mmaemu_jax.get_profile gives one by name"],
            )
        )
    path = _path("write_profile", path)
    fields = dataclasses.asdict(profile)
    if profile.arithmetic in map(get_preset, list_presets()):
        fields["preset"] = profile.arithmetic.name
    if profile.table_id is not None and profile.table_id not in list_tables():
        fields["table_id"] = os.path.relpath(profile.table_id, path.parent)
    write_bytes_atomically(path, (json.dumps(fields, indent=1) + "\n").encode())


def _path(function: str, path: str | os.PathLike[str]) -> pathlib.Path:
    if isinstance(path, str | os.PathLike):
        return pathlib.Path(path)
    raise TypeError(
        message(
            f"{function}: path must be a path, got {type_name(path)}.", ["pass a str or a Path"]
        )
    )


def _decoded(path: pathlib.Path, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with what JSON cannot hold put back."""
    decoded = dict(fields)
    if isinstance(fields.get("preset"), dict):
        decoded["preset"] = _from_fields(path, Preset, fields["preset"])
    if isinstance(rule := fields.get("split_rule"), dict):
        schemes = rule.get("schemes")
        known = rule | {"schemes": tuple(schemes) if isinstance(schemes, list) else schemes}
        decoded["split_rule"] = _from_fields(path, SplitRule, known)
    if isinstance(rejects := fields.get("rejects"), list):
        decoded["rejects"] = tuple(tuple(r) if isinstance(r, list) else r for r in rejects)
    table_id = fields.get("table_id")
    if isinstance(table_id, str):
        beside = str(path.parent.resolve() / table_id)
        is_shipped = table_id in list_tables() and not is_table(beside)
        decoded["table_id"] = table_id if is_shipped else beside
    return decoded


def _from_fields(path: pathlib.Path, kind: type, fields: dict[str, Any]):
    known = {field.name: field for field in dataclasses.fields(kind)}
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise _not_a_profile(path, f"{kind.__name__} has no field {unknown[0]!r}")
    required = [name for name, f in known.items() if f.default is dataclasses.MISSING]
    missing = [name for name in required if name not in fields]
    if missing:
        raise _not_a_profile(path, f"{kind.__name__} needs the field {missing[0]!r}")
    return kind(**fields)


def _not_a_profile(path: pathlib.Path, why: str) -> MmaemuError:
    return MmaemuError(
        message(
            f"read_profile: {path} is not a profile: {why}.",
            ["write one by mmaemu_jax.write_profile", "see docs/adding-a-platform.md"],
        )
    )
