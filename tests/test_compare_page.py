"""The report page: every figure recomputed from metrics.jsonl by other code, plots, conclusions."""

import html
import json
import math
import re
import statistics

import jax
import numpy as np
import pytest
import toy_training as toy

from mmaemu_jax.training import Variant, compare
from mmaemu_jax.training.comparison import plots, report
from mmaemu_jax.training.comparison.conclusion import conclusions
from mmaemu_jax.training.comparison.figures import Metrics, all_figures
from mmaemu_jax.training.comparison.markup import Shown
from mmaemu_jax.training.comparison.verdict import verdict

FIGURE = re.compile(r'<span class="f" data-figure="([^"]+)" data-format="([^"]*)">([^<]*)</span>')
REFERENCE, CONTROL = "xla", "xla-halves"


def halves(lhs, rhs, dimension_numbers):
    middle = lhs.shape[1] // 2
    first = jax.lax.dot_general(lhs[:, :middle], rhs[:middle], dimension_numbers)
    return first + jax.lax.dot_general(lhs[:, middle:], rhs[middle:], dimension_numbers)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    variants = {REFERENCE: jax.lax.dot_general, CONTROL: Variant(halves, control=True)}
    variants["hopper"] = toy.VARIANTS["hopper"]
    options = {"steps": 14, "seeds": (0, 5), "title": "a <toy>", "progress": None}
    compare(toy.train_step, variants, **toy.PROBLEM, **options, directory=folder)
    return folder


@pytest.fixture(scope="module")
def lines(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def page(directory):
    return (directory / "index.html").read_text()


# Every figure again, from the lines, by name


def recompute(name: str, lines: list[dict]):
    kind, *rest = name.split("/")
    steps = [x for x in lines if x["kind"] == "step"]
    variants = {x["variant"] for x in steps}
    seeds = {x["seed"] for x in steps}
    counts = {
        "variants": len(variants),
        "others": len(variants) - 1,
        "seeds": len(seeds),
        "runs": len(variants) * len(seeds),
        "steps": len(steps) // len(variants) // len(seeds),
    }
    if kind in counts:
        return counts[kind]
    if name == "probe_seed":
        (seed,) = {x["seed"] for x in lines if x["kind"] == "gradient"}
        return seed
    if name == "parted":
        return sum(recompute(f"parted/{v}/state", lines) != "never" for v in variants - {REFERENCE})
    return {"loss": loss, "apart": apart, "parted": parted, "gradient": gradient, "gemm": gemm}[
        kind
    ](lines, *rest)


def final_losses(lines, variant):
    found = {}
    for x in lines:
        if x["kind"] == "step" and x["variant"] == variant:
            found.setdefault(x["seed"], []).append(x["loss"])
    return {seed: math.fsum(values[-10:]) / 10 for seed, values in found.items()}


def loss(lines, variant, what):
    final = list(final_losses(lines, variant).values())
    if what == "first":
        return statistics.fmean(
            x["loss"] for x in lines
            if x["kind"] == "step" and x["variant"] == variant and x["step"] == 0
        )  # fmt: skip
    return {
        "final": statistics.fmean(final),
        "low": min(final),
        "high": max(final),
        "spread": max(final) - min(final),
    }[what]


def apart(lines, variant, what):
    ours, reference = (final_losses(lines, name) for name in (variant, REFERENCE))
    values = [ours[seed] - reference[seed] for seed in ours]
    return {"mean": statistics.fmean, "low": min, "high": max}[what](values)


def parted(lines, variant, what):
    field = {"loss": "loss_bits", "state": "state"}[what]
    bits = {(x["variant"], x["seed"], x["step"]): x[field] for x in lines if x["kind"] == "step"}
    steps = [
        step
        for (name, seed, step), value in bits.items()
        if name == variant and value != bits[REFERENCE, seed, step]
    ]
    return min(steps) if steps else "never"


def gradient(lines, variant, field, step):
    values = {
        x["step"]: x[field]
        for x in lines
        if x["kind"] == "gradient" and x["variant"] == variant and x["leaf"] == "all"
    }
    return max(values.values()) if step == "worst" else values[int(step)]


def gemm(lines, variant, product, what):
    chosen = [
        x for x in lines if x["kind"] == "gemm" and x["variant"] == variant and x["gemm"] == product
    ]
    if what == "share":
        return sum(x["differing"] for x in chosen) / sum(x["outputs"] for x in chosen)
    return statistics.fmean(x[what] for x in chosen)


def test_every_figure_recomputes(page, lines):
    found = FIGURE.findall(page)
    assert len(found) > 60
    assert {name.split("/")[0] for name, _, _ in found} >= {
        "loss", "apart", "parted", "gradient", "gemm", "runs", "seeds", "steps",
    }  # fmt: skip
    for name, form, text in found:
        value = recompute(html.unescape(name), lines)
        shown = value if isinstance(value, str) else format(value, form)
        assert shown == html.unescape(text), name


def test_no_number_stands_outside_of_a_figure(page, lines):
    """But for names, units, the facts of config.json and the table of GEMM shapes."""
    text = FIGURE.sub(" ", page[page.index("<body>") :])
    for start, end in (("<h2>What was run", "<h2>Loss"), ("<h2>Emulated GEMMs", "<h2>What this"),
                       ("<h2>Reproducing", "</body>"), ("<img", ">")):  # fmt: skip
        text = re.sub(f"{start}.*?{end}", " ", text, flags=re.DOTALL)
    text = re.sub(r"</?h\d>", " ", text)
    words = re.sub(r"<[^>]+>", " ", text).split()
    numbers = {word.strip(".,:;()") for word in words if re.search(r"\d", word)}
    steps = {"0", "7", "13"}
    prose = {"FP8", "float32", "99", "99th", "0", "10", "1", "hopper-ws0"}
    assert numbers - steps - prose == set()


def test_the_table_of_shapes_is_the_lines(page, lines):
    table = page[page.index("<h2>Emulated GEMMs") : page.index("<h2>What this")]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", table)]
    shapes = [x for x in lines if x["kind"] == "shape"]
    assert [row[1:5] for row in cells if row] == [
        [f"{x['m']} x {x['n']} x {x['k']}", f"{x['a']} x {x['b']}, {x['accumulate']}",
         str(x["times"]), str(x["S"])]
        for x in shapes
    ]  # fmt: skip
    assert "no workspace, never splits" in table


def test_the_page_stands_alone(page, directory):
    assert page.count("data:image/png;base64,") == 4
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "a &lt;toy&gt;" in page
    names = {path.name for path in directory.iterdir()}
    assert {"loss.png", "apart.png", "gradient.png", "gemms.png", "index.html"} <= names


# Plots


def test_plots_show_the_lines(lines, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "_png", lambda figure: drawn.append(figure) or b"")
    metrics = Metrics(lines, REFERENCE, [CONTROL])
    assert list(plots.all_plots(metrics)) == ["loss", "apart", "gradient", "gemms"]
    loss_plot, apart_plot, gradient_plot, gemms_plot = drawn
    curves = {line.get_label(): line.get_xydata() for line in loss_plot.axes[0].lines}
    differences = {line.get_label(): line.get_xydata() for line in apart_plot.axes[0].lines}
    losses = {(x["variant"], x["seed"], x["step"]): x["loss"] for x in lines if x["kind"] == "step"}
    for name in (REFERENCE, CONTROL, "hopper"):
        for step in range(14):
            pair = [losses[name, seed, step] for seed in (0, 5)]
            assert tuple(curves[name][step]) == (step, sum(pair) / 2)
            if name != REFERENCE:
                apart_ = [
                    losses[name, seed, step] - losses[REFERENCE, seed, step] for seed in (0, 5)
                ]
                assert tuple(differences[name][step]) == (step, sum(apart_) / 2)
    points = {line.get_label(): line.get_xydata() for line in gradient_plot.axes[0].lines}
    for step, value in points["hopper"]:
        assert value == gradient(lines, "hopper", "relative_difference", step)
    picture = gemms_plot.axes[0].images[0].get_array()
    for row, name in enumerate((CONTROL, "hopper")):
        for column, site in enumerate(toy.SITES):
            chosen = [x for x in lines if x["kind"] == "gemm" and x["variant"] == name
                      and x["gemm"] == "fprop" and x["site"] == site]  # fmt: skip
            share = sum(x["differing"] for x in chosen) / sum(x["outputs"] for x in chosen)
            np.testing.assert_equal(float(picture[row, column]), 100 * share or math.nan)


def test_products_in_which_nothing_differs_are_marked(lines, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "_png", lambda figure: drawn.append(figure) or b"")
    shares = [[0.0] * len(toy.SITES), [0.5] * len(toy.SITES)]
    monkeypatch.setattr(plots, "gemm_shares", lambda *_: shares)
    plots.all_plots(Metrics(lines, REFERENCE, [CONTROL]))
    for ax in drawn[3].axes[:-1]:  # the last is the colour bar's
        marks = [(t.get_text(), t.get_position()) for t in ax.texts]
        assert marks == [("0", (column, 0)) for column in range(len(toy.SITES))]


def test_without_matplotlib_there_are_tables(lines, directory, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "have_matplotlib", lambda: False)
    config = json.loads((directory / "config.json").read_text())
    text = report.write_report(tmp_path, lines, config).read_text()
    assert "<img" not in text
    assert "matplotlib was not installed" in text
    assert FIGURE.findall(text) == FIGURE.findall((directory / "index.html").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


# Conclusions follow the data


def made_lines(**losses: list[list[float]]) -> list[dict]:
    """Step lines of variants with these losses, by seed and step."""
    return [
        {"kind": "step", "variant": name, "seed": seed, "step": step, "loss": value,
         "loss_bits": f"{value}", "state": f"{value}"}
        for name, runs in losses.items()
        for seed, run in enumerate(runs)
        for step, value in enumerate(run)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("variant", "word", "sentence"),
    [
        ([[2.0], [2.1]], "equal", "no difference at all"),
        ([[2.0005], [2.1004]], "noise", "cannot be told from"),
        ([[2.01], [2.11]], "small", "smaller one than another seed makes"),
        ([[2.3], [2.4]], "visible", "so a curve shows it"),
        ([[2.0], [None]], "not finite", "a loss is not finite"),
    ],
)
def test_verdicts(variant, word, sentence):
    rows = made_lines(base=[[2.0], [2.1]], control=[[2.001], [2.1]], one=variant)
    metrics = Metrics(rows, "base", ["control"])
    figures = all_figures(metrics)
    assert verdict(metrics, figures, "one") == word
    assert sentence in conclusions(metrics, Shown(figures))[0]


def test_one_seed_is_not_judged():
    rows = made_lines(base=[[2.0]], one=[[2.1]])
    metrics = Metrics(rows, "base")
    figures = all_figures(metrics)
    assert verdict(metrics, figures, "one") == "unknown"
    assert "There is one seed" in " ".join(conclusions(metrics, Shown(figures)))
