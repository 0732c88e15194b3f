"""What the replay of recordings compared: counted per test, printed once per run.

A :class:`Tally` reports its row as a property of its test, which pytest-xdist carries to the
process that prints; conftest.py calls :func:`write_census` from ``pytest_terminal_summary``.
"""

import numpy as np

from mmaemu_jax.testing import assert_bitwise_equal

COLUMNS = ("set", "backend", "cases", "outputs", "values", "rejections")
MAX_FAILURES_SHOWN = 10


class Tally:
    """The comparisons of one set on one backend.

    ``record_property`` is pytest's fixture of that name.
    """

    def __init__(self, record_property):
        self._record_property = record_property
        self._name = self._backend = ""
        self._ids: set[str] = set()
        self._outputs = self._values = self._rejections = 0
        self._failures: list[str] = []

    def start(self, name: str, backend: str) -> None:
        self._name, self._backend = name, backend

    def compare(self, case_id: str, actual, desired) -> None:
        """Counts one output and keeps how it differs from the recorded bits."""
        self._ids.add(case_id)
        self._outputs += 1
        self._values += int(np.size(desired))
        try:
            assert_bitwise_equal(actual, desired)
        except AssertionError as error:
            self._failures.append(f"{case_id}: {error}")

    def rejection(self, case_id: str, error: str | None, expected: str) -> None:
        """Counts one call that must raise ``expected``; ``error`` is what it raised."""
        self._ids.add(case_id)
        self._rejections += 1
        if error != expected:
            self._failures.append(f"{case_id}: raised {error}, recorded {expected}")

    def finish(self, cases: int) -> None:
        """Reports the row; asserts that all ``cases`` were replayed and that nothing differed."""
        self._record_property("recordings", self.row())
        shown = "\n".join(self._failures[:MAX_FAILURES_SHOWN])
        total = self._outputs + self._rejections
        assert not self._failures, f"{len(self._failures)} of {total} calls differ:\n{shown}"
        assert len(self._ids) == cases

    def row(self) -> tuple:
        counts = (len(self._ids), self._outputs, self._values, self._rejections)
        return (self._name, self._backend, *counts)


def rows_of(terminalreporter) -> list[tuple]:
    """One row, in order of COLUMNS, per set and backend replayed in this run."""
    rows = {
        tuple(value)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in getattr(report, "user_properties", [])
        if name == "recordings"
    }
    return sorted(rows)


def write_census(terminalreporter) -> None:
    """Prints one line per set and backend replayed in this run."""
    rows = rows_of(terminalreporter)
    if not rows:
        return
    terminalreporter.section("recordings replayed bit for bit")
    table = [COLUMNS, *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, backend, *counts in table:
        cells = [name.ljust(widths[0]), backend.ljust(widths[1])]
        cells += [count.rjust(width) for count, width in zip(counts, widths[2:], strict=True)]
        terminalreporter.write_line("  ".join(cells))
