"""Do the GPU's kernels return the CPU's bits?"""

import time

import agreement_cells
import implementations
import jax
import numpy as np
from gpu_check import Outcome, Run

import mmaemu_jax as mj
from mmaemu_jax import backends, cuda, cuda_gate
from mmaemu_jax.testing.bits import compare_bits


def kernels(run: Run) -> list[str]:
    """The backends under test."""
    prefix = "cpu:" if run.dry else "cuda:"
    names = [s.name for s in backends.backends_status() if s.usable]
    return [name for name in names if name.startswith(prefix)]


def device(run: Run) -> jax.Device:
    """Where they run."""
    return jax.devices("cpu" if run.dry else "gpu")[0]


def extension(run: Run, _budget: float) -> Outcome:
    """The compiled part, and the GPU it runs on."""
    module = cuda.extension()
    if isinstance(module, str) and not run.dry:
        return Outcome("", False, f"{module}; pip install . -C cmake.define.MMAEMU_JAX_CUDA=ON")
    gpus = ", ".join(map(str, cuda.gpus())) or cuda.why_not()
    built = module if isinstance(module, str) else f"built for {module.ARCHITECTURES}"
    status = {s.name: s.why_not or "usable" for s in backends.backends_status()}
    return Outcome("", run.dry or bool(kernels(run)), f"{gpus}; {built}", details=status)


def self_test(run: Run, budget: float) -> Outcome:
    """mj.selftest of every kernel, and the gate of the native ones."""
    end, problems, values = time.monotonic() + budget, {}, 0
    names = kernels(run)
    for name in names:
        if time.monotonic() > end:
            break
        result = next(r for r in mj.selftest(name).results if r.name == name)
        values += result.values
        if result.problems:
            problems[name] = result.problems
    gate = {k.name: cuda_gate.verdict(k.name) or "passed" for k in cuda.kernels()}
    text = f"{len(names)} kernels, {values} values; gate: {gate}"
    return Outcome("", not problems, text, details={"problems": problems, "gate": gate})


def agreement(run: Run, budget: float) -> Outcome:
    """The cells of the agreement matrix on every kernel, against the CPU."""
    end, compared, wrong, done = time.monotonic() + budget, 0, [], 0
    cells = agreement_cells.COSTLY[:2] if run.dry else agreement_cells.COSTLY
    for cell in cells:
        if time.monotonic() > end:
            break
        problem, outputs = agreement_cells.Problem(cell, seed=done), cell.outputs(3)
        with jax.default_device(jax.devices("cpu")[0]):
            desired = implementations.run_backend("auto", problem, outputs)
        for name in kernels(run):
            with jax.default_device(device(run)):
                actual = implementations.run_backend(name, problem, outputs)
            for output, x, y in zip(outputs, actual, desired, strict=True):
                compared += np.asarray(y).size
                if not compare_bits(x, y, max_examples=1).equal:
                    wrong.append(f"{name} {cell} {output}")
        done += 1
    text = f"{done} of {len(cells)} cells, {compared} values, {len(wrong)} outputs differ"
    return Outcome("", not wrong and done > 0, text, details=wrong)
