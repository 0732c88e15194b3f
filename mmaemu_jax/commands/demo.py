"""``demo``: recorded projections of a language model, replayed bit for bit."""

import argparse
import dataclasses
import json


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "demo",
        help="replay recorded FP8 projections of a language model, bit for bit, inside jit",
        description="Replays three recorded FP8 projections of the Evo 2 1B model inside jax.jit. "
        "Exit code 0: every output has the hardware's bits; 1: some differ; 2: usage.",
    )
    parser.add_argument("--backend", default="auto", help="auto, reference, cpu, cpu:avx2, ...")
    parser.add_argument("--no-speed", action="store_true", help="leave out the timed part")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
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
