"""Files that are written whole or not at all: an interruption leaves the old one."""

import os
import pathlib
from collections.abc import Callable
from typing import BinaryIO


def write_atomically(path: pathlib.Path, write: Callable[[BinaryIO], object]) -> None:
    """Calls ``write(stream)`` on a file beside ``path``, which then takes its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def write_bytes_atomically(path: pathlib.Path, data: bytes) -> None:
    """The same for what is in memory already."""
    write_atomically(path, lambda stream: stream.write(data))
