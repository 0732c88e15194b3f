"""The report as one HTML page that needs no other file."""

import html
import importlib.resources
import json
from typing import Any

from mmaemu_jax.training import comparison
from mmaemu_jax.training.comparison.caveats import caveats
from mmaemu_jax.training.comparison.conclusion import conclusions
from mmaemu_jax.training.comparison.figures import FINAL_STEPS, Metrics
from mmaemu_jax.training.comparison.markup import Shown, image, items, table
from mmaemu_jax.training.comparison.verdict import VERDICT_TEXTS, verdict

_GEMM_NAMES = {
    "fprop": "fprop (the result)",
    "dgrad": "dgrad (gradient of the activations)",
    "wgrad": "wgrad (gradient of the weights)",
}
_SOURCES = {
    "table": "in the table",
    "envelope": "inferred: above everything that splits",
    "workspace0": "no workspace, never splits",
    "unknown": "not known; unsplit was assumed",
}


def render(metrics: Metrics, shown: Shown, config: dict[str, Any], plots: dict[str, bytes]) -> str:
    """The whole page."""
    style = (importlib.resources.files(comparison) / "page.css").read_text()
    title = f"What the arithmetic changes: {config['title']}"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        _lead(metrics, shown),
        f'<div class="short"><b>In short</b>{items(conclusions(metrics, shown))}</div>',
        _what_ran(metrics, config),
        _curves(metrics, shown, plots),
        _partings(metrics, shown),
        _gemms(metrics, shown, plots),
        _gradients(metrics, shown, plots),
        _shapes(metrics),
        f"<h2>What this does not show</h2>{items(caveats(metrics, shown, config))}",
        _reproduce(config, bool(plots)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _lead(metrics: Metrics, shown: Shown) -> str:
    plural = "s" if len(metrics.seeds) > 1 else ""
    return (
        f'<p class="lead">{shown("runs")} runs: {shown("variants")} arithmetics, '
        f"{shown('seeds')} seed{plural}, {shown('steps')} steps each. Every arithmetic starts "
        "from the same parameters and sees the same data, so what differs is the arithmetic. "
        f"Differences are measured against <b>{metrics.reference}</b>.</p>"
    )


def _what_ran(metrics: Metrics, config: dict[str, Any]) -> str:
    emulated = metrics.values("shape", "variant")
    rows = [
        [
            f"<b>{name}</b>",
            html.escape(config["variants"].get(name) or "-"),
            "emulated" if name in emulated else "native",
            _role(metrics, name),
        ]
        for name in metrics.variants
    ]
    about = "".join(
        f"<li>{html.escape(str(name))}: {html.escape(_fact(value))}</li>\n"
        for name, value in config["about"].items()
        if name != "command"
    )
    return (
        "<h2>What was run</h2>"
        + table(["variant", "its linear layers", "", ""], rows, 4)
        + (f"<ul>{about}</ul>" if about else "")
    )


def _role(metrics: Metrics, name: str) -> str:
    if name == metrics.reference:
        return "reference"
    return "control" if name in metrics.controls else ""


def _fact(value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _plot(plots: dict[str, bytes], name: str, alt: str) -> str:
    return image(plots[name], alt) if name in plots else ""


def _curves(metrics: Metrics, shown: Shown, plots: dict[str, bytes]) -> str:
    rows = []
    for name in metrics.variants:
        key = f"loss/{name}"
        row = [
            f"<b>{name}</b>",
            shown(f"{key}/first", ".4f"),
            shown(f"{key}/final", ".4f"),
            f"{shown(f'{key}/low', '.4f')} to {shown(f'{key}/high', '.4f')}",
        ]
        if name == metrics.reference:
            rows.append([*row, "-", "-", "reference"])
            continue
        apart = f"apart/{name}"
        between = f"{shown(f'{apart}/low', '+.4f')} to {shown(f'{apart}/high', '+.4f')}"
        is_control = name in metrics.controls
        word = "control" if is_control else VERDICT_TEXTS[verdict(metrics, shown.figures, name)]
        rows.append([*row, shown(f"{apart}/mean", "+.4f"), between, word])
    head = ["variant", "first loss", "final loss", "by seed", "minus reference", "by seed",
            "the difference is"]  # fmt: skip
    return (
        "<h2>Loss</h2>"
        f'<p class="note">Final loss: mean of the last {FINAL_STEPS} steps, then over seeds. The '
        "difference is taken seed by seed, on the same data.</p>"
        + _plot(plots, "loss", "loss curves of all variants")
        + table(head, rows)
        + _plot(plots, "apart", "difference of the loss from the reference's")
    )


def _partings(metrics: Metrics, shown: Shown) -> str:
    rows = [
        [f"<b>{name}</b>", shown(f"parted/{name}/loss"), shown(f"parted/{name}/state")]
        for name in metrics.others()
    ]
    return (
        "<h2>Where the runs part</h2>"
        '<p class="note">The first step, over all seeds, at which any bit differs from the '
        "reference: of the loss that the step computes, and of the parameters and optimizer state "
        "that it leaves. Step 0 is the first.</p>" + table(["variant", "loss", "state"], rows)
    )


def _gemms(metrics: Metrics, shown: Shown, plots: dict[str, bytes]) -> str:
    if not metrics.of_kind("gemm"):
        return ""
    rows = []
    for gemm in metrics.values("gemm", "gemm"):
        for name in metrics.others():
            key = f"gemm/{name}/{gemm}"
            rows.append(
                [
                    _GEMM_NAMES.get(gemm, gemm) if name == metrics.others()[0] else "",
                    f"<b>{name}</b>",
                    shown.percent(f"{key}/share"),
                    shown(f"{key}/median_ulps", ".2f"),
                    shown(f"{key}/p99_ulps", ".0f"),
                    shown(f"{key}/norm_error", ".1e"),
                    shown(f"{key}/bias", "+.1e"),
                ]
            )
    head = ["product", "variant", "outputs that differ", "median ulps", "99 % ulps",
            "error / norm", "bias"]  # fmt: skip
    return (
        "<h2>Layer by layer, GEMM by GEMM</h2>"
        '<p class="note">Each linear layer alone: the operands and the incoming gradient are those '
        "of the reference, so no difference is inherited from another layer. An ulp is a step of "
        "the output's dtype; the median and the 99th percentile are over the outputs that "
        "differ; large ones are outputs near zero. Error is the norm of the difference over the "
        "norm of the result. Bias is the mean difference along the result's sign over the mean "
        "result: negative means too small.</p>"
        + table(head, rows, 2)
        + _plot(plots, "gemms", "share of differing outputs by variant, layer and product")
    )


def _gradients(metrics: Metrics, shown: Shown, plots: dict[str, bytes]) -> str:
    if not metrics.of_kind("gradient"):
        return ""
    steps = metrics.values("gradient", "step")
    rows = [
        [
            f"<b>{name}</b>",
            *(shown(f"gradient/{name}/one_minus_cosine/{step}", ".1e") for step in steps),
            *(shown.percent(f"gradient/{name}/relative_difference/{step}") for step in steps),
        ]
        for name in metrics.others()
    ]
    head = [
        "variant",
        *(f"1 - cosine, step {step}" for step in steps),
        *(f"relative difference, step {step}" for step in steps),
    ]
    return (
        "<h2>Gradients at the same parameters</h2>"
        '<p class="note">The gradient of all parameters beside the reference\'s, at the parameters '
        f"of the reference's run with seed {shown('probe_seed')}.</p>"
        + table(head, rows)
        + _plot(plots, "gradient", "relative difference of the gradient by step")
    )


def _shapes(metrics: Metrics) -> str:
    lines = metrics.of_kind("shape")
    if not lines:
        return ""
    rows = [
        [
            f"<b>{line['variant']}</b>",
            f"{line['m']} x {line['n']} x {line['k']}",
            f"{line['a']} x {line['b']}, {line['accumulate']}",
            str(line["times"]),
            str(line["S"]),
            _source(line),
        ]
        for line in lines
    ]
    head = ["variant", "M x N x K", "operands, accumulation", "per step", "S",
            "the split-K table of its profile"]  # fmt: skip
    return (
        "<h2>Emulated GEMMs, and how K is split</h2>"
        '<p class="note">A GPU library may cut K into S parts, which changes bits, and S cannot be '
        "derived from the shape. The last column says whether the recorded decisions of the "
        "profile's GPU know this GEMM.</p>" + table(head, rows, 6)
    )


def _source(line: dict[str, Any]) -> str:
    if line["source"] is None:
        return "no profile was named"
    text: str = _SOURCES.get(line["source"]) or line["source"]
    if line["table_S"] not in (None, line["S"]):
        text += f"; it says S = {line['table_S']}"
    if line["verified"] is False:
        text += ", unverified"
    if line["evidence"] == "experimental":
        text += "; the profile is experimental"
    return html.escape(text)


def _reproduce(config: dict[str, Any], plotted: bool) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in config["versions"].items())
    command = config["about"].get("command")
    return (
        "<h2>Reproducing this</h2>"
        + (f"<pre>{html.escape(command)}</pre>" if command else "")
        + "<p>Repeated on the same machine with the same versions, every bit is the same, also if "
        "the run is interrupted and resumed. Every figure of this page is computed from "
        "<code>metrics.jsonl</code>, which lies beside it; a figure's name is in its "
        "<code>data-figure</code> attribute.</p>"
        + ("" if plotted else "<p>matplotlib was not installed, so there are no plots.</p>")
        + f'<p class="note">{html.escape(versions)}</p>'
    )
