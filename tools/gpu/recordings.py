"""Do the recordings replay on the GPU?"""

import concurrent.futures
import time

import jax
import recordings
import replay
from gpu_check import Outcome, Run

from gpu.bits import device
from mmaemu_jax.testing.bits import compare_bits


def replay_all(run: Run, budget: float) -> Outcome:
    """The GEMM sets as recorded, by what "auto" takes on the device."""
    end, counts, wrong = time.monotonic() + budget, {}, []

    def replayed(case) -> list[str] | None:
        if time.monotonic() > end:
            return None
        with jax.default_device(device(run)):
            values = replay.as_recorded(case, "auto")
        outputs = [output for output in case.outputs if output.bits is not None]
        pairs = zip(outputs, values, strict=True)
        return [case.id for o, v in pairs if not compare_bits(v, o.bits, max_examples=1).equal]

    for name in recordings.GEMM_SETS:
        cases = [case for case in recordings.gemm_cases(name) if case.a is not None]
        cases = cases[: 3 if run.dry else None]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = [found for found in pool.map(replayed, cases) if found is not None]
        counts[name] = f"{len(results)} of {len(cases)}"
        wrong += [case_id for found in results for case_id in found]
    text = ", ".join(f"{name} {count}" for name, count in counts.items())
    return Outcome("", not wrong, f"{text}; {len(wrong)} outputs differ", details=wrong)
