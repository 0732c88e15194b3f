"""compare: equal bits when repeated and when resumed, what it measures, what it refuses."""

import functools
import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy_training as toy

import mmaemu_jax as mj
from mmaemu_jax.training import Variant, compare, float32_dot_general, fp8_dot_general
from mmaemu_jax.training.comparison import progress, report
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


def test_equal_arithmetic_never_parts():
    """Also on another device, which is what a variant can ask for."""
    variants = {
        "here": jax.lax.dot_general,
        "there": Variant(jax.lax.dot_general, device=jax.devices()[1]),
    }
    comparison = compare(toy.train_step, variants, **SHORT)
    figures = comparison.figures
    assert figures["parted/there/loss"] == figures["parted/there/state"] == "never"
    assert {x["differing"] for x in lines_of(comparison, "gemm")} == {0}
    assert {x["one_minus_cosine"] for x in lines_of(comparison, "gradient")} == {0.0}
    assert "there never differed from the reference, in any bit" in comparison.summary()


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


# What is refused


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"steps": 0}, ValueError, "steps must be positive"),
        ({"steps": 1.5}, TypeError, "steps must be an int"),
        ({"seeds": ()}, ValueError, "seeds"),
        ({"seeds": (1, 1)}, ValueError, "seeds"),
        ({"reference": "nobody"}, ValueError, "known: float32, bfloat16"),
        ({"probe_steps": (6,)}, ValueError, "0..5"),
        ({"init": 3}, TypeError, "init must be a function"),
        ({"sites": ("one",)}, ValueError, "sites names 1 calls, the loss makes 2"),
        ({"loss": 3}, TypeError, "loss must be a function"),
    ],
)
def test_refused_arguments(change, error, match):
    with pytest.raises(error, match=match):
        compare(toy.train_step, toy.PLAIN, **{**SHORT, "seeds": (0,), **change})


@pytest.mark.parametrize(
    ("variants", "error", "match"),
    [
        ([toy.FP8], TypeError, "dict"),
        ({"one": toy.FP8}, ValueError, "at least two"),
        ({"a/b": toy.FP8, "c": toy.FP8}, ValueError, "a/b"),
        ({"a": toy.FP8, "b": Variant(toy.FP8, profile="h100")}, ValueError, "hopper"),
    ],
)
def test_refused_variants(variants, error, match):
    with pytest.raises(error, match=match):
        compare(toy.train_step, variants, **SHORT)


def test_a_train_step_that_returns_no_loss():
    with pytest.raises(TypeError, match="return state, loss"):
        compare(lambda state, batch, dot: state, toy.PLAIN, **SHORT)


def test_gemms_inside_a_loop_are_refused_with_a_way_out():
    def scanned(params, batch, dot_general):
        def layer(x, _):
            return jnp.tanh(dot_general(x, params, toy.MATMUL)), None

        return jnp.sum(jax.lax.scan(layer, batch, length=2)[0])

    def step(state, batch, dot_general):
        return state, scanned(state[0], batch, dot_general)

    options = {
        "init": lambda seed: (jnp.eye(16),),
        "batches": lambda seed, step: jnp.ones((16, 16)),
        "loss": scanned,
        "steps": 1,
        "seeds": (0,),
        "progress": None,
    }
    with pytest.raises(mj.errors.UnsupportedFeatureError, match="gemms=False"):
        compare(step, toy.PLAIN, **options)
    comparison = compare(step, toy.PLAIN, **options, gemms=False)
    assert lines_of(comparison, "gradient")
    assert not lines_of(comparison, "gemm")


def test_directories_are_not_overwritten(plain, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="not empty"):
        compare(toy.train_step, toy.PLAIN, **SHORT, directory=tmp_path)
    with pytest.raises(ValueError, match="resume=True"):
        compare(toy.train_step, toy.PLAIN, **SHORT, directory=plain.directory)
    other = {**SHORT, "steps": 7, "probe_steps": (0, 3, 5)}
    with pytest.raises(ValueError, match="these differ: steps"):
        compare(toy.train_step, toy.PLAIN, **other, directory=plain.directory, resume=True)
    with pytest.raises(ValueError, match="no finished comparison"):
        mj.training.load_comparison(tmp_path)
    config = json.loads((plain.directory / "config.json").read_text())
    assert config["versions"]["mmaemu_jax"] == mj.__version__


# Progress


class Terminal(io.StringIO):
    def __init__(self, watched: bool):
        super().__init__()
        self._watched = watched

    def isatty(self) -> bool:
        return self._watched


def test_progress_bar(monkeypatch):
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    stream = Terminal(watched=True)
    bar = progress.Progress(40, stream)
    bar.skipped(20)
    now += 30
    for step in range(10):
        bar.step("one, seed 3", step + 1, 2.5)
    assert stream.getvalue().endswith(
        "[##################......]  75%  0:30, 0:30 left  one, seed 3: step 10, loss 2.5000"
    )
    now += 60
    bar.probe("two")
    assert stream.getvalue().endswith("88%  1:30, 0:30 left  two")
    bar.step("one", 1, None)
    assert stream.getvalue().endswith("loss not finite")


def test_progress_without_a_terminal_is_a_line_a_minute(monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    stream = Terminal(watched=False)
    bar = progress.Progress(100, stream)
    for step in range(100):
        now += 3
        bar.step("one", step + 1, 1.0)
    bar.clear()
    assert len(stream.getvalue().splitlines()) == 4
    assert "\r" not in stream.getvalue()
