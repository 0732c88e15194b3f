"""What identify is built of: plans, evaluation, separating operands, explanations, the command."""

import dataclasses
import json
import sys

import ml_dtypes
import numpy as np
import pytest
from black_boxes import member_gemm

import mmaemu_jax as mj
from mmaemu_jax import cli
from mmaemu_jax.accumulate import (
    CONTIGUOUS_128,
    INTERLEAVED_64,
    AccumulationPlan,
    SplitK,
    make_plan,
)
from mmaemu_jax.errors import UnsupportedFeatureError
from mmaemu_jax.formats import E4M3, E5M2
from mmaemu_jax.identify import (
    Arithmetic,
    Epilogue,
    Interface,
    Member,
    Parts,
    Plan,
    classify,
    family_of,
    member_of,
    profile_member,
    separate,
)
from mmaemu_jax.identify.absorbed import absorbed
from mmaemu_jax.identify.conclude import neighbours
from mmaemu_jax.identify.equivalence import canonical
from mmaemu_jax.identify.evaluate import Operands, accumulators
from mmaemu_jax.identify.output import Extras, output_bits
from mmaemu_jax.identify.parts import combination
from mmaemu_jax.identify.plan import fingerprint
from mmaemu_jax.identify.questions import Layout
from mmaemu_jax.identify.triples import draw_triples, small_exponent, triple_probes
from mmaemu_jax.testing import assert_bitwise_equal, families, operands

F32 = np.dtype(np.float32)
PLANS = {
    "fast": (True, SplitK(1), None),
    "slow": (False, SplitK(1), None),
    "pairwise": (False, SplitK(5, "pairwise"), INTERLEAVED_64),
    "serial": (True, SplitK(4, "serial"), INTERLEAVED_64),
    "contiguous": (False, SplitK(2, "contiguous"), CONTIGUOUS_128),
}

# Evaluation in numpy against the C++ kernels.


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("preset", ["ada", "hopper", "b200_mma_sync"])
def test_evaluation_has_the_kernels_bits(preset, name):
    fast, split, rule = PLANS[name]
    model = mj.get_preset(preset).model
    plan = make_plan(fast, split, rule, 128)
    member = member_of(model, plan)
    for family in families():
        for formats in ((E4M3, E4M3), (E5M2, E5M2)):
            a, b = operands(family, *formats, 9, 11, 333, 4)
            acc = accumulators(member.plan, (member.arithmetic,), Operands.of(formats, a, b, False))
            desired = mj.host.gemm(*map(_view, (a, b), formats), model=model, plan=plan, threads=1)
            actual = acc[0].astype(np.float32).reshape(desired.shape)
            assert_bitwise_equal(actual, desired, err_msg=family)


def _view(codes, fmt):
    return codes.view(fmt.dtype)


@pytest.mark.parametrize(
    "out", [np.float32, ml_dtypes.bfloat16, np.float16, E4M3.dtype, E5M2.dtype]
)
def test_epilogue_has_the_kernels_bits(out):
    a, b = operands("uniform", E4M3, E4M3, 20, 30, 64, 2)
    model = mj.get_preset("hopper").model
    scales = np.float32(0.0123), np.float32(-3.7)
    scale_result = np.float32(0.3) if np.dtype(out).itemsize == 1 else None
    given = {"model": model, "out_dtype": out, "threads": 1}
    desired = mj.host.gemm(_view(a, E4M3), _view(b, E4M3), *scales, scale_result, **given)
    member = member_of(model, AccumulationPlan())
    pairs = Operands.of((E4M3, E4M3), a, b, False)
    acc = accumulators(member.plan, (member.arithmetic,), pairs)[0]
    bits = output_bits(acc, Epilogue(), np.dtype(out), Extras(*scales, scale_result), False)
    assert_bitwise_equal(bits.view(out).reshape(20, 30), desired)


def test_a_floor_that_products_reach_is_refused():
    with pytest.raises(UnsupportedFeatureError, match="min_exp"):
        member_of(mj.Preset("x", 32, 13, 13, -10).model, AccumulationPlan())


# Trees of additions.


def test_absorption_is_what_evaluation_does():
    """The rule by which plans are searched, on random plans with random steps."""
    formats = (E4M3, E4M3)
    family = family_of(Interface(formats, F32))
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(40):
        member = family.draw(rng)
        if member.arithmetic.add in ("f64", "exact"):
            continue
        k = int(rng.integers(64, 700))
        layout = Layout.of([(48, 48, k), (1, 48, k), (48, 4, k)][int(rng.integers(3))])
        triples = draw_triples(rng, layout, k)
        small = small_exponent(formats, -149)
        pairs = triple_probes(formats, triples, layout, small).operands(formats, k)
        acc = accumulators(member.plan, (member.arithmetic,), pairs)[0]
        lost = absorbed([member.plan], k, triples)[0]
        assert ((acc != 2.0 ** sum(small)) == lost).all(), member
        seen.update(lost.tolist())
    assert seen == {True, False}


def test_fingerprints_are_equal_for_equal_trees():
    block = Plan(32)
    assert fingerprint(block, 128) != fingerprint(Plan(64), 128)
    assert fingerprint(block, 32) == fingerprint(Plan(0), 32)
    restarted = dataclasses.replace(block, restart=Parts(0, 128))
    split = dataclasses.replace(block, split=Parts(4, 128))
    assert fingerprint(restarted, 512) == fingerprint(split, 512)
    assert fingerprint(restarted, 513) != fingerprint(split, 513)
    first = dataclasses.replace(block, restart=Parts(0, 128, residue="first"))
    assert fingerprint(first, 512) == fingerprint(restarted, 512)
    assert fingerprint(first, 500) != fingerprint(restarted, 500)


def test_a_block_is_as_large_as_its_chain():
    """Restarts every 32 make one block per chain a block of 32, with the same result bits."""
    interface, shapes = Interface((E4M3, E4M3), F32), [(8, 8, 256)]
    step = Arithmetic(11, "nearest", 22, "nearest")
    whole = Member(Plan(0, restart=Parts(0, 32)), step)
    blocks = Member(Plan(32, late=True), dataclasses.replace(step, frac_out=23))
    assert canonical(whole, interface, shapes) == canonical(blocks, interface, shapes)
    other = Member(blocks.plan, dataclasses.replace(step, frac_out=12))
    assert canonical(other, interface, shapes) != canonical(blocks, interface, shapes)


def test_orders_of_combination():
    def text(combine, n):
        folds, rank = combination(combine, n)
        parts = [str(i) for i in range(n)]
        for fold in folds:
            sums = [[] for _ in range(fold.max() + 1)]
            for part, index in zip(parts, fold, strict=True):
                sums[index].append(part)
            parts = [s[0] if len(s) == 1 else f"({'+'.join(s)})" for s in sums]
        return "+".join(parts[i] for i in np.argsort(rank))

    assert text("serial", 3) == "0+1+2"
    assert text("halves", 5) == "(((0+3)+2)+(1+4))"
    assert text("neighbours", 5) == "(((0+1)+(2+3))+4)"
    assert text("pairwise", 3) == "2+0+1"  # R12
    assert text("pairwise", 5) == "4+(0+3)+1+2"


# Operands that separate.


@pytest.mark.parametrize("out", [np.float32, ml_dtypes.bfloat16])
def test_separate_finds_operands_for_neighbours(out):
    member = profile_member("hopper", use_fast_accum=False)
    interface = Interface((E4M3, E4M3), np.dtype(out))
    found = 0
    for change, other in [*neighbours(member, family_of(interface))][::3]:
        if other.epilogue != member.epilogue:
            continue
        separation = separate(member, other, k=512, out_dtype=out, count=3)
        if separation is None:
            continue
        found += 1
        for i in range(len(separation.a)):
            a, b = separation.a[i : i + 1], separation.b[i : i + 1].T
            for model, bits in ((member, separation.bits_a), (other, separation.bits_b)):
                got = member_gemm(model, interface)(a, b).view(bits.dtype)
                assert got[0, 0] == bits[i], change
        assert (separation.bits_a != separation.bits_b).all()
    assert found > 12


def test_separate_says_that_there_is_nothing():
    assert separate("hopper", "hopper") is None
    slow = ("hopper", AccumulationPlan(chunk_k=128))
    assert separate("hopper", slow, k=128) is None
    assert separate("hopper", slow, k=256) is not None
    assert separate("hopper", slow, k=2) is None
    assert separate("hopper", "ada", k=1) is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"k": 0}, ValueError),
        ({"out_dtype": np.float64}, ValueError),
        ({"formats": "x"}, TypeError),
    ],
    ids=str,
)
def test_separate_refuses(options, error):
    with pytest.raises(error, match="separate"):
        separate("hopper", "ada", **options)
    with pytest.raises(TypeError, match="separate"):
        separate("hopper", 3)
    with pytest.raises(ValueError, match="separate"):
        separate("hopper", "volta")


# Explanations of differences.


def product(name, **changes):
    member = profile_member("hopper", use_fast_accum=False)
    for part, values in changes.items():
        own = dataclasses.replace(getattr(member, part), **values)
        member = dataclasses.replace(member, **{part: own})
    return name, member


DIFFERENCES = dict(
    [
        product("without restart every 128", plan={"restart": Parts()}),
        product("restart every 64", plan={"restart": Parts(0, 64)}),
        product("split-K 3 (interleaved tiles of 64, serial)", plan={"split": Parts(3, 64, True)}),
        product("14 bits truncate", arithmetic={"frac": 14}),
        product("via once", epilogue={"via": "once"}),
        product("scales a then b", epilogue={"scales": "a then b"}),
    ]
)


def just_above_a_tie(accumulator: float) -> np.float32:
    """A scale by which the product lies above a tie of bfloat16, and its float32 on it."""
    for numerator in range(257, 512, 4):
        tie = numerator / 256
        scale = np.float32(tie / accumulator)
        product = accumulator * float(scale)
        if product > tie and np.float32(product) == tie:
            return scale
    raise AssertionError("there is one")


@pytest.mark.parametrize("change", DIFFERENCES)
def test_classify(change):
    expected = profile_member("hopper", use_fast_accum=False)
    out = ml_dtypes.bfloat16 if change == "via once" else np.float32
    interface = Interface((E4M3, E4M3), np.dtype(out), ("scale_a", "scale_b"))
    a, b = operands("randn", E4M3, E4M3, 24, 32, 768, 7)
    scales = {"scale_a": np.float32(0.1234567), "scale_b": np.float32(1.7654321)}
    if change == "via once":
        a[:], b[:] = 0, 0
        a[:, 0], b[:, 0] = 0x3C, 0x38  # 1.5 times 1
        scales = {"scale_a": just_above_a_tie(1.5), "scale_b": np.float32(1)}
    a, b = a.view(E4M3.dtype), b.view(E4M3.dtype)
    seen = member_gemm(DIFFERENCES[change], interface)(a, b.T, **scales)
    found = classify(a, b, seen, expected, **scales)
    assert found.differing > 0
    assert change in [e.change for e in found.explanations], str(found)
    best = found.explanations[0]
    assert best.explained == min(found.differing, 256)
    assert best.broken == 0
    assert best.change in str(found)
    assert len(str(found).splitlines()) < 12


def test_classify_finds_nothing_to_explain():
    a, b = operands("randn", E4M3, E4M3, 8, 8, 96, 1)
    a, b = a.view(E4M3.dtype), b.view(E4M3.dtype)
    seen = mj.host.accumulate(a, b, use_fast_accum=True, splitk=1)
    assert classify(a, b.T, seen, "hopper", b_layout="kn").differing == 0
    seen.view(np.uint32)[3, 4] ^= 1 << 20
    found = classify(a, b, seen, "hopper")
    assert (found.differing, found.explanations) == (1, ())
    assert "no change of the model" in str(found)
    with pytest.raises(ValueError, match="classify"):
        classify(a, b[:, 1:], seen, "hopper")
    with pytest.raises(ValueError, match=r"classify.*b_layout"):
        classify(a, b, seen, "hopper", b_layout="mn")
    with pytest.raises(ValueError, match=r"classify.*seen"):
        classify(a, b, seen.astype(np.float64), "hopper")


# The command.


def test_command_native(capsys):
    assert cli.main(["identify", "--native", "--shape", "32x32x256"]) == 0
    captured = capsys.readouterr()
    assert "IEEE additions (f32)" in captured.out
    assert "plans explain" in captured.err


def test_command_with_a_function(capsys, tmp_path, monkeypatch):
    (tmp_path / "given_gemm.py").write_text(
        "import mmaemu_jax as mj\n"
        "def fast(a, b):\n"
        "    return mj.host.accumulate(a, b, use_fast_accum=True, profile='ada', splitk=1)\n"
        "value = 3\n"
        "def wants_e5m2(a, b):\n"
        "    raise RuntimeError('give me e5m2')\n"
    )
    monkeypatch.chdir(tmp_path)
    argv = ["identify", "given_gemm:fast", "--b-layout", "nk", "--shape", "48x48x256", "--json"]
    assert cli.main(argv) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["classes"][0]["members"][0]["plan"]["block"] == 16
    for target in ("given_gemm", "given_gemm:nope", "no_such_module:f", "given_gemm:value"):
        assert cli.main(["identify", target]) == 2
        assert target in capsys.readouterr().err
    assert cli.main(["identify", "given_gemm:wants_e5m2", "--shape", "4x6x8"]) == 2
    error = capsys.readouterr().err
    assert "give me e5m2" in error
    assert "raised RuntimeError for float8_e4m3fn[4, 8], float8_e4m3fn[8, 6]" in error
    sys.modules.pop("given_gemm")


@pytest.mark.parametrize(
    "argv", [[], ["x:y", "--native"], ["--native", "--shape", "3x4"], ["--native", "--a", "e3m4"]]
)
def test_command_usage(argv):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["identify", *argv])
    assert stopped.value.code == 2


def test_command_refuses_an_output_dtype(capsys):
    assert cli.main(["identify", "--native", "--out", "nope"]) == 2
    assert "--out" in capsys.readouterr().err


def test_member_is_data():
    member = profile_member("ada", use_fast_accum=False, split=SplitK(7, "pairwise"))
    assert Member.from_dict(json.loads(json.dumps(member.to_dict()))) == member
    assert str(member).startswith(
        "split-K 7 (interleaved tiles of 64, pairwise), restart every 128"
    )
