"""A recording of the GPU that is here, for data files."""

from gpu.library import open_library
from gpu.section import Outcome, Section
from mmaemu_jax import cuda_record


def record(section: Section) -> Outcome:
    """GEMMs first, then decisions; ``python -m mmaemu_jax record`` goes on where this stops."""
    library, folder = open_library(section), section.work / "recording"
    allowed = cuda_record.Budget.of(0.8 * section.seconds)
    count = 4 if section.dry else None
    shapes = [(16, 16, 64), (16, 32, 8192)] if section.dry else None

    def say(line: str) -> None:
        section.note(done=line)

    gemms = cuda_record.record_gemms(library, folder, allowed, count, say=say)
    table = cuda_record.record_decisions(library, folder, allowed, shapes, say=say)
    parts = len(list(folder.glob("decisions-*.npz")))
    name = cuda_record.write_table(library, folder) if parts else "no table"
    library.close()
    left = "all done" if gemms and table else "goes on with python -m mmaemu_jax record"
    return Outcome(True, f"{folder.name}: {name}, {parts} parts; {left}")
