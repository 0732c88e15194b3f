"""compare: equal bits when repeated and when resumed, what it measures, what it refuses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_training as toy

import mmaemu_jax as mj
from mmaemu_jax.training import Variant, compare, float32_dot_general, fp8_dot_general
from mmaemu_jax.training.comparison import report
from mmaemu_jax.training.comparison.checkpoint import load_state, save_state
from mmaemu_jax.training.comparison.checksum import checksum

SHORT = {**toy.PROBLEM, "steps": 6, "seeds": (0, 3), "progress": None}


def lines_of(comparison, kind, **fields):
    return [
        line
        for line in comparison.lines
        if line["kind"] == kind and all(line[name] == fields[name] for name in fields)
    ]


@pytest.fixture(scope="module", autouse=True)
def _no_plots():
    """Drawing takes seconds; test_compare_page looks at plots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "have_matplotlib", lambda: False)
        yield


@pytest.fixture(scope="module")
def emulated():
    """An H100's arithmetic against XLA's, uninterrupted."""
    return compare(toy.train_step, toy.VARIANTS, **SHORT)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """An uninterrupted comparison and its directory."""
    directory = tmp_path_factory.mktemp("plain")
    return compare(toy.train_step, toy.PLAIN, **SHORT, save_every=2, directory=directory)


# Repeating and resuming


def test_repeating_gives_the_same_lines(emulated):
    again = compare(toy.train_step, toy.VARIANTS, **SHORT)
    assert again.lines == emulated.lines
    assert again.directory is None


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("calls", [6, 19, 29])
def test_resuming_gives_the_same_files(plain, tmp_path, calls):
    """Broken off in a first run, in a later one, and between the probes."""
    left = calls

    def batches(seed, step):
        nonlocal left
        left -= 1
        if left == 0:
            raise Interrupted
        return toy.batches(seed, step)

    options = {**SHORT, "save_every": 2, "directory": tmp_path}
    with pytest.raises(Interrupted):
        compare(toy.train_step, toy.PLAIN, **{**options, "batches": batches})
    assert not (tmp_path / "metrics.jsonl").exists()
    steps_done = []

    def counted(seed, step):
        steps_done.append((seed, step))
        return toy.batches(seed, step)

    compare(toy.train_step, toy.PLAIN, **{**options, "batches": counted}, resume=True)
    for name in ("metrics.jsonl", "config.json", "index.html"):
        assert (tmp_path / name).read_bytes() == (plain.directory / name).read_bytes(), name
    assert not (tmp_path / "states").exists()
    assert len(steps_done) < 2 + 4 * 6 + 3, "nothing was taken from the interrupted run"


def test_a_finished_comparison_can_be_loaded_and_resumed(plain):
    loaded = mj.training.load_comparison(plain.directory)
    assert (loaded.lines, loaded.config) == (plain.lines, plain.config)
    options = {**SHORT, "save_every": 2, "directory": plain.directory, "resume": True}
    assert compare(toy.train_step, toy.PLAIN, **options).lines == plain.lines


@pytest.mark.parametrize(
    "leaf",
    [
        np.float32([1.5, -0.0]),
        np.array([np.nan, 1], jnp.bfloat16),
        np.array([[0x80, 1]], np.uint8).view(jnp.float8_e4m3fn),
        np.int32([[1], [-2]]),
        np.bool_([True, False, True]),
    ],
    ids=lambda leaf: leaf.dtype.name,
)
def test_states_are_kept_bit_for_bit_and_summed(leaf, tmp_path):
    state = {"x": jnp.asarray(leaf), "key": jax.random.key(7), "count": 3}
    save_state(tmp_path / "state.npz", state, [{"a": 1}])
    restored, lines = load_state(tmp_path / "state.npz", state)
    assert lines == [{"a": 1}]
    assert restored["count"] == 3
    mj.testing.assert_bitwise_equal(restored["x"], state["x"])
    assert (jax.random.key_data(restored["key"]) == jax.random.key_data(state["key"])).all()
    sums = np.asarray(checksum(state))
    assert (sums == np.asarray(jax.jit(checksum)(restored))).all()
    flipped = leaf.copy()
    flipped.view(np.uint8).reshape(-1)[-1] ^= 1
    swapped = np.roll(leaf, 1) if leaf.dtype != bool else leaf[::-1] ^ True
    for changed in (flipped, swapped):
        other = np.asarray(checksum({**state, "x": jnp.asarray(changed)}))
        assert (other != sums).all()
    with pytest.raises(ValueError, match="another program"):
        load_state(tmp_path / "state.npz", {**state, "x": jnp.zeros((9, 9))})


# What is measured


def test_step_lines_are_the_losses_of_the_runs(emulated):
    for name, variant in (("xla", jax.lax.dot_general), ("hopper", toy.FP8)):
        step = jax.jit(functools.partial(toy.train_step, dot_general=variant))
        state = toy.init(3)
        for line in lines_of(emulated, "step", variant=name, seed=3):
            state, value = step(state, toy.batches(3, line["step"]))
            assert line["loss"] == float(value)
            assert line["loss_bits"] == f"{int(np.asarray(value).view(np.uint32)):08x}"


def test_gradient_lines_against_direct_gradients(emulated):
    step = jax.jit(functools.partial(toy.train_step, dot_general=jax.lax.dot_general))
    gradients = [
        jax.jit(jax.grad(functools.partial(toy.loss, dot_general=dot)))
        for dot in (toy.FP8, jax.lax.dot_general)
    ]
    state, probed = toy.init(0), set()
    for at in range(6):
        batch = toy.batches(0, at)
        for line in lines_of(emulated, "gradient", leaf="['second']", step=at):
            ours, reference = (
                np.asarray(gradient(state[0], batch)["second"], np.float64).ravel()
                for gradient in gradients
            )
            cosine = ours @ reference / np.linalg.norm(ours) / np.linalg.norm(reference)
            assert line["cosine"] == pytest.approx(cosine, abs=1e-12)
            assert line["one_minus_cosine"] == pytest.approx(1 - cosine, rel=1e-6)
            apart = np.linalg.norm(ours - reference) / np.linalg.norm(reference)
            assert line["relative_difference"] == pytest.approx(apart, rel=1e-12)
            probed.add(at)
        state, _ = step(state, batch)
    assert probed == {0, 3, 5}


def test_gemm_lines_against_direct_calls(emulated):
    """The first layer before step 0: its operands are the batch and the initial parameters."""
    x, _ = toy.batches(0, 0)
    w = toy.init(0)[0]["first"]
    (line,) = lines_of(emulated, "gemm", step=0, site="first", gemm="fprop")
    reference = jax.jit(lambda a, b: jax.lax.dot_general(a, b, toy.MATMUL))(x, w)
    ours = jax.jit(lambda a, b: toy.FP8(a, b, toy.MATMUL))(x, w)
    found = mj.testing.compare_bits(ours, reference)
    assert (line["outputs"], line["differing"]) == (found.size, found.differing)
    assert line["max_ulps"] == found.max_ulps
    assert (line["m"], line["n"], line["k"]) == (48, 32, 64)
    shapes = {
        (x["site"], x["gemm"]): (x["m"], x["n"], x["k"]) for x in lines_of(emulated, "gemm", step=0)
    }
    assert shapes["second", "dgrad"] == (48, 32, 16)
    assert shapes["second", "wgrad"] == (32, 16, 48)


def test_shape_lines_are_the_programs_gemms(emulated):
    found = {(x["m"], x["n"], x["k"], x["accumulate"]): x for x in lines_of(emulated, "shape")}
    # te_pytorch: fast fprop; slow dgrad and wgrad, the latter (N_out, K_in).
    # What XLA drops, the gradient of the data, is in the traced program.
    assert set(found) == {
        (48, 32, 64, "fast"), (48, 16, 32, "fast"), (48, 32, 16, "slow"), (48, 64, 32, "slow"),
        (32, 64, 48, "slow"), (16, 32, 48, "slow"),
    }  # fmt: skip
    assert {(x["source"], x["S"], x["times"]) for x in found.values()} == {("workspace0", 1, 1)}


@pytest.mark.parametrize("reference", ["here", "there"])
def test_equal_arithmetic_never_parts(reference):
    """Also on another device, which is what a variant can ask for."""
    variants = {
        "here": jax.lax.dot_general,
        "there": Variant(jax.lax.dot_general, device=jax.devices()[1]),
    }
    comparison = compare(toy.train_step, variants, **SHORT, reference=reference)
    (other,) = {"here", "there"} - {reference}
    figures = comparison.figures
    assert figures[f"parted/{other}/loss"] == figures[f"parted/{other}/state"] == "never"
    assert {x["differing"] for x in lines_of(comparison, "gemm")} == {0}
    assert {x["one_minus_cosine"] for x in lines_of(comparison, "gradient")} == {0.0}
    assert f"{other} never differed from the reference, in any bit" in comparison.summary()


def test_a_loss_that_is_not_finite(tmp_path):
    def exploding(state, batch, factor):
        (x,) = state
        return (x * factor,), jnp.sum(x)

    comparison = compare(
        exploding,
        {"calm": jnp.float32(1), "wild": jnp.float32(1e30)},
        init=lambda seed: (jnp.ones(2, jnp.float32),),
        batches=lambda seed, step: (),
        steps=4,
        seeds=(0, 1),
        directory=tmp_path,
        progress=None,
    )
    assert [x["loss"] for x in lines_of(comparison, "step", variant="wild", seed=0)][2:] == [
        None
    ] * 2
    assert "wild: a loss is not finite" in comparison.summary()
    assert "not finite" in (tmp_path / "index.html").read_text()


def _pulled_back(numerics, x, w, g):
    y, pull = jax.vjp(numerics, x, w)
    return y, *pull(g)


def test_float32_dot_general_quantises_as_the_recipe_does():
    """Small integers: every sum is exact, so the arithmetics agree and only the codes count."""
    rng = np.random.default_rng(0)
    x, w, g = (jnp.asarray(rng.integers(-3, 4, (16, 16)), jnp.bfloat16) for _ in range(3))
    results = []
    for dot, options in ((float32_dot_general, {}), (fp8_dot_general, {"splitk": 1})):
        numerics = functools.partial(
            dot, dimension_numbers=toy.MATMUL, recipe="te_pytorch_current", **options
        )
        results.append(jax.jit(functools.partial(_pulled_back, numerics))(x, w, g))
    for ours, emulated in zip(*results, strict=True):
        mj.testing.assert_bitwise_equal(ours, emulated)
    in_parts = functools.partial(float32_dot_general, recipe="te_pytorch_current", parts=3)
    parts = jax.jit(lambda a, b: in_parts(a, b, toy.MATMUL))(x, w)
    mj.testing.assert_bitwise_equal(parts, results[0][0])
