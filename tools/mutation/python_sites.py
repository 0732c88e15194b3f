"""Where a Python source can be mutated, and to what: operators, conditions, numbers, True, False.

Left alone, because no value depends on them: strings and what is computed inside them (the wording
of messages), annotations, assertions, ``strict=`` of zip and ``maxsize=`` of a cache.
"""

import ast
import dataclasses
import io
import itertools
import tokenize
from collections.abc import Iterator

from tools.mutation.mutant import COMPARISONS, Mutant, make_mutants

#: Line, column (from 0, in characters), what stands there, what replaces it.
Edit = tuple[int, int, str, str]

BINARY = {
    "+": ("-", "*"),
    "-": ("+",),
    "*": ("+",),
    "/": ("*",),
    "//": ("/", "*"),
    "%": ("//",),
    "**": ("*",),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|", "^"),
    "|": ("&", "^"),
    "^": ("&", "|"),
}
COMPARISON = {
    **COMPARISONS,
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
BOOLEAN = {"and": ("or",), "or": ("and",)}
UNARY = {ast.USub: "-", ast.Invert: "~", ast.Not: "not"}
#: Functions by their last name, and what else a person might have meant.
FUNCTIONS = {
    "min": ("max",),
    "max": ("min",),
    "minimum": ("maximum",),
    "maximum": ("minimum",),
    "any": ("all",),
    "all": ("any",),
    "floor": ("ceil",),
    "ceil": ("floor",),
    "trunc": ("floor", "round"),
    "lower": ("upper",),
    "zeros": ("ones",),
    "ones": ("zeros",),
    "zeros_like": ("ones_like",),
}
#: Keywords whose value is an assertion or a matter of speed.
IGNORED_KEYWORDS = {"strict", "maxsize"}
#: Raised instead: an error that no caller expects.
OTHER_ERROR = "ArithmeticError"


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mutants of a Python source."""
    return make_mutants(file, source, _Sites(source).edits(ast.parse(source)))


@dataclasses.dataclass(frozen=True)
class _Span:
    """A stretch of the source: (line, column) of both ends."""

    start: tuple[int, int]
    end: tuple[int, int]


class _Sites:
    """The edits of one source."""

    def __init__(self, source: str):
        self.lines = source.splitlines(keepends=True)
        readline = io.StringIO(source).readline
        self.tokens = [t for t in tokenize.generate_tokens(readline) if t.string]

    def edits(self, node: ast.AST) -> Iterator[Edit]:
        """The edits at a node and below it."""
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            return
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is not None:
            yield from method(node)
        for child in _children(node):
            yield from self.edits(child)

    def _BinOp(self, node: ast.BinOp) -> Iterator[Edit]:
        yield from self._between(node.left, node.right, BINARY)

    def _AugAssign(self, node: ast.AugAssign) -> Iterator[Edit]:
        assigning = {f"{op}=": tuple(f"{o}=" for o in others) for op, others in BINARY.items()}
        yield from self._between(node.target, node.value, assigning)

    def _Compare(self, node: ast.Compare) -> Iterator[Edit]:
        operands = [node.left, *node.comparators]
        for left, right in itertools.pairwise(operands):
            yield from self._between(left, right, COMPARISON)

    def _BoolOp(self, node: ast.BoolOp) -> Iterator[Edit]:
        for left, right in itertools.pairwise(node.values):
            yield from self._between(left, right, BOOLEAN)

    def _UnaryOp(self, node: ast.UnaryOp) -> Iterator[Edit]:
        if sign := UNARY.get(type(node.op)):
            start = self._span(node).start
            yield *start, sign, ""

    def _Constant(self, node: ast.Constant) -> Iterator[Edit]:
        value = node.value
        if value is True or value is False:
            yield self._replace(node, str(not value))
        elif isinstance(value, int | float):
            for other in dict.fromkeys((value + 1, value - 1, type(value)(0))):
                if other != value:
                    text = repr(other)
                    yield self._replace(node, f"({text})" if other < 0 else text)

    def _If(self, node: ast.If | ast.IfExp) -> Iterator[Edit]:
        for value in ("True", "False"):
            if self._text(self._span(node.test)) != value:
                yield self._replace(node.test, value)

    _IfExp = _If

    def _While(self, node: ast.While) -> Iterator[Edit]:
        yield self._replace(node.test, "False")

    def _comprehension(self, node: ast.comprehension) -> Iterator[Edit]:
        for condition in node.ifs:
            yield self._replace(condition, "True")
            yield self._replace(condition, "False")

    def _Call(self, node: ast.Call) -> Iterator[Edit]:
        name = _last_name(node.func)
        end = self._span(node.func).end
        for other in FUNCTIONS.get(name, ()):
            yield end[0], end[1] - len(name), name, other
        if name == "where" and len(node.args) == 3 and not isinstance(node.args[0], ast.Compare):
            condition = self._text(self._span(node.args[0]))
            yield self._replace(node.args[0], f"~({condition})")

    def _Raise(self, node: ast.Raise) -> Iterator[Edit]:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if isinstance(error, ast.Name) and error.id[0].isupper():
            yield self._replace(error, OTHER_ERROR)

    def _Break(self, node: ast.Break) -> Iterator[Edit]:
        yield self._replace(node, "continue")

    def _Continue(self, node: ast.Continue) -> Iterator[Edit]:
        yield self._replace(node, "break")

    def _between(self, left: ast.AST, right: ast.AST, table) -> Iterator[Edit]:
        """Edits of the operator between two operands; "not in" and "is not" are two tokens."""
        start, end = self._span(left).end, self._span(right).start
        tokens = [
            t
            for t in self.tokens
            if start <= t.start and t.end <= end and t.type in (tokenize.OP, tokenize.NAME)
        ]
        found = [t for t in tokens if t.string not in ("(", ")")]
        operator = " ".join(t.string for t in found)
        before = self._text(_Span(found[0].start, found[-1].end))
        for other in table.get(operator, ()):
            yield *found[0].start, before, other

    def _replace(self, node: ast.AST, after: str) -> Edit:
        span = self._span(node)
        return *span.start, self._text(span), after

    def _span(self, node: ast.AST) -> _Span:
        """Where a node is; ast counts columns in UTF-8 bytes."""
        ends = [(node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)]  # type: ignore[attr-defined]
        start, end = ((line, self._characters(line, column)) for line, column in ends)
        return _Span(start, end)

    def _characters(self, line: int, column: int) -> int:
        return len(self.lines[line - 1].encode()[:column].decode())

    def _text(self, span: _Span) -> str:
        (first, start), (last, end) = span.start, span.end
        if first == last:
            return self.lines[first - 1][start:end]
        middle = self.lines[first : last - 1]
        return "".join([self.lines[first - 1][start:], *middle, self.lines[last - 1][:end]])


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below that are to be mutated."""
    if isinstance(node, ast.JoinedStr | ast.Assert):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and child.arg in IGNORED_KEYWORDS:
                continue
            if isinstance(child, ast.AST):
                yield child


def _last_name(node: ast.AST) -> str:
    """The name that a call or a condition ends with: "max" of max, jnp.max and x.max."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
