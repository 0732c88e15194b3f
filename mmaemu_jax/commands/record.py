"""``record``: the split-K decisions and GEMMs of the GPU that is here, as data files."""

import argparse
import pathlib


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "record",
        help="write down how this machine's cuBLASLt splits K, and what its GEMMs return",
        description="Asks the cuBLASLt of this machine's first GPU, with torch 2.7.1's descriptor, "
        "for its split-K decisions on a grid of shapes and for the bits of some GEMMs. FOLDER "
        "then holds a table and a recording; run it again to go on where the time ran out. "
        "docs/cuda.md says how they become a platform. Exit code 0: all done; 1: time ran out; 2: "
        "no GPU or no cuBLASLt.",
    )
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="start nothing new after that (default 5)"
    )
    parser.add_argument("--library", metavar="PATH", help="libcublasLt.so to use")
    parser.add_argument("--driver", metavar="PATH", default="libcuda.so.1", help="CUDA driver")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    from mmaemu_jax import cuda_record
    from mmaemu_jax.cuda_cublaslt import CublasLt
    from mmaemu_jax.cuda_driver import CudaDriver

    budget = cuda_record.Budget.of(60 * args.minutes)
    library = CublasLt(args.library, CudaDriver(args.driver))
    print(f"{library.driver}, cuBLASLt {library.version}", flush=True)
    # The GEMMs first: they are few, and the table is never complete.
    gemms_done = cuda_record.record_gemms(library, args.folder, budget)
    table_done = cuda_record.record_decisions(library, args.folder, budget)
    if any(args.folder.glob("decisions-*.npz")):
        print(f"table {cuda_record.write_table(library, args.folder)}")
    library.close()
    if not (gemms_done and table_done):
        print("the time ran out; run the command again to go on")
        return 1
    return 0
