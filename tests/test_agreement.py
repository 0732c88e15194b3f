"""One matrix: every implementation gives the same bits on every model, plan, format and output.

All are compared with the portable kernel, which is the normative header in a loop. CI takes each
implementation's own share of the cells (implementations.py) and a few outputs of each, in turn;
``pytest -m exhaustive tests/test_agreement.py`` takes every cell, output and several seeds. The
summary of a run tells what was compared and what was skipped.
"""

import functools
import pathlib

import agreement_census
import pytest
from agreement_cells import (
    ALL,
    COSTLY,
    EVERY,
    MODELS,
    OUTPUTS,
    PLANS,
    VALIDATED,
    Cell,
    Output,
    Problem,
)
from gemms import FORMAT_PAIRS
from implementations import Implementation, implementations, run_backend

from mmaemu_jax import _native
from mmaemu_jax.testing import assert_bitwise_equal

IMPLEMENTATIONS = implementations()
OUTPUTS_PER_CELL = 3


@functools.lru_cache(maxsize=4)
def problem_and_answer(cell: Cell, outputs: tuple[Output, ...], seed: int, shape=None):
    problem = Problem(cell, seed, shape)
    return problem, run_backend("cpu:scalar", problem, outputs)


def compare(row: Implementation, cell: Cell, outputs, seed: int, shape=None) -> int:
    """Asserts agreement; returns how many values were compared."""
    problem, answers = problem_and_answer(cell, outputs, seed, shape)
    results = row.run(problem, outputs)
    for output, result, answer in zip(outputs, results, answers, strict=True):
        assert_bitwise_equal(result, answer[row.part], err_msg=f"{cell}, {output}, seed {seed}:")
    return sum(result.size for result in results)


def matrix(cells):
    """Cell by cell, so that one answer serves all implementations."""
    return [
        pytest.param(row, cell, id=f"{row.name}-{cell}")
        for cell in cells
        for row in IMPLEMENTATIONS
        if cell in row.cells or cells is ALL
    ]


def skip_if_unavailable(row: Implementation) -> None:
    if row.why_not:
        pytest.skip(f"{row.name}: {row.why_not}")


@pytest.mark.parametrize(("row", "cell"), matrix(EVERY))
def test_agreement(row, cell, record_property):
    skip_if_unavailable(row)
    outputs = cell.outputs(OUTPUTS_PER_CELL if row.cells is EVERY else 1)
    compared = compare(row, cell, outputs, seed=0)
    record_property("agreement", agreement_census.row(row.name, cell, outputs, compared))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("row", "cell"), matrix(ALL))
def test_agreement_everywhere(row, cell, record_property):
    skip_if_unavailable(row)
    compared = sum(compare(row, cell, OUTPUTS, seed) for seed in range(1, 4))
    record_property("agreement", agreement_census.row(row.name, cell, OUTPUTS, compared))


@pytest.mark.exhaustive
@pytest.mark.parametrize("cell", [c for c in COSTLY if c.model_name in VALIDATED], ids=str)
def test_kernels_on_several_tiles(cell):
    for row in IMPLEMENTATIONS:
        if row.name.startswith("cpu:") and not row.why_not:
            compare(row, cell, cell.outputs(1), seed=4, shape=(70, 530, 1450))


def test_every_row_has_its_share():
    for row in IMPLEMENTATIONS:
        assert {cell.model_name for cell in row.cells} == set(MODELS)
        assert {cell.plan_name for cell in row.cells} == set(PLANS)
        assert {(cell.fmt_a, cell.fmt_b) for cell in row.cells} == set(FORMAT_PAIRS)
        assert {output for cell in row.cells for output in cell.outputs(1)} == set(OUTPUTS)


def test_no_kernel_is_skipped_where_avx512_is():
    """A processor with AVX-512 and its byte extensions runs every kernel, and all were built."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    flags = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    if not {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        pytest.skip("this processor has no AVX-512")
    if not {"avx512vbmi", "avx512_bitalg", "avx512_vnni", "gfni"} <= flags:
        pytest.skip("this processor has no AVX-512 VBMI, BITALG, VNNI or GFNI")
    kernels = {row.name: row.why_not for row in IMPLEMENTATIONS if row.name.startswith("cpu:")}
    names = ("avx512_vbmi", "avx512", "avx2", "scalar")
    assert kernels == {f"cpu:{name}": "" for name in names}
    assert all(usable for _, usable, _ in _native.cpu_targets())
