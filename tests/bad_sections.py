"""Sections of tools/gpu_check.py that go wrong, each in its own way."""

import os
import time

from gpu.section import Outcome, Section


def works(section: Section) -> Outcome:
    section.note(seen=section.name)
    return Outcome(True, "as it should")


def raises(section: Section) -> Outcome:
    section.note(before=1)
    raise RuntimeError("no such thing")


def dies(section: Section) -> Outcome:
    section.note(before=2)
    os._exit(9)


def hangs(section: Section) -> Outcome:
    section.note(before=3)
    if os.fork() == 0:  # a child that outlives its parent would hold the GPU
        (section.work / "child").write_text(str(os.getpid()))
        time.sleep(60)
    time.sleep(60)
    return works(section)


def nothing(section: Section) -> Outcome:
    return Outcome(None, "nothing to ask")
