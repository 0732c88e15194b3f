"""Numerics studies: published claims recomputed, measures against exact fractions, refusals."""

import json
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax import plotting, studies
from mmaemu_jax.studies import __main__ as program

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def one(rows):
    (row,) = rows
    return row


# The published claims


def test_fourteen_bits():
    """arXiv 2412.19437, section 3.3.2: "limited to retaining around 14 bits"."""
    assert studies.retained_bits("fast") == studies.RetainedBits(14, 14, 14)
    assert studies.retained_bits("slow") == studies.RetainedBits(14, 14, 24)
    assert studies.retained_bits("float32") == studies.RetainedBits(24, 24, 24)
    assert studies.retained_bits("fast", "ada") == studies.RetainedBits(14, 14, 14)


def test_nearly_two_percent_at_4096():
    """The same section: K = 4096, random matrices, "a maximum relative error of nearly 2%"."""
    errors = {r.accumulation: r for r in studies.error_by_k([4096], m=256, n=256)}
    assert 0.014 < errors["fast"].largest_error < 0.02
    assert errors["slow"].largest_error < 0.001
    assert errors["float32"].largest_error < 1e-5


def test_biased_for_non_negative_data():
    for k, at_least in ((1024, 0.01), (4096, 0.05)):
        fast, slow = studies.error_by_k([k], "non-negative", accumulations=("fast", "slow"))
        assert fast.bias < -at_least
        # All of the error is bias: every output is too small by about the same share.
        assert abs(fast.bias) > 0.98 * fast.norm_error
        assert -0.001 < slow.bias < 0
    assert abs(one(studies.error_by_k([4096], accumulations=["fast"])).bias) < 0.001


def test_error_grows_with_k_in_fast_accumulation_alone():
    k = (256, 1024, 4096)
    fast = [r.norm_error for r in studies.error_by_k(k, accumulations=["fast"])]
    slow = [r.norm_error for r in studies.error_by_k(k, accumulations=["slow"])]
    assert fast == sorted(fast)
    assert fast[2] > 3 * fast[0]
    assert max(slow) < 1.2 * min(slow)


# The measures


def exact(x) -> list[list[Fraction]]:
    return [[Fraction(float(value)) for value in row] for row in np.asarray(x, np.float64)]


def test_measures_against_fractions():
    """A distribution that records what was drawn; the measures again, in exact arithmetic."""
    drawn = []

    def recording(rng, shape):
        drawn.append(448 * rng.integers(-8, 9, shape) / 8)
        drawn[-1][0, 0] = 448
        return drawn[-1]

    row = one(studies.error_by_k([48], recording, accumulations=["fast"], m=5, n=3))
    assert row.distribution == "recording"
    codes = [x.astype(np.float32).astype(E4M3) for x in drawn]
    a, b = (exact(x) for x in codes)
    sums = [[sum(x * y for x, y in zip(u, v, strict=True)) for v in b] for u in a]
    result = exact(mj.accumulate(*codes, use_fast_accum=True, splitk=1))
    error = [r - s for u, v in zip(result, sums, strict=True) for r, s in zip(u, v, strict=True)]
    flat = [s for u in sums for s in u]
    assert any(error), "the data must make fast accumulation err"
    size = sum(abs(s) for s in flat)
    along = sum(e if s > 0 else -e for e, s in zip(error, flat, strict=True) if s)
    assert row.bias == pytest.approx(float(along / size), rel=1e-12)
    square = sum(s * s for s in flat)
    assert row.norm_error**2 == pytest.approx(float(sum(e * e for e in error) / square), rel=1e-12)
    largest = max(abs(e) for e in error) ** 2 * len(flat) / square
    assert row.largest_error**2 == pytest.approx(float(largest), rel=1e-12)


@pytest.mark.parametrize(("fa", "fb"), [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)])
def test_exact_product(fa, fb):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 0x78, (3, 7), np.uint8).view(dtype) for dtype in (fa, fb))
    a[0] = a[0].view(np.uint8) % 4  # subnormals beside large values
    expected = [[sum(x * y for x, y in zip(u, v, strict=True)) for v in exact(b)] for u in exact(a)]
    assert exact(studies.exact_product(a, b)) == expected


def test_exact_product_refuses_what_float64_cannot_hold():
    wide = np.ones((1, 64), E5M2)
    wide[0, :2] = [57344, 2.0**-16]
    with pytest.raises(ValueError, match="more than 53 bits"):
        studies.exact_product(wide, wide)
    with pytest.raises(TypeError, match="FP8"):
        studies.exact_product(np.ones((1, 1)), wide)
    wide[0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        studies.exact_product(wide, wide)


def test_rows_repeat_and_do_not_depend_on_each_other():
    rows = studies.error_by_k((64, 256), "heavy-tailed", m=16, n=16, b_dtype="e5m2")
    assert rows == studies.error_by_k((64, 256), "heavy-tailed", m=16, n=16, b_dtype="e5m2")
    assert rows[4:] == studies.error_by_k((256,), "heavy-tailed", m=16, n=16, b_dtype="e5m2")
    assert rows != studies.error_by_k((64, 256), "uniform", m=16, n=16, b_dtype="e5m2")
    zero = studies.error_by_k((64,), lambda rng, shape: np.zeros(shape), m=2, n=2)
    assert {(r.norm_error, r.bias, r.differing_bf16) for r in zero} == {(0.0, 0.0, 0.0)}


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"k": [0]}, ValueError, "positive int"),
        ({"k": [16.0]}, ValueError, "positive int"),
        ({"k": [16], "distribution": "cauchy"}, ValueError, "non-negative"),
        ({"k": [16], "distribution": 3}, TypeError, "a name or a function"),
        ({"k": [16], "distribution": lambda rng, shape: np.ones(3)}, ValueError, "shape"),
        ({"k": [16], "accumulations": ["fp32"]}, ValueError, "float32"),
        ({"k": [16], "a_dtype": "float32"}, TypeError, "float8"),
        ({"k": [16], "profile": "h100"}, ValueError, "hopper"),
    ],
)
def test_refusals(arguments, error, match):
    with pytest.raises(error, match=match):
        studies.error_by_k(**arguments)
    with pytest.raises(ValueError, match="float32"):
        studies.retained_bits("fp32")


# Plots and the program


def test_plot_shows_the_rows(tmp_path):
    rows = studies.error_by_k((64, 256), accumulations=("fast", "slow"), m=16, n=16)
    figure = studies.plot_error_by_k(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    lines = {line.get_label(): line.get_xydata() for line in figure.axes[2].lines}
    for way in ("fast", "slow"):
        wanted = [(r.k, abs(r.bias)) for r in rows if r.accumulation == way]
        np.testing.assert_array_equal(lines[way], wanted)
    with pytest.raises(ValueError, match="no rows"):
        studies.plot_error_by_k([])


def test_without_matplotlib_the_numbers_are_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plotting, "have_matplotlib", lambda: False)
    monkeypatch.setattr(program, "error_by_k", lambda **_: studies.error_by_k([64], m=4, n=4))
    json_file = tmp_path / "rows.json"
    argv = ["--plot", str(tmp_path / "plot.png"), "--json", str(json_file)]
    assert program.main(argv) == 2
    printed = capsys.readouterr()
    assert "pip install matplotlib" in printed.err
    assert "non-negative data" in printed.out
    rows = [json.loads(line) for line in json_file.read_text().splitlines()]
    assert [r["accumulation"] for r in rows] == [*studies.ACCUMULATIONS] * 2
