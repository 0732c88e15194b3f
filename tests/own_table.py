"""A split-K table that is not a shipped one."""

import json
import pathlib
import shutil

from mmaemu_jax.platforms import split_table


def copy_table(table_id: str, folder: pathlib.Path) -> pathlib.Path:
    """A shipped table under the name "mine", as ``record`` leaves one; its FOLDER/NAME."""
    shipped = split_table._FOLDER
    for suffix in ("json", "npz"):
        shutil.copy(shipped / f"{table_id}.{suffix}", folder / f"mine.{suffix}")
    digests = json.loads((shipped / "manifest.json").read_text())[table_id]
    (folder / "manifest.json").write_text(json.dumps({"mine": digests}))
    return folder / "mine"
