"""The runs themselves: every variant and seed, interrupted and continued without changing a bit."""

import functools
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmaemu_jax.errors import message
from mmaemu_jax.training.comparison.checkpoint import (
    load_state,
    read_lines,
    save_state,
    write_lines,
)
from mmaemu_jax.training.comparison.checksum import checksum
from mmaemu_jax.training.comparison.plan import Job
from mmaemu_jax.training.comparison.progress import Progress

Line = dict[str, Any]


class Runs:
    """All runs of a job.

    Args:
        job: what to run.
        directory: where states and finished runs are kept; None keeps nothing.
        progress: told of every step.
    """

    def __init__(self, job: Job, directory: pathlib.Path | None, progress: Progress):
        self.job = job
        self._directory = directory
        self._progress = progress
        self._steps: dict[str, Any] = {}
        self._probe_states: dict[int, Any] = {}

    def all_lines(self) -> list[Line]:
        """Runs everything; the step lines by variant and seed."""
        job = self.job
        # The reference first: the probes need its parameters.
        order = [job.reference, *(name for name in job.variants if name != job.reference)]
        lines = {(name, seed): self._run(name, seed) for seed in job.seeds for name in order}
        return [line for name in job.variants for seed in job.seeds for line in lines[name, seed]]

    def probe_state(self, step: int):
        """The reference's state before ``step``, for the probed seed."""
        path = self._path("states", f"probe.{step}.npz")
        if path is None:
            return self._probe_states[step]
        if not path.exists():
            raise ValueError(
                message(
                    f"compare: the state before step {step} is missing in {self._directory}.",
                    ["start afresh in another directory"],
                )
            )
        return load_state(path, self.job.init(self.job.probe_seed))[0]

    def _path(self, folder: str, name: str) -> pathlib.Path | None:
        return None if self._directory is None else self._directory / folder / name

    def _run(self, name: str, seed: int) -> list[Line]:
        finished = self._path("runs", f"{name}.{seed}.jsonl")
        if finished is not None and finished.exists():
            lines = read_lines(finished)
            self._progress.skipped(len(lines))
            return lines
        saved = self._path("states", f"{name}.{seed}.npz")
        state, lines = self.job.init(seed), []
        if saved is not None and saved.exists():
            state, lines = load_state(saved, state)
            self._progress.skipped(len(lines))
        state = self._on_device(name, state)
        for step in range(len(lines), self.job.steps):
            self._keep_for_probes(name, seed, step, state)
            state, line = self._step(name, seed, step, state)
            lines.append(line)
            self._progress.step(f"{name}, seed {seed}", step + 1, line["loss"])
            if saved is not None and len(lines) % self.job.save_every == 0:
                save_state(saved, state, lines)
        if finished is not None and saved is not None:
            write_lines(finished, lines)
            saved.unlink(missing_ok=True)
        return lines

    def _on_device(self, name: str, tree):
        device = self.job.variants[name].device
        return tree if device is None else jax.device_put(tree, device)

    def _keep_for_probes(self, name: str, seed: int, step: int, state) -> None:
        job = self.job
        if (name, seed) != (job.reference, job.probe_seed) or step not in job.probe_steps:
            return
        path = self._path("states", f"probe.{step}.npz")
        if path is None:
            self._probe_states[step] = state
        else:
            save_state(path, state, [])

    def _step(self, name: str, seed: int, step: int, state) -> tuple[Any, Line]:
        if name not in self._steps:
            self._steps[name] = jax.jit(
                functools.partial(_checked_step, self.job.train_step, self.job.variants[name])
            )
        batch = self._on_device(name, self.job.batches(seed, step))
        state, loss, sums = self._steps[name](state, batch)
        value = float(loss)
        line = {
            "kind": "step",
            "variant": name,
            "seed": seed,
            "step": step,
            "loss": value if math.isfinite(value) else None,
            "loss_bits": f"{int(np.asarray(loss).view(np.uint32)):08x}",
            "state": "".join(f"{int(half):08x}" for half in np.asarray(sums)),
        }
        return state, line


def _checked_step(train_step, variant, state, batch):
    """One step, its loss as float32, and the checksum of the new state."""
    returned = train_step(state, batch, variant.numerics)
    if not isinstance(returned, tuple) or len(returned) != 2 or jnp.shape(returned[1]) != ():
        raise TypeError(
            message(
                "compare: train_step must return the new state and a scalar loss.",
                ["return state, loss"],
            )
        )
    state, loss = returned
    return state, jnp.asarray(loss, jnp.float32), checksum(state)
