"""``check``: recorded FP8 GEMMs of a model against the bits of a profile, one by one."""

import argparse
import json
import pathlib
import sys

from mmaemu_jax.commands import parsing

_DESCRIPTION = """\
Reads FP8 GEMMs that a model ran somewhere (an .npz for each, docs/layer-by-layer.md), computes each
with the bits of a profile and compares every output bit: a line for each, printed when it is done.

With --explain it looks for what gives the recorded bits where they differ: the other accumulation,
another split of K, an operand recorded wrongly, another GPU's arithmetic.

Exit code 0: all bits agree; 1: some differ; 2: some could not be read or compared, or usage."""

_EXAMPLES = """\
examples:
  check dumps --profile hopper-te
  check dumps/017-mlp.npz --profile ada --splitk 2,serial
  check dumps --profile hopper --explain --json > report.json"""


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "check",
        help="recorded FP8 GEMMs of a model against a profile, bit for bit; what explains them",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", type=pathlib.Path, nargs="+", metavar="FILE", help="an .npz, or a folder of them"
    )
    parser.add_argument(
        "--profile", type=parsing.profile, metavar="NAME", help="whose bits (the default profile)"
    )
    parser.add_argument(
        "--splitk",
        type=parsing.split,
        default="auto_or_unsplit",
        help="auto_or_unsplit (default), auto, table, live, 1, or S,scheme such as 4,serial",
    )
    parser.add_argument("--explain", action="store_true", help="say what explains a difference")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    from mmaemu_jax.outputs.check import check_outputs, listed
    from mmaemu_jax.outputs.report import Table

    names = [name for name, _ in listed(args.files)]
    table = Table(names)
    done = []

    def show(checked) -> None:
        done.append(checked)
        if not args.json:
            print(table.row(checked, args.explain), flush=True)
        elif sys.stderr.isatty():
            end = "\n" if len(done) == len(names) else ""
            print(f"\r\x1b[K[{len(done)}/{len(names)}] {checked.name}", end=end, file=sys.stderr)

    if not args.json:
        print(table.head(), flush=True)
    report = check_outputs(
        args.files, args.profile, args.splitk, explain=args.explain, on_checked=show
    )
    print(json.dumps(report.to_dict(), indent=1) if args.json else f"\n{report.summary()}")
    return 2 if report.problems else 1 if report.differing else 0
