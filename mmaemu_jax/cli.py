"""The command line: ``python -m mmaemu_jax`` or ``mmaemu-jax``."""

import argparse
import json
import sys
from collections.abc import Sequence

from mmaemu_jax.errors import MmaemuError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mmaemu_jax",
        description="The exact bits of NVIDIA tensor-core FP8 GEMMs inside JAX programs.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="replay recorded FP8 projections of a language model, bit for bit, inside jit",
        description="Replays three recorded FP8 projections of the Evo 2 1B model inside jax.jit. "
        "Exit code 0: every output has the hardware's bits; 1: some differ; 2: usage.",
    )
    demo.add_argument("--backend", default="auto", help="auto, reference, cpu, cpu:avx2, ...")
    demo.add_argument("--no-speed", action="store_true", help="leave out the timed part")
    demo.add_argument("--json", action="store_true", help="print the figures as JSON")
    demo.set_defaults(run=_demo)
    return parser


def _demo(args: argparse.Namespace) -> int:
    import dataclasses

    from mmaemu_jax import demo
    from mmaemu_jax.backends import check_backend

    check_backend("demo", args.backend)
    if not args.json:
        return demo.run(args.backend, speed=not args.no_speed)
    reports = list(demo.replay(args.backend))
    speed = [] if args.no_speed else list(demo.measure(args.backend))
    print(
        json.dumps(
            {
                "projections": [dataclasses.asdict(r) for r in reports],
                "speed": [dataclasses.asdict(s) for s in speed],
            },
            indent=1,
        )
    )
    return 0 if all(r.ada.differing == 0 for r in reports) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except (MmaemuError, ValueError) as error:
        print(f"mmaemu_jax: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe went away
        return 1


if __name__ == "__main__":
    sys.exit(main())
