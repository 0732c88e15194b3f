"""``python -m mmaemu_jax.studies``: the published claims about FP8 accumulation, recomputed."""

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence

from mmaemu_jax.commands import parsing
from mmaemu_jax.errors import MmaemuError
from mmaemu_jax.studies import DISTRIBUTIONS, error_by_k, plot_error_by_k, retained_bits


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the studies; writes them and their plot if asked to."""
    parser = argparse.ArgumentParser(
        prog="mmaemu_jax.studies",
        description="Error by K of fast, slow and float32 accumulation, and the bits each keeps.",
    )
    parser.add_argument("--profile", type=parsing.profile, metavar="NAME", help="whose (hopper)")
    parser.add_argument(
        "--distribution", action="append", choices=tuple(DISTRIBUTIONS), help="normal, non-negative"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="draw them (matplotlib)")
    args = parser.parse_args(argv)
    try:
        _run(args)
    except (MmaemuError, ValueError, ModuleNotFoundError) as error:
        print(f"mmaemu_jax.studies: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: argparse.Namespace) -> None:
    print(f"{'bits kept of a sum that is 1':<30}{'in the block':>14}{'next block':>12}{'chunk':>8}")
    for way in ("fast", "slow", "float32"):
        kept = retained_bits(way, args.profile)
        print(f"{way:<30}{kept.within_block:>14}{kept.next_block:>12}{kept.next_chunk:>8}")
    rows = []
    for distribution in args.distribution or ("normal", "non-negative"):
        print(f"\n{distribution} data\n{'K':>6} {'accumulation':<20}{'norm error':>12}"
              f"{'largest':>12}{'bias':>12}{'bf16 differ':>13}")  # fmt: skip
        for row in error_by_k(distribution=distribution, profile=args.profile):
            rows.append(row)
            print(f"{row.k:>6} {row.accumulation:<20}{row.norm_error:>12.2e}"
                  f"{row.largest_error:>12.2e}{row.bias:>12.2e}{row.differing_bf16:>13.2%}",
                  flush=True)  # fmt: skip
    if args.json is not None:
        args.json.write_text("".join(json.dumps(dataclasses.asdict(r)) + "\n" for r in rows))
    if args.plot is not None:
        plot_error_by_k(rows, args.plot)


if __name__ == "__main__":
    sys.exit(main())
