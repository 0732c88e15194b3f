"""One edit of one source file, and a name for it that outlives edits elsewhere in the file."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

#: What a comparison is changed to, in every language.
COMPARISONS = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """``before`` at a place in a file, to be replaced by ``after``.

    Attributes:
        file: path from the root of the repository.
        line: line number of the edit, from 1.
        column: character in that line, from 0.
        before: what stands there; may span lines.
        after: what replaces it.
        text: the line, without its indentation.
        ordinal: among the same edits of equal lines of the file, from 0.
    """

    file: str
    line: int
    column: int
    before: str
    after: str
    text: str
    ordinal: int = 0

    @property
    def edit(self) -> str:
        """The edit in words, unique within its line's text."""
        suffix = f" #{self.ordinal + 1}" if self.ordinal else ""
        return f"{_one_line(self.before)} -> {_one_line(self.after)}{suffix}"

    @property
    def id(self) -> str:
        """The stable name: file, text of the line, edit. Neither line number nor column."""
        return f"{self.file} | {self.text} | {self.edit}"

    def apply(self, source: str) -> str:
        """``source`` with the edit made; ValueError where the file no longer has it."""
        lines = source.splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column
        end = start + len(self.before)
        if source[start:end] != self.before:
            raise ValueError(f"{self.file}:{self.line}: no longer has {self.before!r}.")
        return source[:start] + self.after + source[end:]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}: {self.edit} in: {self.text}"


def make_mutants(file: str, source: str, edits: Iterable[tuple[int, int, str, str]]):
    """Mutants of edits (line, column, before, after): in file order, each once, with ordinals."""
    lines = source.splitlines()
    seen: collections.Counter[tuple[str, str, str]] = collections.Counter()
    mutants = []
    for line, column, before, after in sorted(set(edits)):
        text = lines[line - 1].strip()
        key = text, _one_line(before), _one_line(after)
        mutants.append(Mutant(file, line, column, before, after, text, seen[key]))
        seen[key] += 1
    return mutants


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "nothing"
