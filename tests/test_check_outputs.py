"""check_outputs: recorded GEMMs against a profile, what explains them, and every way of failing."""

import dataclasses
import json
import re
import warnings

import ml_dtypes
import numpy as np
import pytest

import mmaemu_jax as mj
from mmaemu_jax import cli
from mmaemu_jax.data import load_evo2_projections
from mmaemu_jax.errors import (
    ExperimentalPresetWarning,
    MmaemuError,
    MmaemuWarning,
    UnsupportedFeatureError,
)
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.testing import assert_bitwise_equal, bits_of

BF16 = np.dtype(ml_dtypes.bfloat16)
M, N, K = 16, 32, 1024
SCALES = {"scale_a": np.float32(0.37), "scale_b": np.float32(1.3e-3)}


def operands(seed=0, k=K):
    """Normal data whose size changes every 128 elements, so that sums of parts do round."""
    rng = np.random.default_rng(seed)
    sizes = np.exp2(rng.integers(-6, 7, -(-k // 128))).repeat(128)[:k].astype(np.float32)
    return tuple(
        np.asarray(mj.quantize(rng.standard_normal((n, k), np.float32) * sizes, "e4m3"))
        for n in (M, N)
    )


def recorded(name="layer", *, k=K, as_run=(), **call):
    """A GEMM as some GPU would have returned it: ``call`` says how, ``as_run`` is what is noted."""
    a, b = operands(k=k)
    how = {"out_dtype": BF16, "use_fast_accum": True, "splitk": 1, "profile": "hopper", **call}
    result = mj.host.scaled_mm(a, b.T, *SCALES.values(), **how)
    noted = {"a": a, "b": b, "out": result, "use_fast_accum": True, **SCALES}
    noted |= {"scale_result": how.get("scale_result")}
    return mj.RecordedGemm(name, **{**noted, **dict(as_run)})


def only(gemm, *arguments, **options):
    (found,) = mj.check_outputs(gemm, *arguments, explain=True, **options).gemms
    return found


# What is equal


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"out_dtype": np.float32},
        {"out_dtype": np.float16, "profile": "ada", "splitk": (3, "pairwise")},
        {"out_dtype": E4M3.dtype, "scale_result": 3.0},
    ],
)
def test_equal_bits(call):
    gemm = recorded(**call)
    found = only(gemm, call.get("profile", "hopper"), call.get("splitk", 1))
    assert found.equal
    assert found.report.size == M * N
    assert (found.explanations, found.where, found.problem) == ((), "", None)


def test_evo2_on_its_gpu(tmp_path):
    """The shipped recordings of an RTX 4060, as files; another profile is explained by theirs."""
    for projection in load_evo2_projections():
        for out in projection.outputs:
            gemm = mj.RecordedGemm(
                projection.name, projection.a, projection.b, out.bits,
                out.scale_a, out.scale_b, out.use_fast_accum,
            )  # fmt: skip
            mj.write_gemm(gemm, tmp_path / f"{projection.name}-{out.out_dtype}.npz")
    report = mj.check_outputs(tmp_path, "ada", 1)
    assert report.equal
    assert len(report.gemms) == 6
    another = mj.check_outputs(tmp_path, "hopper", 1, explain=True)
    assert {g.explanations for g in another.gemms} == {("the arithmetic of preset 'ada'",)}
    assert not another.equal


def test_a_part_of_the_outputs_and_the_split_of_the_whole():
    """The table splits 16 x 2048 x 8192 in two; three rows and five columns of it are enough."""
    rng = np.random.default_rng(0)
    a, b = (
        np.asarray(mj.quantize(rng.standard_normal((n, 8192), np.float32), "e4m3", 64.0))
        for n in (16, 5)
    )
    whole = np.zeros((2048, 8192), E4M3.dtype)
    whole[:5] = b
    out = mj.host.scaled_mm(a, whole.T, 1.0, 1.0, out_dtype=BF16, use_fast_accum=True)
    part = {"a": a[:3], "b": b, "out": out[:3, :5], "scale_a": 1.0, "scale_b": 1.0}
    found = only(mj.RecordedGemm("part", **part, use_fast_accum=True, M=16, N=2048))
    assert found.equal
    assert (found.decision.S, found.decision.source, found.shape) == (2, "table", (16, 2048, 8192))


# What differs, and what explains it


@pytest.mark.parametrize(
    ("call", "explanation"),
    [
        ({"use_fast_accum": False}, "use_fast_accum=False"),
        ({"splitk": (3, "contiguous")}, "splitk=(3, 'contiguous')"),
        (
            {"splitk": (3, "contiguous"), "use_fast_accum": False},
            "use_fast_accum=False and splitk=(3, 'contiguous')",
        ),
        ({"profile": "ada"}, "the arithmetic of preset 'ada'"),
        (
            {"profile": "ada", "splitk": (2, "serial"), "use_fast_accum": False},
            "the arithmetic of preset 'ada' and use_fast_accum=False and splitk=(2, 'serial')",
        ),
    ],
)
def test_what_ran_instead(call, explanation):
    found = only(recorded(**call, out_dtype=np.float32), "hopper", 1)
    assert found.report.differing > 0
    assert found.explanations[0] == explanation


def test_what_is_published_of_blackwell_is_tried():
    """A GPU without a profile: no claim about it, but its owner learns whether the numbers fit."""
    gemm, k_tiles = recorded(), mj.SplitRule(128, False, ("contiguous",), False)
    published = mj.Preset("x", 32, 25, 23, -132, late_c=False, slow_chunk=128)
    profile = mj.Profile("x", published, k_tiles)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MmaemuWarning)
        out = mj.host.scaled_mm(
            gemm.a, gemm.b.T, *SCALES.values(), out_dtype=np.float32, use_fast_accum=True,
            splitk=(3, "contiguous"), profile=profile,
        )  # fmt: skip
    found = only(recorded(as_run={"out": out}), "hopper", 1)
    assert found.explanations[0] == (
        "32 products and 25 fraction bits, which MMA-Sim publishes for Blackwell and "
        "splitk=(3, 'contiguous')"
    )


def test_two_explanations_are_both_told():
    """At K = 256 slow accumulation and a split in two tiles of 128 are the same sums."""
    found = only(recorded(k=256, use_fast_accum=False), "hopper", 1)
    assert found.explanations == ("use_fast_accum=False", "splitk=(2, 'contiguous')")


A, B = operands()
INVERSE = {name: np.float32(1) / scale for name, scale in SCALES.items()}


@pytest.mark.parametrize(
    ("noted", "explanation"),
    [
        ({"a": A.view(E5M2.dtype)}, "a is e4m3"),
        ({"b": B.view(E5M2.dtype)}, "b is e4m3"),
        ({"scale_b": INVERSE["scale_b"]}, "scale_b inverted"),
        (INVERSE, "scale_a and scale_b inverted"),
        ({"bias": np.arange(N, dtype=np.float32).astype(BF16)}, "without the bias"),
    ],
)
def test_what_was_noted_wrongly(noted, explanation):
    assert only(recorded(as_run=noted), "hopper", 1).explanations == (explanation,)


def test_a_scale_that_was_not_used():
    gemm = recorded(out_dtype=E4M3.dtype, as_run={"scale_result": 3.0})
    assert only(gemm, "hopper", 1).explanations == ("scale_result is 1",)
    gemm = recorded(out_dtype=E4M3.dtype, scale_result=0.1, as_run={"scale_result": 1 / 0.1})
    assert only(gemm, "hopper", 1).explanations == ("scale_result inverted",)


def test_another_epilogue_is_left_to_classify():
    gemm = recorded(k=64, out_dtype=np.float32)
    rounded = gemm.out.view(np.uint32) & 0xFFFF0000  # a truncation to bfloat16
    gemm = recorded(k=64, as_run={"out": (rounded >> 16).astype(np.uint16).view(BF16)})
    assert only(gemm, "hopper", 1).explanations == ("rounding truncate",)


def test_a_bug_is_located():
    out = recorded().out.copy()
    out[3, 5:7] = 1e30
    found = only(recorded(as_run={"out": out}), "hopper", 1)
    assert (found.explanations, found.where) == ((), "all in row 3, columns 5 to 6")
    assert found.report.differing == 2


def test_a_bias_is_experimental():
    bias = np.linspace(-3, 3, N).astype(BF16)
    plain = recorded(out_dtype=np.float32)
    exact = plain.out.astype(np.float64) + bias.astype(np.float64)
    # The product is not rounded on its own, so some sums are an ulp of float32 away.
    gemm = recorded(as_run={"out": exact.astype(np.float32).astype(BF16), "bias": bias})
    found = only(gemm, "hopper", 1)
    assert found.report.differing <= 1
    assert found.notices[-1].category is ExperimentalPresetWarning
    with pytest.raises(UnsupportedFeatureError, match="bias"):
        mj.scaled_mm(gemm.a, gemm.b.T, 1.0, 1.0, bias, out_dtype=BF16)


# What cannot be compared


def test_problems_are_rows(tmp_path):
    good, e5m2 = recorded("good"), recorded("e5m2", as_run={"a": A.view(E5M2.dtype)})
    both = mj.RecordedGemm("both", e5m2.a, e5m2.a, np.zeros((M, M), BF16), 1.0, 1.0, True)
    report = mj.check_outputs([good, both, tmp_path / "none.npz"], "hopper")
    assert [g.name for g in report.problems] == ["both", "none"]
    assert "float8_e5m2 times float8_e5m2 is not supported" in report.problems[0].problem
    assert "No such file" in report.problems[1].problem
    assert str(report).splitlines()[-2].startswith("1 of 3 GEMMs have the bits of profile 'hopper'")


def test_empty_gemms_are_zeros():
    """R15: an expert without a token is no problem."""
    no_token = mj.RecordedGemm("M", A[:0], B, np.zeros((0, N), BF16), 1.0, 1.0, True)
    out = np.zeros((M, N), BF16)
    no_feature = mj.RecordedGemm("K", A[:, :0], B[:, :0], out, 1.0, 1.0, True)
    assert mj.check_outputs([no_token, no_feature]).equal
    out[3, 5] = -0.0
    report = mj.check_outputs(dataclasses.replace(no_feature, out=out))
    assert report.differing[0].report.kinds["zero sign"] == 1
    assert "nothing to multiply" in str(report)


def test_an_unknown_split_is_a_problem_on_request():
    gemm = recorded(as_run={"M": 17})
    found = only(gemm, "hopper", "table")
    assert "split" in found.problem
    assert only(gemm, "hopper").decision.source == "assumed"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scale_a": np.ones((M, 1), np.float32)}, "not modelled, one for each tensor.*accumulate"),
        ({"scale_a": np.float64(1) * np.ones(1)}, "scale_a must be float32, got float64"),
        ({"out": np.zeros((M, N), np.float64)}, "out must be one of float32, bfloat16"),
        ({"out": np.zeros((N, M), BF16)}, "do not fit"),
        ({"a": A[0]}, "do not fit"),
        ({"a": A.astype(np.float32)}, "a must be float8_e4m3fn or float8_e5m2"),
        ({"bias": np.zeros(N + 1, BF16)}, "bias must be .* with N = 32"),
        ({"M": M - 1}, "M = 15, but there are 16"),
        ({"use_fast_accum": "yes"}, "must be a bool"),
    ],
)
def test_refused_recordings(changes, error):
    with pytest.raises((TypeError, ValueError, UnsupportedFeatureError), match=error):
        recorded(as_run=changes)


# Files


def stored(**changes):
    """What numpy alone writes on the machine of the GPU."""
    gemm = recorded()
    members = {
        "a": bits_of(gemm.a), "a_dtype": "torch.float8_e4m3fn", "b": bits_of(gemm.b),
        "b_dtype": "e4m3", "out": bits_of(gemm.out), "out_dtype": "bfloat16",
        "use_fast_accum": True, **SCALES, **changes,
    }  # fmt: skip
    return {name: value for name, value in members.items() if value is not None}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"out": bits_of(recorded().out).view(np.int16)},
        {"out": bits_of(recorded().out).view(np.uint8)},  # [M, 2 N]: torch's view(torch.uint8)
        {"out": recorded().out},  # numpy stores it as two nameless bytes
        {"b": np.ascontiguousarray(bits_of(B).T), "b_layout": "kn"},
        {"scale_a": np.full((1, 1), SCALES["scale_a"])},
    ],
)
def test_layouts(tmp_path, changes):
    np.savez(tmp_path / "x.npz", **stored(**changes))
    gemm, wanted = mj.read_gemm(tmp_path / "x.npz"), recorded()
    assert gemm.name == "x"
    for name in ("a", "b", "out"):
        assert_bitwise_equal(getattr(gemm, name), getattr(wanted, name))
    assert mj.check_outputs(tmp_path, "hopper", 1).equal


def test_written_and_read(tmp_path):
    gemm = recorded("a/b", as_run={"bias": np.ones(N, BF16), "M": 99}, out_dtype=E4M3.dtype,
                    scale_result=0.5)  # fmt: skip
    mj.write_gemm(gemm, tmp_path / "deep" / "x.npz")
    again = mj.read_gemm(tmp_path / "deep" / "x.npz")
    assert (again.name, again.M, again.N, again.use_fast_accum) == ("a/b", 99, N, True)
    for name in ("a", "b", "out", "bias", "scale_a", "scale_b", "scale_result"):
        assert_bitwise_equal(getattr(again, name), getattr(gemm, name))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"scale_a": None}, "lacks scale_a. Ways out: needed: a, b"),
        ({"use_fast_acum": True}, "has unknown use_fast_acum"),
        ({"a": np.array([None])}, "is not an .npz of plain arrays"),
        ({"a_dtype": "float8_e4m3fnuz"}, "a_dtype must be float8_e4m3fn or float8_e5m2"),
        ({"a": np.zeros((M, K), np.uint16)}, "does not hold the bits of float8_e4m3fn"),
        ({"out": np.zeros((M, 2 * N + 1), np.uint8)}, "does not hold the bits of bfloat16"),
        ({"out": np.zeros((M, N), np.float32)}, "does not hold the bits of bfloat16"),
        ({"b_layout": "nn"}, "unknown b_layout 'nn'; known: nk, kn"),
    ],
)
def test_refused_files(tmp_path, changes, error):
    np.savez(tmp_path / "x.npz", **stored(**changes))
    with pytest.raises((TypeError, ValueError), match=error):
        mj.read_gemm(tmp_path / "x.npz")
    (found,) = mj.check_outputs(tmp_path, "hopper").problems
    assert re.search(error, found.problem)


def test_no_archive(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK or not")
    with pytest.raises(ValueError, match=r"x\.npz is not an \.npz"):
        mj.read_gemm(tmp_path / "x.npz")
    np.save(tmp_path / "y.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"y\.npy is not an \.npz"):
        mj.read_gemm(tmp_path / "y.npy")


# The command


@pytest.fixture
def folder(tmp_path):
    for number, gemm in enumerate(
        (recorded("up"), recorded("down", use_fast_accum=False, out_dtype=np.float32))
    ):
        mj.write_gemm(gemm, tmp_path / f"{number}-{gemm.name}.npz")
    return tmp_path


def test_command(folder, capsys):
    assert cli.main(["check", str(folder / "0-up.npz"), "--splitk", "1"]) == 0
    assert "1 of 1 GEMMs have the bits of profile 'hopper'" in capsys.readouterr().out
    assert cli.main(["check", str(folder), "--profile", "hopper"]) == 1
    text = capsys.readouterr().out
    assert re.search(r"^0-up  +e4m3xe4m3->bf16 fast  +16 x 32 x 1024 .* 512 +0 +0$", text, re.M)
    assert "--explain" in text
    assert cli.main(["check", str(folder), "--explain"]) == 1
    assert "    explained by use_fast_accum=False (so does splitk=(8, " in capsys.readouterr().out


def test_warnings_are_told_once(folder, capsys):
    mj.check_outputs(folder, "hopper")  # warnings are errors in these tests: none is issued
    text = str(mj.check_outputs(folder, "hopper"))
    assert re.findall(r"^(\w+Warning \(. GEMMs\)): ", text, re.M) == [
        "UnverifiedSplitWarning (2 GEMMs)"
    ]


def test_command_prints_what_the_report_does(folder, capsys):
    cli.main(["check", str(folder), "--explain"])
    report = mj.check_outputs(folder, explain=True)
    assert capsys.readouterr().out == f"{report}\n"
    cli.main(["check", str(folder), "--explain", "--json"])
    assert json.loads(capsys.readouterr().out) == report.to_dict()


def test_command_on_bad_input(folder, capsys):
    (folder / "2-bad.npz").write_bytes(b"")
    assert cli.main(["check", str(folder)]) == 2
    text = capsys.readouterr().out
    assert "2-bad   not compared: read_gemm: " in text
    assert "1 of 3 GEMMs" in text
    (folder / "none").mkdir()
    assert cli.main(["check", str(folder / "none")]) == 2
    assert "there is no .npz in" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["check", str(folder), "--profile", "nope"])


@pytest.mark.parametrize("argument", [3, [None]])
def test_arguments(argument):
    with pytest.raises(TypeError):
        mj.check_outputs(argument)


def test_option_values(tmp_path):
    with pytest.raises(ValueError, match="unknown splitk"):
        mj.check_outputs([], splitk="some")
    with pytest.raises(TypeError, match="explain must be a bool"):
        mj.check_outputs([], explain="yes")
    with pytest.raises(MmaemuError, match=r"no \.npz"):
        mj.check_outputs(tmp_path)
