"""``selftest``: the backends of this machine against the reference."""

import argparse
import functools
import json
import sys


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "selftest",
        help="compare every backend with the reference on this machine, bit for bit",
        description="Computes adversarial GEMMs by every backend that this machine can run and by "
        "the float64 reference, and compares the bits, in a few seconds. "
        "Exit code 0: all equal; 1: some differ; 2: usage.",
    )
    parser.add_argument("--backend", help="only this one, such as cpu:avx2")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    from mmaemu_jax.selftest import selftest

    progress = functools.partial(print, file=sys.stderr if args.json else sys.stdout, flush=True)
    report = selftest(args.backend, progress=progress)
    print(json.dumps(report.to_dict(), indent=1) if args.json else report)
    return 0 if report.ok else 1
