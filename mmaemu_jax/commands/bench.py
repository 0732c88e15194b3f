"""``bench``: speed, memory and call overhead, as ratios to XLA's float32 dot."""

import argparse
import json
import pathlib
import sys
from typing import Any

from mmaemu_jax.commands import parsing

_OUTPUTS = ("f32", "bf16", "f16", "e4m3", "e5m2")

_DESCRIPTION = """\
Measures jitted scaled_mm calls, each in a fresh process: GMAC/s, the ratio to XLA's float32 dot of
the same shape on the same threads (the two take turns; the best of each counts), peak extra memory,
and the overhead of a call on a tiny shape. Some rows of every result are compared with another
backend, bit for bit. docs/benchmarks.md says what each figure is.

--profile, --formats, --mode, --backend, --shape and --threads may be repeated; the rows are their
product. Without --profile, --formats and --mode, six arithmetics are measured.

Exit code 0: measured, all compared bits equal; 1: some differ; 2: usage, or a refused call."""

_EXAMPLES = """\
examples:
  bench --quick
  bench --shape 16x4096x4096 --weights nk --threads 1 --threads 2
  bench --profile ada --mode slow --mode slow,4 --formats e4m3xe5m2 --backend cpu:avx2
  bench --quick --trace /tmp/trace
  bench --json > bench.json"""


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "bench",
        help="speed against XLA's float32 dot, memory, call overhead; traces",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    many: Any = {"action": "append", "default": []}
    parser.add_argument("--shape", type=_shape, metavar="MxNxK", **many)
    parser.add_argument("--formats", type=_formats, metavar="AxB", help="e4m3xe5m2, ...", **many)
    parser.add_argument("--profile", type=parsing.profile, metavar="NAME", **many)
    parser.add_argument(
        "--mode", metavar="MODE", help="fast, slow, or with a split: fast,4", **many
    )
    parser.add_argument("--backend", metavar="NAME", help="auto (default), cpu:avx2, ...", **many)
    parser.add_argument("--threads", type=int, metavar="N", help="pin to N CPUs (1)", **many)
    parser.add_argument("--out", choices=_OUTPUTS, default="bf16", help="output dtype (bf16)")
    parser.add_argument(
        "--weights", choices=("nk", "kn"), default="nk", help="[N, K] used as w.T (nk), or [K, N]"
    )
    parser.add_argument("--repeat", type=_positive, default=5, help="timed calls at most (5)")
    parser.add_argument("--quick", action="store_true", help="a small shape: seconds, rough")
    parser.add_argument(
        "--trace", type=pathlib.Path, metavar="DIR", help="record and read back profiler traces"
    )
    parser.add_argument(
        "--vs-peer", action="store_true", help="also the torch package mmaemu, if installed"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    from mmaemu_jax.arguments import dtype_argument
    from mmaemu_jax.bench import case, driver, table
    from mmaemu_jax.bench.peer import require_peer

    if args.vs_peer:
        require_peer()
    cases = case.make_cases(
        shapes=args.shape or (case.QUICK_SHAPES if args.quick else case.DEFAULT_SHAPES),
        profiles=args.profile,
        formats=args.formats,
        modes=args.mode,
        backends=args.backend,
        out_dtype=dtype_argument("bench", "--out", args.out).name,
        weights=args.weights,
    )
    progress = _Progress(sys.stderr.isatty())

    def show(row: dict[str, Any]) -> None:
        progress.clear()
        if not args.json:
            if not shown:
                print(table.header())
            shown.append(row)
            print(table.row_line(row), flush=True)

    shown: list[dict[str, Any]] = []
    report = driver.measure(
        cases,
        threads=args.threads or ([1] if driver.can_pin() else [None]),
        repeat=args.repeat,
        trace=args.trace,
        peer=args.vs_peer,
        on_start=progress.show,
        on_row=show,
    )
    progress.clear()
    if args.json:
        print(json.dumps({**_circumstances(), **report}, indent=1))
    else:
        print("\n".join(table.notes(report)))
    return 0 if all(_bits_equal(row) for row in report["rows"]) else 1


class _Progress:
    """A line on stderr that says what is being measured, if somebody watches."""

    def __init__(self, watched: bool):
        self._watched = watched

    def show(self, number: int, total: int, label: str) -> None:
        if self._watched:
            print(f"\r\x1b[K[{number}/{total}] {label}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _circumstances() -> dict[str, Any]:
    from mmaemu_jax.commands.info import gather

    facts = gather()
    return {name: facts[name] for name in ("versions", "machine", "cpu_features")}


def _bits_equal(row: dict[str, Any]) -> bool:
    peer = row["peer"]
    return row["check"]["equal"] and (peer is None or peer.get("equal", True))


def _shape(text: str) -> tuple[int, int, int]:
    m, n, k = parsing.shape(text)
    if min(m, n, k) < 1:
        raise argparse.ArgumentTypeError(f"dimensions must be positive, got {text!r}")
    return m, n, k


def _formats(text: str) -> tuple[str, str]:
    a, _, b = text.partition("x")
    if {a, b} - {"e4m3", "e5m2"}:
        raise argparse.ArgumentTypeError(f"not e4m3xe4m3, e4m3xe5m2 or e5m2xe4m3: {text!r}")
    return a, b


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be positive, got {value}")
    return value
