"""Where in the user's source an equation comes from."""

import dataclasses
import os

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from mmaemu_jax.notices import INTERNAL_PATHS
from mmaemu_jax.transforms.jaxprs import Occurrence, open_jaxpr


@dataclasses.dataclass(frozen=True)
class SourceLocation:
    """A line of a file, and the function it belongs to; line 0 where nothing is known."""

    file: str = ""
    line: int = 0
    function: str = ""


def where(location: SourceLocation) -> str:
    """``file:line (function)`` without the folders, or "?"."""
    if not location.file:
        return "?"
    return f"{os.path.basename(location.file)}:{location.line} ({location.function})"


def source_location(occurrence: Occurrence) -> SourceLocation:
    """The innermost line outside JAX and this package that ``occurrence`` comes from.

    A function of JAX or of this package under jit is traced once for all its callers, so below
    such a jit the line of the jit itself comes first. JAX gives the backward pass of a custom_vjp
    the line of the forward call, and some equations of remat none: then it is the first line of
    the function around them.
    """
    trusted, doubtful, around = [_line_of(occurrence.eqn)], [], []
    for level in reversed(occurrence.path):
        function = _function_of(level.sub.jaxpr)
        if function is not None and _is_internal(function.file):
            trusted, doubtful = [], [*doubtful, *trusted]
        elif function is not None:
            around.append(function)
        trusted.append(_line_of(level.eqn))
    found = (location for location in (*trusted, *doubtful, *around) if location is not None)
    return next(found, SourceLocation())


def _line_of(eqn: JaxprEqn) -> SourceLocation | None:
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if not _is_internal(frame.file_name):
            return SourceLocation(frame.file_name, frame.line_num, frame.function_name)
    return None


def _function_of(jaxpr: Jaxpr | ClosedJaxpr) -> SourceLocation | None:
    """The function that was traced to ``jaxpr``, at its first line."""
    # "name at file:line", or only "name" where the file is unknown.
    name, found, where = (open_jaxpr(jaxpr).debug_info.func_src_info or "").rpartition(" at ")
    file, _, line = where.rpartition(":")
    return SourceLocation(file, int(line), name) if found and line.isdigit() else None


def _is_internal(file: str) -> bool:
    return os.path.abspath(file).startswith(INTERNAL_PATHS)
