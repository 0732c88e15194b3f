"""Warnings as values: a plan collects notices, whoever computes issues them at the user's line.

Kept apart from issuing so that explaining a call can list what the call would warn about.
"""

import dataclasses
import os
import sys
import warnings
from collections.abc import Iterable

import jax

from mmaemu_jax.errors import MmaemuWarning

#: Files of this package and of JAX start with one of these; a user's line is outside them.
INTERNAL_PATHS = tuple(os.path.dirname(path) + os.sep for path in (__file__, jax.__file__) if path)


@dataclasses.dataclass(frozen=True)
class Notice:
    """One warning that a computation deserves."""

    category: type[MmaemuWarning]
    text: str


def issue(notices: Iterable[Notice]) -> None:
    """Issue ``notices`` by :mod:`warnings`, at the innermost line outside this package and JAX.

    Python's default filter then shows each once per line of the user's code.
    """
    pending = list(notices)
    if not pending:
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INTERNAL_PATHS):
        frame = frame.f_back
    for notice in pending:
        warnings.warn_explicit(
            notice.text,
            notice.category,
            filename=frame.f_code.co_filename,
            lineno=frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
        )
