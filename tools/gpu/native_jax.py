"""What does JAX itself return for FP8 dots here, which arithmetic is it, and does emulate agree?

XLA's flags belong to a process, so each combination is one: gpu/native_programs.py.
"""

import collections
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading

from gpu.section import Outcome, Section

#: XLA's flags by name.
FLAGS = {
    "cublas": "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0",
    "triton": "--xla_gpu_autotune_level=0",
    "cublas autotuned": "--xla_gpu_enable_triton_gemm=false",
    "triton autotuned": "",
}
_PROGRAM = "from gpu.native_programs import main; main()"


def compare(section: Section) -> Outcome:
    """emulate with each epilogue mode against every program under every combination of flags."""
    ask(section, "compare")
    good = [row for row in section.rows if "explained" in row]
    explained = collections.Counter(row["flags"] for row in good if row["explained"])
    total = collections.Counter(row["flags"] for row in good)
    text = [f"{name}: {explained[name]} of {n} explained" for name, n in total.items()]
    return outcome(section, text)


def identify(section: Section) -> Outcome:
    """mj.identify of the plain dots under every combination of flags."""
    ask(section, "identify")
    return outcome(
        section,
        [
            f"{row['flags']} {row['program']}: {row['verdict']}, {row['member']}"
            for row in section.rows
            if "verdict" in row
        ],
    )


def outcome(section: Section, text: list[str]) -> Outcome:
    """What was found, and what could not be asked."""
    failed = [f"{r['flags']} {r['program']}: {r['failed']}" for r in section.rows if "failed" in r]
    short = f"; {len(failed)} FAILED, the first: {failed[0]}" if failed else ""
    return Outcome(bool(text) and not failed, "; ".join(text) + short)


def ask(section: Section, mode: str) -> None:
    """Every combination in a process of its own, side by side: most of the time is the CPU's."""
    names = list(FLAGS)[: 1 if section.dry else None]
    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: answers(section, mode, name), names))


def answers(section: Section, mode: str, name: str) -> None:
    """Notes the rows that one process prints, as they come."""
    folder = section.work / "native_jax" / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS[name]}".strip()
    environment = os.environ | {"XLA_FLAGS": flags}
    arguments = [mode, str(folder), str(section.left), "dry" if section.dry else "gpu"]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, *arguments],
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        # So that this section comes to its own end, whatever one program takes.
        over = threading.Timer(max(section.left, 0) + 3, process.kill)
        over.start()
        for line in process.stdout:
            if line.startswith("{"):
                section.note(flags=name, **json.loads(line))
        over.cancel()
    if process.returncode:
        died = f"died with exit status {process.returncode}"
        failed = died if process.returncode != -signal.SIGKILL else "its time was over"
        section.note(flags=name, program="the process", failed=failed)
