"""docs/validation.md is what tools/write_validation.py makes of runs that replayed everything."""

import functools
import pathlib
import runpy

import agreement_census
import census_file
import numpy as np
import pytest
import recordings
import recordings_census

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = runpy.run_path(str(ROOT / "tools" / "write_validation.py"))
RUNS = TOOL["read_runs"]()


def test_the_page_is_generated():
    assert TOOL["PAGE"].read_text() == TOOL["page"](RUNS)


@functools.cache
def recorded(name: str) -> dict[str, int]:
    """The counts of a set that is replayed completely, from the recordings themselves."""
    if name in recordings.INSTRUCTION_SETS:
        cases = recordings.instruction_cases(name)
        bits, rejections = [case.d for case in cases], 0
    else:
        gemms = name in recordings.GEMM_SETS
        cases = recordings.gemm_cases(name) if gemms else recordings.call_cases()
        outputs = [output for case in cases for output in case.outputs]
        bits = [output.bits for output in outputs if output.bits is not None]
        rejections = len(outputs) - len(bits)
    counts = {"cases": len(cases), "outputs": len(bits), "rejections": rejections}
    return {**counts, "values": sum(int(np.size(b)) for b in bits)}


@pytest.mark.parametrize("name", RUNS)
def test_rows_count_what_is_recorded(name):
    for row in RUNS[name]["recordings"]:
        assert list(row) == list(recordings_census.COLUMNS)
        counts = {column: row[column] for column in ("cases", "outputs", "values", "rejections")}
        if (row["set"], row["backend"]) == ("h100_oracle", "reference"):  # one output per mode
            assert counts["cases"] == recordings.CASES["h100_oracle"]
        else:
            assert counts == recorded(row["set"].removesuffix(" (all)"))


def test_kernels_replayed_every_set_on_both_ends():
    replayed = {
        (run["versions"]["jax"], row["set"])
        for run in RUNS.values()
        for row in run["recordings"]
        if row["backend"] == "auto"
    }
    versions = {version for version, _ in replayed}
    assert "0.10.2" in versions
    assert len(versions) >= 2
    assert replayed == {(version, name) for version in versions for name in recordings.CASES}


def test_rows_of_the_agreement_matrix():
    rows = [row for run in RUNS.values() for row in run["agreement"]]
    assert all(list(row) == list(agreement_census.COLUMNS) for row in rows)
    assert all(row["values"] > 0 for row in rows)


@pytest.mark.parametrize("outcome", ["failed", "error"])
def test_a_run_that_failed_is_no_evidence(outcome, tmp_path):
    text = next((ROOT / "docs" / "validation").glob("kernels-*.json")).read_text()
    assert f'"{outcome}": 0' in text
    (tmp_path / "run.json").write_text(text.replace(f'"{outcome}": 0', f'"{outcome}": 1'))
    with pytest.raises(SystemExit, match="run: not every test passed"):
        TOOL["read_runs"](tmp_path)


def test_the_command_is_what_compares():
    arguments = ["-n", "auto", "-q", "tests/test_x.py", "-k", "a or b", "--census=x.json"]
    command = census_file.command_of([*arguments, "--census", "y", "-n2"])
    assert command == "python -m pytest tests/test_x.py -k 'a or b'"
