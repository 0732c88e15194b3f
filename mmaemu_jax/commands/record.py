"""``record``: the split-K decisions and GEMMs of the GPU that is here, as data files."""

import argparse
import pathlib

from mmaemu_jax.commands import parsing


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "record",
        help="write down how this machine's cuBLASLt splits K, and what its GEMMs return",
        description="Asks the cuBLASLt of this machine's first GPU, with torch 2.7.1's descriptor, "
        "for its split-K decisions on a grid of shapes and for the bits of some GEMMs. FOLDER "
        "then holds a table, a recording, and profile.json for profile='FOLDER/profile.json'; run "
        "it again to go on where the time ran out (docs/adding-a-platform.md). Exit code 0: all "
        "done; 1: time ran out, or replayed bits differ; 2: no GPU or no cuBLASLt.",
    )
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="start nothing new after that (default 5)"
    )
    parser.add_argument("--library", metavar="PATH", help="libcublasLt.so to use")
    parser.add_argument("--driver", metavar="PATH", default="libcuda.so.1", help="CUDA driver")
    parser.add_argument(
        "--replay",
        action="store_true",
        help="record nothing: compute the recorded GEMMs on the processor and compare bits (no "
        "GPU needed; exit code 1 if some differ)",
    )
    parser.add_argument(
        "--profile",
        type=parsing.profile,
        metavar="NAME",
        help="with --replay: whose arithmetic (default FOLDER/profile.json)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    return _replay(args) if args.replay else _record(args)


def _replay(args: argparse.Namespace) -> int:
    from mmaemu_jax.cuda_replay import replay

    gemms = equal = values = 0
    for found in replay(args.folder, args.profile):
        gemms += 1
        if found.problem is None:
            equal += 1
            values += found.report.size if found.report else 0
        else:
            print(f"{found.case_id}: {found.call}: {found.problem}")
    print(f"{equal} of {gemms} GEMMs replayed, {values} values bit for bit")
    return 0 if equal == gemms else 1


def _record(args: argparse.Namespace) -> int:
    from mmaemu_jax import cuda_record
    from mmaemu_jax.cuda_cublaslt import CublasLt
    from mmaemu_jax.cuda_driver import CudaDriver
    from mmaemu_jax.cuda_profile import write_recorded_profile

    budget = cuda_record.Budget.of(60 * args.minutes)
    library = CublasLt(args.library, CudaDriver(args.driver))
    print(f"{library.driver}, cuBLASLt {library.version}", flush=True)
    # The GEMMs first: they are few, and the table is never complete.
    gemms_done = cuda_record.record_gemms(library, args.folder, budget)
    table_done = cuda_record.record_decisions(library, args.folder, budget)
    if any(args.folder.glob("decisions-*.npz")):
        table_id = cuda_record.write_table(library, args.folder)
        print(f"table {table_id}")
        print(write_recorded_profile(library, args.folder, table_id))
    library.close()
    if not (gemms_done and table_done):
        print("the time ran out; run the command again to go on")
        return 1
    return 0
