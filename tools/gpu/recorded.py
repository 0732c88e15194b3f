"""Do the recordings replay on the GPU?"""

import collections
import concurrent.futures
from collections.abc import Callable, Iterator

import jax
import numpy as np
import recordings
import replay

from gpu.bits import differences, gpus, trusted_kernels
from gpu.section import Outcome, Section
from mmaemu_jax import cuda_gate

#: A preset's own instruction, where the GPU has it: its name, and the recordings it must replay.
NATIVE = {
    "cuda:wgmma": ("h100_oracle",),
    "cuda:mma_sync": ("rtx4060_gemm", "rtx4060_epilogue"),
}


#: (set, backend, cases, replay), which returns what differs.
Job = tuple[str, str, int, Callable[[], list[str]]]
#: Of each set in a dry run, so many cases.
DRY_CASES = 2


def programs(backends: list[str], count: int | None = None) -> Iterator[Job]:
    """What is worth most first; ``count`` limits the cases of each set."""
    natives = [(name, own) for name in backends for own in NATIVE.get(name, ())]
    sets = [(name, "auto") for name in recordings.GEMM_SETS]
    for backend, name in [*natives, *((b, n) for n, b in sets)]:
        cases = [case for case in recordings.gemm_cases(name) if case.a is not None][:count]
        calls = [(case, o) for case in cases for o in case.outputs if o.bits is not None]
        for program in replay.plan_programs(calls):
            yield name, backend, len(program.calls), lambda p=program, b=backend: _gemms(p, b)
    for name in recordings.INSTRUCTION_SETS:
        for group in replay.dot_groups(recordings.instruction_cases(name)[:count]):
            yield name, "auto", len(group), lambda g=group: _dots(g)


def _gemms(program: replay.Program, backend: str) -> list[str]:
    desired = [replay.accepted(output) for _, output in program.calls]
    differ = differences(program.run(backend), desired)
    return [f"{program.calls[i][0].id}: {text}" for i, text in differ.items()]


def _dots(cases: list[recordings.InstructionCase]) -> list[str]:
    differ = differences(replay.run_dots(cases, "auto"), [np.asarray(case.d) for case in cases])
    return [f"{cases[i].id}: {text}" for i, text in differ.items()]


def replay_all(section: Section) -> Outcome:
    """Every recorded GEMM and dot by what "auto" takes, and by the instruction that made it."""
    total: collections.Counter = collections.Counter()
    done: collections.Counter = collections.Counter()
    names = trusted_kernels(section)
    every = list(programs(names, DRY_CASES if section.dry else None))
    for name in names:  # here, and not in every thread at the same time
        cuda_gate.verdict(name.removeprefix("cuda:"))
    wrong: list[str] = []

    def one(job) -> None:
        name, backend, count, run = job
        if section.left < 0:
            return
        with jax.default_device(gpus()[0]):
            found = run()
        done[name, backend] += count
        wrong.extend(f"{backend} {text}" for text in found)
        section.note(set=name, backend=backend, cases=count, differ=found)

    for name, backend, count, _ in every:
        total[name, backend] += count
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(one, every[:: 3 if section.dry else 1]))
    text = ", ".join(f"{' '.join(key)} {done[key]} of {n}" for key, n in total.items())
    return Outcome(bool(done) and not wrong, f"{text}; {len(wrong)} outputs differ")
