"""``python -m mmaemu_jax compare``: a tiny language model, resuming, errors."""

import hashlib
import json
import sys

import numpy as np
import pytest

from mmaemu_jax import cli
from mmaemu_jax.commands import compare as command
from mmaemu_jax.data import text as text_module
from mmaemu_jax.data.text import load_wonderland, text_batch
from mmaemu_jax.training.comparison import DEFAULT_VARIANTS, VARIANTS, report
from mmaemu_jax.training.comparison.language_model import ModelShape

TINY = ["--width", "32", "--hidden", "64", "--heads", "2", "--sequences", "2", "--length", "16",
        "--variants", "bf16,hopper-fast", "--steps", "3", "--seeds", "4"]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command") / "report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "have_matplotlib", lambda: False)
        assert cli.main(["compare", "--out", str(folder), *TINY]) == 0
    return folder


def test_the_report_of_a_language_model(finished):
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    losses = [x["loss"] for x in lines if x["kind"] == "step" and x["variant"] == "hopper-fast"]
    assert len(losses) == 3
    # Untrained, it knows as little as a guess among the text's symbols.
    assert losses[0] == pytest.approx(np.log(len(load_wonderland()[1])), rel=0.2)
    shapes = [x for x in lines if x["kind"] == "shape"]
    assert {x["accumulate"] for x in shapes} == {"fast"}
    # 6 layers, 3 products each; K below 1024 is in no table of the H100.
    assert sum(x["times"] for x in shapes) == 18
    assert {x["source"] for x in shapes} == {"unknown"}
    assert {x["site"] for x in lines if x["kind"] == "gemm"} == set(ModelShape().sites)
    page = (finished / "index.html").read_text()
    assert "in no split-K table" in page
    config = json.loads((finished / "config.json").read_text())
    assert "--width 32 --hidden 64 --blocks 1" in config["about"]["command"]
    assert "1 block of width 32" in config["about"]["model"]


def test_report_only_and_resume_write_the_same_page(finished, capsys, monkeypatch):
    monkeypatch.setattr(report, "have_matplotlib", lambda: False)
    page = (finished / "index.html").read_bytes()
    (finished / "index.html").unlink()
    assert cli.main(["compare", "--out", str(finished), "--report-only"]) == 0
    assert (finished / "index.html").read_bytes() == page
    assert str(finished / "index.html") in capsys.readouterr().out
    assert cli.main(["compare", "--out", str(finished), *TINY]) == 2
    assert "--resume" in capsys.readouterr().err


def test_default_shapes_are_in_the_tables():
    """Width, hidden and tokens of the default model are 1024: every GEMM is a cube of that."""
    shape = ModelShape()
    assert {shape.width, shape.hidden, shape.tokens} == {1024}


def test_list(capsys):
    assert cli.main(["compare", "--list"]) == 0
    out = capsys.readouterr().out
    for name in VARIANTS:
        assert f"{'*' if name in DEFAULT_VARIANTS else ' '} {name} " in out


@pytest.mark.parametrize(
    ("argv", "match"),
    [
        (["--variants", "bf16,h100"], "fp8-float32"),
        (["--width", "30", "--heads", "4"], "multiple of heads"),
        (["--report-only"], "no finished comparison"),
        (["--seeds", "1,1"], "seeds"),
    ],
)
def test_errors(argv, match, tmp_path, capsys):
    assert cli.main(["compare", "--out", str(tmp_path / "new"), *argv]) == 2
    assert match in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "argv",
    [["--variants", "bf16"], ["--variants", "a,a"], ["--steps", "0"], ["--seeds", "x"],
     ["--width", "-1"], ["--nonsense"]],
)  # fmt: skip
def test_usage_errors(argv):
    with pytest.raises(SystemExit) as error:
        cli.main(["compare", *argv])
    assert error.value.code == 2


def test_interrupted(tmp_path, monkeypatch, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_train", interrupted)
    assert cli.main(["compare", "--out", str(tmp_path)]) == 130
    assert "--resume" in capsys.readouterr().err


def test_missing_matplotlib_is_said_first(monkeypatch, capsys):
    monkeypatch.setattr("mmaemu_jax.plotting.have_matplotlib", lambda: False)
    monkeypatch.setattr(command, "_train", lambda args: sys.exit(9))
    with pytest.raises(SystemExit):
        cli.main(["compare"])
    assert "--report-only to add them" in capsys.readouterr().err


# The text


def test_text_is_what_was_shipped(monkeypatch):
    symbols, alphabet = load_wonderland()
    content = bytes(alphabet[i] for i in symbols)
    assert hashlib.sha256(content).hexdigest() == text_module.WONDERLAND_SHA256
    assert content.decode("ascii").lstrip().startswith("CHAPTER I\n")
    monkeypatch.setattr(text_module, "WONDERLAND_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="not the file that was shipped"):
        load_wonderland.__wrapped__()


def test_batches_are_windows_of_the_text():
    symbols, _ = load_wonderland()
    batch = text_batch(5, 30, seed=1, step=2)
    assert (batch.shape, batch.dtype) == ((5, 31), np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(symbols, 31)
    for row in batch:
        assert (windows == row).all(axis=1).any()
    np.testing.assert_array_equal(batch, text_batch(5, 30, seed=1, step=2))
    assert (batch != text_batch(5, 30, seed=1, step=3)).any()
