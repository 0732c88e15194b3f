"""Which tests a mutant meets first."""

import ast
import collections
from collections.abc import Iterable

from tools.mutation.mutant import ROOT
from tools.mutation.python_baseline import Baseline


class Choice:
    """An order of the tests for a line of a file, learning from what killed before."""

    def __init__(self, file: str, baseline: Baseline):
        self.seconds, self.executed = baseline.seconds, baseline.lines(file)
        self.spans = statement_spans((ROOT / file).read_text())
        self.slowest: dict[str, float] = {}  # of each function; the first of its tests compiles
        for test, seconds in self.seconds.items():
            function = test.split("[")[0]
            self.slowest[function] = max(seconds, self.slowest.get(function, 0))
        self.runs: collections.Counter[str] = collections.Counter()
        self.kills: collections.Counter[str] = collections.Counter()

    def statement(self, line: int) -> set[int]:
        """The lines of the statement that a line belongs to."""
        first, last = self.spans.get(line, (line, line))
        return set(range(first, last + 1))

    def order(self, line: int) -> list[str]:
        """All tests: those that run the line, then the rest; in each, the best value first."""
        wanted = self.statement(line)
        siblings: collections.Counter[str] = collections.Counter()
        costs = {}
        for test in sorted(self.seconds, key=self.seconds.__getitem__):
            function = test.split("[")[0]
            rate = (self.kills[function] + 1) / (self.runs[function] + 4)
            seconds = self.seconds[test] if siblings[function] else self.slowest[function]
            siblings[function] += 1  # what one set of parameters lets pass, others often do too
            cost = (seconds + 0.02) * siblings[function] / rate
            costs[test] = not self.executed[test] & wanted, cost
        return sorted(costs, key=costs.__getitem__)

    def learn(self, finished: Iterable[str], killer: str) -> None:
        """Counts the tests that a process ran, and the one that ended it, if one did."""
        functions = {test.split("[")[0] for test in (*finished, killer)}
        self.runs.update(functions)
        if killer:
            self.kills[killer.split("[")[0]] += 1


def statement_spans(source: str) -> dict[int, tuple[int, int]]:
    """Of each line, the lines of the innermost statement that has it, without its body."""
    spans = {}
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    for node in sorted(nodes, key=lambda n: (n.lineno, -(n.end_lineno or 0))):
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        span = node.lineno, max(last, node.lineno)
        spans.update(dict.fromkeys(range(span[0], span[1] + 1), span))
    return spans
