"""What does JAX itself return for FP8 dots here, which arithmetic is it, and does emulate agree?

XLA's flags belong to a process, so each combination is one: gpu/native_programs.py.
"""

import collections
import json
import os
import subprocess
import sys
from collections.abc import Iterator

from gpu.section import Outcome, Section

#: XLA's flags by name, the most telling first.
FLAGS = {
    "cublas": "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0",
    "triton autotuned": "",
    "cublas autotuned": "--xla_gpu_enable_triton_gemm=false",
    "triton": "--xla_gpu_autotune_level=0",
}


def compare(section: Section) -> Outcome:
    """emulate with each epilogue mode against every program under every combination of flags."""
    explained: collections.Counter = collections.Counter()
    total: collections.Counter = collections.Counter()
    for row in answers(section, "compare"):
        total[row["flags"]] += 1
        explained[row["flags"]] += bool(row.get("explained"))
    text = "; ".join(f"{name} {explained[name]} of {n} explained" for name, n in total.items())
    return Outcome(not failures(section) and bool(total), "; ".join([text, *failures(section)]))


def identify(section: Section) -> Outcome:
    """mj.identify of the plain dots under every combination of flags."""
    said = [
        f"{row['flags']} {row['program']}: {row['verdict']} {row['member']}"
        for row in answers(section, "identify")
    ]
    return Outcome(not failures(section) and bool(said), "; ".join([*said, *failures(section)]))


def failures(section: Section) -> list[str]:
    """Which combinations did not come to their end."""
    return [f"{row['flags']} {row['failed']}" for row in section.rows if "failed" in row]


def answers(section: Section, mode: str) -> Iterator[dict]:
    """The rows that the processes print, as they come, each noted."""
    for name, flags in list(FLAGS.items())[: 1 if section.dry else None]:
        if section.left < 5:
            section.note(flags=name, failed="had no time left")
            continue
        folder = section.work / "native_jax" / name.replace(" ", "_")
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}
        arguments = [mode, str(folder), str(section.left), "dry" if section.dry else "gpu"]
        with subprocess.Popen(
            [sys.executable, "-P", "-c", "from gpu.native_programs import main; main()", *arguments],
            env=environment, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    row = {"flags": name, **json.loads(line)}
                    section.note(**row)
                    yield row
        if process.returncode:
            section.note(flags=name, failed=f"died with exit status {process.returncode}")
