"""Writes docs/validation.md from what test runs counted.

    python tools/write_validation.py

Reads docs/validation/*.json, each written by `pytest --census=FILE`; `make validation` makes new
ones first. No figure of the page comes from anywhere else.
"""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNS = ROOT / "docs" / "validation"
PAGE = ROOT / "docs" / "validation.md"
MANIFEST = ROOT / "tests" / "vectors" / "manifest.json"

HEAD = """# Validation

What was compared bit for bit, counted by the tests that compared it. This page is written by
[tools/write_validation.py](../tools/write_validation.py) from the files in
`docs/validation`, which the test runs below left behind; nobody types a figure.
`make validation` runs them again, for the jax that is installed; with `ALL_CASES=1` the large sets
by the reference, too.

A row means: every one of these calls, made through the public functions inside `jax.jit`, returned
exactly the recorded bits, or raised the recorded rejection. A value is one output element.
[evidence.md](evidence.md#recordings) says what the sets are and where they come from.
"""

BACKENDS = """
`auto` is the fastest kernel of the processor, `reference` the float64 program without kernels. The
reference computes each call with others of its kind in one program, and of the computed
`h100_oracle` one output per case and accumulation mode; `h100_oracle (all)` has all of them.
"""

AGREEMENT = """\
Every implementation against the portable kernel, on adversarial operands, bit for bit. A cell is an
instruction model, an accumulation plan and a pair of formats; a result is one output dtype of it,
with or without scale_result. In runs without `-k`, the reference and the exact fractions take a
share of the cells; they need seconds for one."""


def read_runs(folder: pathlib.Path = RUNS) -> dict[str, dict]:
    """The censuses by the name of their file; SystemExit if a test of any of them failed."""
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    for name, run in runs.items():
        if run["tests"]["failed"] or run["tests"]["error"]:
            raise SystemExit(f"{name}: not every test passed, so its rows are no evidence.")
    return runs


def number(value) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(head: tuple[str, ...], rows) -> list[str]:
    """A Markdown table; the cells of each row are strings or integers."""
    lines = ["| " + " | ".join(map(number, cells)) + " |" for cells in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def replayed(runs: dict[str, dict]) -> list[tuple]:
    """Rows of all runs: by set, then backend, then run."""
    rows = [
        (
            f"`{row['set']}`",
            f"`{row['backend']}`",
            run["versions"]["jax"],
            *(row[column] for column in ("cases", "outputs", "values", "rejections")),
            f"[{name}](#{anchor(name)})",
        )
        for name, run in runs.items()
        for row in run["recordings"]
    ]
    return sorted(rows)


def not_replayed(runs: dict[str, dict]) -> list[str]:
    """Sets and backends that no run of this page covers, with the command that would."""
    done = {(row["set"], row["backend"]) for run in runs.values() for row in run["recordings"]}
    sets = sorted(json.loads(MANIFEST.read_text()))
    lines = []
    for backend in ("auto", "reference"):
        if missing := [name for name in sets if (name, backend) not in done]:
            names = ", ".join(f"`{name}`" for name in missing)
            every = "-m 'exhaustive or not exhaustive'"
            command = f"python -m pytest tests/test_recordings.py {every} -k {backend!r}"
            lines += ["", f"In none of these runs: {names} by `{backend}`. These replay it all:"]
            lines += ["", "```sh", command, "```"]
    return lines


def anchor(name: str) -> str:
    """The anchor of the heading ``name``."""
    return name.replace(".", "")


def section(name: str, run: dict) -> list[str]:
    """One run: what was started, under which versions, and how it went."""
    versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
    tests = ", ".join(f"{count} {outcome}" for outcome, count in run["tests"].items())
    kernels = ", ".join(f"`{name}`" for name in run["kernels"])
    lines = ["", f"### {name}", "", "```sh", run["command"], "```", ""]
    used = run["agreement"] or any(row["backend"] == "auto" for row in run["recordings"])
    machine = f"{run['machine']}; its kernels, fastest first: {kernels}" if used else run["machine"]
    return [*lines, f"- {versions}", f"- {machine}", f"- tests: {tests}"]


def agreement(runs: dict[str, dict]) -> list[str]:
    """The agreement matrix of the runs that had one."""
    lines = []
    for name, run in runs.items():
        if not (rows := run["agreement"]):
            continue
        lines += ["", f"[{name}](#{anchor(name)}), jax {run['versions']['jax']}:", ""]
        lines += table(tuple(rows[0]), (tuple(row.values()) for row in rows))
        for reason, count in run["agreement skipped"].items():
            lines += ["", f"Skipped {count}: {reason}"]
    if not lines:
        return []
    return ["", "## Agreement", "", AGREEMENT, *lines]


def page(runs: dict[str, dict]) -> str:
    """The text of docs/validation.md."""
    head = ("set", "backend", "jax", "cases", "outputs", "values", "rejections", "run")
    lines = [HEAD, "## Recordings", "", *table(head, replayed(runs)), BACKENDS.rstrip()]
    lines += not_replayed(runs)
    lines += agreement(runs)
    lines += ["", "## Runs"]
    for name, run in runs.items():
        lines += section(name, run)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(read_runs()))
