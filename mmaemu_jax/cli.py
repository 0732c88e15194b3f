"""The command line: ``python -m mmaemu_jax`` or ``mmaemu-jax``."""

import argparse
import os
import sys
from collections.abc import Sequence

from mmaemu_jax.commands import (
    bench,
    check,
    compare,
    demo,
    explain,
    identify,
    info,
    record,
    selftest,
)
from mmaemu_jax.errors import MmaemuError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mmaemu_jax",
        description="The exact bits of NVIDIA tensor-core FP8 GEMMs inside JAX programs.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (info, explain, selftest, demo, bench, compare, identify, check, record):
        command.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    args = _parser().parse_args(argv)
    try:
        code = args.run(args)
        sys.stdout.flush()
    except (MmaemuError, ValueError) as error:
        print(f"mmaemu_jax: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe went away, and what is buffered is for nobody
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
