"""compare: one training run under several arithmetics, and what that changes."""

import dataclasses
import json
import os
import pathlib
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import jax

from mmaemu_jax.atomic_file import write_bytes_atomically
from mmaemu_jax.errors import message
from mmaemu_jax.training.comparison.checkpoint import read_lines, write_lines
from mmaemu_jax.training.comparison.conclusion import conclusions
from mmaemu_jax.training.comparison.figures import Figures, Metrics, all_figures
from mmaemu_jax.training.comparison.markup import Shown, plain_text
from mmaemu_jax.training.comparison.plan import Job, make_job
from mmaemu_jax.training.comparison.probes import Probes
from mmaemu_jax.training.comparison.progress import PROBE_STEPS, Progress
from mmaemu_jax.training.comparison.report import write_report
from mmaemu_jax.training.comparison.shapes import shape_lines
from mmaemu_jax.training.comparison.training_runs import Runs
from mmaemu_jax.versions import versions

Line = dict[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """What a comparison found.

    Attributes:
        lines: every measured value as a flat dict; ``docs/compare.md`` lists the kinds.
        config: what was compared, with versions; JSON-ready.
        directory: where these and the report lie, or None.
    """

    lines: list[Line]
    config: dict[str, Any]
    directory: pathlib.Path | None

    def write_report(self, directory: str | os.PathLike) -> pathlib.Path:
        """Writes metrics.jsonl, config.json, plots and index.html; returns the path of the page."""
        folder = pathlib.Path(directory)
        write_lines(folder / "metrics.jsonl", self.lines)
        _write_config(folder, self.config)
        return write_report(folder, self.lines, self.config)

    @property
    def figures(self) -> Figures:
        """Every figure of the report by name, such as "loss/hopper-fast/final"."""
        return all_figures(self._metrics)

    def summary(self) -> str:
        """The conclusions of the report, as plain text."""
        return plain_text(conclusions(self._metrics, Shown(self.figures)))

    @property
    def _metrics(self) -> Metrics:
        return Metrics(self.lines, self.config["reference"], self.config["controls"])


def compare(
    train_step: Callable[[Any, Any, Any], tuple[Any, Any]],
    variants: Mapping[str, Any],
    *,
    init: Callable[[int], Any],
    batches: Callable[[int, int], Any],
    steps: int,
    seeds: Sequence[int] = (0, 1, 2),
    reference: str | None = None,
    loss: Callable[[Any, Any, Any], Any] | None = None,
    params: Callable[[Any], Any] = lambda state: state[0],
    gemms: bool = True,
    sites: Sequence[str] | None = None,
    probe_steps: Sequence[int] | None = None,
    directory: str | os.PathLike | None = None,
    resume: bool = False,
    save_every: int = 10,
    title: str = "the train step",
    about: Mapping[str, Any] | None = None,
    progress: TextIO | None = sys.stderr,
) -> Comparison:
    """Trains the same thing under several arithmetics and measures what they change.

    Every variant starts from the same state and sees the same batches. With ``loss``, gradients
    and, where the numerics are dot_generals, single GEMMs are compared too: at parameters of the
    reference's run, so that each difference is the arithmetic's own.

    Args:
        train_step: (state, batch, numerics) -> (new state, scalar loss). It is jitted for each
            variant; state and batch are pytrees of arrays.
        variants: by name, what is passed as ``numerics``, or a :class:`Variant` around it.
        init: seed -> the state before the first step.
        batches: (seed, step) -> the batch; the same for every variant.
        steps: how many steps each run has.
        seeds: of the runs.
        reference: the variant that the others are measured against; None is the first.
        loss: (params, batch, numerics) -> scalar, as the train step differentiates it.
        params: state -> the params of ``loss``; the default is the first item of a tuple.
        gemms: compare single GEMMs, if every numerics can be called as a dot_general.
        sites: names of the dot_general calls of ``loss``, in order.
        probe_steps: before which steps gradients and GEMMs are compared, with the first seed; None
            is the first, the middle and the last.
        directory: for the report and for what a later call continues from; None keeps nothing.
        resume: continue what is in ``directory``; the result has the same bits.
        save_every: steps between saved states.
        title, about: for the report: what is trained, and more facts about it (JSON-ready); the
            fact "command" is how to repeat it.
        progress: where to show it, such as sys.stderr; None shows none.

    Raises:
        TypeError, ValueError: a wrong argument; a directory that holds another comparison, or one
            to be resumed that was not asked for.
        UnsupportedFeatureError: GEMMs cannot be captured, as they run inside a loop.
    """
    job = make_job(
        train_step,
        variants,
        init=init,
        batches=batches,
        steps=steps,
        seeds=seeds,
        reference=reference,
        loss=loss,
        gemms=gemms,
        params=params,
        sites=sites,
        probe_steps=probe_steps,
        save_every=save_every,
    )
    on = {"machine": platform.machine(), "platform": jax.default_backend()}
    about_run = {"title": title, "about": dict(about or {}), "versions": {**versions(), **on}}
    config = {**job.facts(), **about_run}
    folder = None if directory is None else pathlib.Path(directory)
    if folder is not None:
        _claim(folder, config, resume)
    bar = Progress(_work(job), progress)
    runs = Runs(job, folder, bar)
    lines = [line for name in job.variants for line in shape_lines(job, name)]
    lines += runs.all_lines()
    lines += _probe_lines(job, runs, folder, bar)
    bar.clear()
    comparison = Comparison(lines, config, folder)
    if folder is not None:
        comparison.write_report(folder)
        _remove_states(folder)
    return comparison


def _work(job: Job) -> int:
    """All there is to do, in training steps."""
    probes = PROBE_STEPS * len(job.probe_steps)
    return len(job.variants) * (len(job.seeds) * job.steps + probes)


def load_comparison(directory: str | os.PathLike) -> Comparison:
    """The finished comparison in ``directory``.

    Raises:
        ValueError: there is none.
    """
    folder = pathlib.Path(directory)
    if not (folder / "metrics.jsonl").exists():
        raise ValueError(
            message(
                f"compare: {folder} holds no finished comparison.",
                ["finish it with resume=True (--resume)"],
            )
        )
    config = json.loads((folder / "config.json").read_text())
    return Comparison(read_lines(folder / "metrics.jsonl"), config, folder)


def _probe_lines(job: Job, runs: Runs, folder: pathlib.Path | None, bar: Progress) -> list[Line]:
    if not job.probe_steps:
        return []
    probes = Probes(job)
    found: dict[str, list[Line]] = {name: [] for name in job.variants if name != job.reference}
    for step in job.probe_steps:
        path = None if folder is None else folder / "runs" / f"probe.{step}.jsonl"
        if path is not None and path.exists():
            lines = read_lines(path)
            bar.skipped(PROBE_STEPS * len(job.variants))
        else:
            what = f"gradients and GEMMs before step {step}"
            lines = probes.at(
                step, runs.probe_state(step), lambda name, what=what: bar.probe(f"{name}: {what}")
            )
            if path is not None:
                write_lines(path, lines)
        for line in lines:
            found[line["variant"]].append(line)
    return [line for lines in found.values() for line in lines]


def _write_config(folder: pathlib.Path, config: dict[str, Any]) -> None:
    text = json.dumps(config, indent=1) + "\n"
    write_bytes_atomically(folder / "config.json", text.encode())


def _claim(folder: pathlib.Path, config: dict[str, Any], resume: bool) -> None:
    """Takes ``folder`` for this comparison: it is empty, or holds the same one to be resumed."""
    path = folder / "config.json"
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(
                message(
                    f"compare: {folder} is not empty and holds no comparison.",
                    ["name a new directory"],
                )
            )
        _write_config(folder, config)
        return
    if not resume:
        raise ValueError(
            message(
                f"compare: {folder} holds a comparison already.",
                ["continue it with resume=True (--resume)", "name a new directory"],
            )
        )
    before = json.loads(path.read_text())
    after = json.loads(json.dumps(config))
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if differing:
        raise ValueError(
            message(
                f"compare: {folder} holds another comparison; these differ: "
                f"{', '.join(sorted(differing))}.",
                ["resume with the options and versions of config.json", "name a new directory"],
            )
        )


def _remove_states(folder: pathlib.Path) -> None:
    """The states are large and nothing needs them any more."""
    states = folder / "states"
    if states.is_dir():
        for path in states.iterdir():
            path.unlink()
        states.rmdir()
