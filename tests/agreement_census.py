"""What the agreement matrix compared, and what it skipped and why: printed once per run.

A test of the matrix reports ``record_property("agreement", row(...))``.
"""

import collections

COLUMNS = ("implementation", "cells", "models", "plans", "formats", "outputs", "results", "values")


def row(implementation: str, cell, outputs, compared: int) -> list:
    """One cell of one implementation, as values that pytest-xdist can carry."""
    names = [str(output) for output in outputs]
    return [implementation, cell.model_name, cell.plan_name, cell.formats, names, compared]


def rows_of(terminalreporter) -> list[tuple]:
    """One row, in order of COLUMNS, per implementation compared in this run."""
    reports = [r for outcome in terminalreporter.stats.values() for r in outcome]
    cells = [
        value
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "agreement" and report.when == "call"
    ]
    return [_line(name, cells) for name in dict.fromkeys(cell[0] for cell in cells)]


def skipped_of(terminalreporter) -> dict[str, int]:
    """How many tests of the matrix were skipped, by reason."""
    return collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if "test_agreement.py" in report.nodeid
    )


def write_census(terminalreporter) -> None:
    """Prints one line per implementation, and one per reason for skipping."""
    rows, skipped = rows_of(terminalreporter), skipped_of(terminalreporter)
    if not rows and not skipped:
        return
    terminalreporter.section("agreement, bit for bit")
    table = [COLUMNS, *rows]
    widths = [max(len(str(line[i])) for line in table) for i in range(len(COLUMNS))]
    for first, *counts in table:
        cells = (str(c).rjust(w) for c, w in zip(counts, widths[1:], strict=True))
        terminalreporter.write_line("  ".join([first.ljust(widths[0]), *cells]))
    for reason, count in skipped.items():
        terminalreporter.write_line(f"skipped {count}: {reason}")
    if not skipped:
        terminalreporter.write_line("skipped nothing")


def _line(name: str, rows: list) -> tuple:
    own = [r for r in rows if r[0] == name]
    models, plans, formats = (len({r[i] for r in own}) for i in (1, 2, 3))
    kinds = {output for r in own for output in r[4]}
    results = sum(len(r[4]) for r in own)
    return (name, len(own), models, plans, formats, len(kinds), results, sum(r[5] for r in own))
