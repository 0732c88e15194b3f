"""compare: what it refuses, directories it does not overwrite, and its progress."""

import io
import json

import jax
import jax.numpy as jnp
import pytest
import toy_training as toy

import mmaemu_jax as mj
from mmaemu_jax.training import Variant, compare
from mmaemu_jax.training.comparison import progress

SHORT = {**toy.PROBLEM, "steps": 6, "seeds": (0, 3), "progress": None}


def lines_of(comparison, kind):
    return [line for line in comparison.lines if line["kind"] == kind]


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


def test_directories_are_not_overwritten(tmp_path):
    finished, foreign = tmp_path / "finished", tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("")
    compare(toy.train_step, toy.PLAIN, **{**SHORT, "loss": None}, directory=finished)
    with pytest.raises(ValueError, match="not empty"):
        compare(toy.train_step, toy.PLAIN, **SHORT, directory=foreign)
    with pytest.raises(ValueError, match="resume=True"):
        compare(toy.train_step, toy.PLAIN, **SHORT, directory=finished)
    other = {**SHORT, "loss": None, "steps": 7}
    with pytest.raises(ValueError, match="these differ: steps"):
        compare(toy.train_step, toy.PLAIN, **other, directory=finished, resume=True)
    with pytest.raises(ValueError, match="no finished comparison"):
        mj.training.load_comparison(foreign)
    config = json.loads((finished / "config.json").read_text())
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
