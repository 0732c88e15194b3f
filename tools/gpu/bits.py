"""Do the GPU's kernels return the CPU's bits?"""

import dataclasses
import functools
import importlib.metadata
import json
from collections.abc import Iterator

import agreement_cells
import implementations
import jax
import numpy as np

import mmaemu_jax as mj
from gpu.section import Outcome, Section
from mmaemu_jax import backends, cuda, cuda_gate
from mmaemu_jax.testing.bits import compare_bits

PACKAGES = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cublas",
            "nvidia-cublas-cu12", "torch", "flax", "mmaemu", "numpy")  # fmt: skip
#: What the self-test's section found of each kernel.
VERDICTS = "kernels.json"


def kernels() -> list[str]:
    """The backends that the GPU has, those that could leave it in a bad state last."""
    names = [s.name for s in backends.backends_status() if s.usable and s.name[:5] == "cuda:"]
    return sorted(names, key=lambda name: cuda.kernel_named(name[5:]).experimental)


def trusted_kernels(section: Section) -> list[str]:
    """Those that the self-test's section did not find bad; all where it has not run."""
    path = section.work / VERDICTS
    known = json.loads(path.read_text()) if path.exists() else {}
    return [name for name in kernels() if known.get(name, "passed") == "passed"]


def gpus() -> list[jax.Device]:
    """Where they run."""
    return jax.local_devices(backend="gpu")


def on_cpu():
    """A context in which JAX computes on the CPU."""
    return jax.default_device(jax.devices("cpu")[0])


def extension(section: Section) -> Outcome:
    """The compiled part, the GPUs it runs on, and what every backend says of itself."""
    section.note(**versions())
    module = cuda.extension()
    for status in backends.backends_status():
        section.note(**dataclasses.asdict(status))
    if isinstance(module, str):
        return Outcome(False, f"{module}; nvcc builds it (docs/cuda.md)")
    try:
        devices = f"JAX sees {', '.join(map(str, gpus()))}"
    except RuntimeError as error:
        devices = f"JAX sees no GPU: {error}"
    seen = ", ".join(map(str, cuda.gpus())) or cuda.why_not()
    good = bool(kernels()) and "no GPU" not in devices
    return Outcome(good, f"{seen}; {devices}; built for {module.ARCHITECTURES}")


def versions() -> dict[str, str]:
    """Of the installed packages that matter here."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def self_test(section: Section) -> Outcome:
    """The gate of every kernel on every GPU, and mj.selftest; what it finds is for all sections."""
    said: dict[str, str] = {}

    def say(name: str, text: str) -> None:
        said[name] = text
        (section.work / VERDICTS).write_text(json.dumps(said))

    for name in kernels():
        if section.left < 0:
            break
        say(name, "did not come to its end")
        gate = cuda_gate.verdict(name[5:])
        tested = [] if gate else [r for r in mj.selftest(name).results if r.name == name]
        problems = [gate, *(problem for result in tested for problem in result.problems)]
        text = next(filter(None, problems), "passed")
        section.note(kernel=name, said=text, values=sum(result.values for result in tested))
        say(name, text)
    bad = [name for name, text in said.items() if text != "passed"]
    text = "; ".join(f"{name} {text}" for name, text in said.items())
    text = text[:400] or f"no kernel can run: {cuda.why_not() or 'no time was left'}"
    return Outcome(bool(said) and not bad, text)


def agreement(section: Section) -> Outcome:
    """The cells of the agreement matrix on every kernel and GPU, against the CPU."""
    cells = agreement_cells.COSTLY[:1] if section.dry else agreement_cells.COSTLY
    values, wrong, devices = 0, [], gpus()
    for number, cell in enumerate(cells):
        if section.left < 0:
            break
        problem, outputs = agreement_cells.Problem(cell, seed=number), cell.outputs(3)
        with on_cpu():
            desired = implementations.run_backend("auto", problem, outputs)
        for name in trusted_kernels(section):
            with jax.default_device(devices[number % len(devices)]):
                # The gate is the self-test's section.
                ungated = cuda.UNGATED + name.removeprefix("cuda:")
                actual = implementations.run_backend(ungated, problem, outputs)
            values += sum(y.size for y in desired)
            differ = differences(actual, desired)
            wrong += [f"{name} {cell} {outputs[i]}" for i in differ]
            section.note(cell=str(cell), kernel=name, differ=list(differ.values()))
    done = len({row["cell"] for row in section.rows})
    text = f"{done} of {len(cells)} cells, {values} values, {len(wrong)} outputs differ"
    return Outcome(done > 0 and not wrong, f"{text} {wrong[:3] or ''}".strip())


def differences(actual, desired) -> dict[int, str]:
    """Where two lists of arrays differ in bits, and how."""
    reports = {
        i: compare_bits(np.asarray(x), np.asarray(y), max_examples=1)
        for i, (x, y) in enumerate(zip(actual, desired, strict=True))
    }
    return {i: str(report) for i, report in reports.items() if not report.equal}


def command_buffers(section: Section) -> Outcome:
    """A program of several GEMMs that XLA records into a CUDA graph: run again, other operands."""
    wrong, values = [], 0
    for name in trusted_kernels(section):
        for seed, arguments in enumerate(chains(1 if section.dry else 4)):
            program = chain_of(name)
            with jax.default_device(gpus()[0]):
                actual = [np.asarray(program(*jax.device_put(x))) for x in (arguments, arguments)]
            with on_cpu():
                desired = np.asarray(chain_of("cpu")(*arguments))
            values += 2 * desired.size
            differ = differences(actual, [desired, desired])
            wrong += [name for _ in differ]
            section.note(kernel=name, seed=seed, differ=list(differ.values()))
            if section.left < 0:
                break
    text = f"{values} values, {len(wrong)} results differ {sorted(set(wrong)) or ''}"
    return Outcome(bool(values) and not wrong, text.strip())


def chains(count: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Operands of the program below."""
    for seed in range(count):
        random = np.random.default_rng(seed)
        codes = (random.integers(0, 120, shape, np.uint8) for shape in ((64, 256), (4, 256, 256)))
        yield tuple(x.view(jax.numpy.float8_e4m3fn) for x in codes)


@functools.cache
def chain_of(backend: str):
    """Four GEMMs, each of whose outputs is the next one's input; b in both layouts."""

    @jax.jit
    def program(x, weights):
        for i, w in enumerate(weights):
            mat2 = w.T if i % 2 else w
            x = mj.scaled_mm(
                x, mat2, np.float32(2**-10), np.float32(1), out_dtype=x.dtype,
                use_fast_accum=i < 2, splitk=1, backend=backend,
            )  # fmt: skip
        return x

    return program
