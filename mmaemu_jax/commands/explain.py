"""``explain``: what a call would do; with ``--sweep-m``, which M change the bits of a row."""

import argparse
import json
import pathlib
import sys
from typing import TYPE_CHECKING

from mmaemu_jax.commands import parsing

if TYPE_CHECKING:
    from mmaemu_jax.batch_invariance import BatchInvarianceReport

_FORMATS = ("e4m3", "e5m2")

_DESCRIPTION = """\
What scaled_mm would do with a GEMM of this shape: whose bits, how K is split and how that is known,
who computes it, which warnings it gives, or what it raises. Nothing is computed.

With --sweep-m it reports which M change the split of K, and with it the bits of a row.

Exit code 0: the call would return, or the sweep was made; 1: the call would raise; 2: usage, or
--plot without matplotlib, which comes with pip install 'mmaemu-jax[plots]'."""

_EXAMPLES = """\
examples:
  explain 16 2048 8192 --out bf16 --fast
  explain 64 1024 4096 --profile ada --splitk 4,serial --json
  explain 2048 8192 --fast --sweep-m 1:4096
  explain 2048 8192 --fast --sweep-m 16:4096:16"""


def add(commands) -> None:
    """Adds the command to the subparsers."""
    from mmaemu_jax.backends import backends_status

    parser = commands.add_parser(
        "explain",
        help="what a call would do, and why; which M change the bits of a row",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dims", type=_dimension, nargs="+", metavar="M N K", help="or N K, swept")
    parser.add_argument("--a", choices=_FORMATS, default="e4m3", help="format of input (e4m3)")
    parser.add_argument("--b", choices=_FORMATS, default="e4m3", help="format of mat2 (e4m3)")
    parser.add_argument(
        "--out",
        type=_output,
        default="bfloat16",
        help="output dtype: f32, bf16 (default here; the call's is input's), f16, e4m3, e5m2",
    )
    parser.add_argument("--fast", action="store_true", help="fast accumulation (else slow)")
    parser.add_argument("--profile", type=parsing.profile, help="whose bits", metavar="NAME")
    parser.add_argument(
        "--splitk",
        type=parsing.split,
        default="auto",
        help="auto (default), table, auto_or_unsplit, live, 1, or S,scheme such as 4,serial",
    )
    parser.add_argument("--scale-result", action="store_true", help="the call has a scale_result")
    names = ["auto", *(s.name for s in backends_status())]
    parser.add_argument("--backend", choices=names, default="auto", metavar="NAME")
    parser.add_argument("--sweep-m", type=_sweep, metavar="FIRST:LAST[:STEP]", help="both included")
    parser.add_argument(
        "--plot", type=pathlib.Path, metavar="FILE", help="draw the sweep (matplotlib)"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    if args.sweep_m is not None:
        return _run_sweep(args)
    if args.plot is not None:
        args.usage_error("--plot draws a sweep: --sweep-m FIRST:LAST")
    if len(args.dims) != 3:
        args.usage_error("M, N and K are needed (N and K with --sweep-m)")
    import jax
    import numpy as np

    from mmaemu_jax.explain import explain
    from mmaemu_jax.formats import format_named

    m, n, k = args.dims
    a, b = (format_named(name) for name in (args.a, args.b))
    assert a is not None and b is not None, "argparse checked the choices"  # noqa: PT018
    plan = explain(
        jax.ShapeDtypeStruct((m, k), a.dtype),
        jax.ShapeDtypeStruct((k, n), b.dtype),
        1.0,
        1.0,
        scale_result=1.0 if args.scale_result else None,
        out_dtype=np.dtype(args.out),
        use_fast_accum=args.fast,
        profile=args.profile,
        splitk=args.splitk,
        backend=args.backend,
    )
    print(json.dumps(plan.to_dict(), indent=1) if args.json else plan)
    return 0 if plan.error is None else 1


def _run_sweep(args: argparse.Namespace) -> int:
    from mmaemu_jax.batch_invariance import batch_invariance

    if len(args.dims) not in (2, 3):
        args.usage_error("N and K, or M, N and K, are needed with --sweep-m")
    *own, n, k = args.dims
    report = batch_invariance(
        n,
        k,
        M=args.sweep_m,
        a_dtype=args.a,
        b_dtype=args.b,
        out_dtype=args.out,
        use_fast_accum=args.fast,
        profile=args.profile,
        splitk=args.splitk,
    )
    if args.json:
        print(json.dumps(report.to_dict(), indent=1))
    else:
        print(report)
        for m in own:
            run_of_m = report.run_of(m)
            print(f"M = {m}: {run_of_m.split if run_of_m else 'not in the sweep'}")
    return 0 if args.plot is None else _plot(report, args.plot)


def _plot(report: "BatchInvarianceReport", path: pathlib.Path) -> int:
    try:
        report.plot(path)
    except ModuleNotFoundError as error:
        print(f"mmaemu_jax: {error}", file=sys.stderr)
        return 2
    return 0


def _dimension(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"a dimension must not be negative, got {value}")
    return value


def _output(text: str) -> str:
    from mmaemu_jax.arguments import dtype_argument

    try:
        return dtype_argument("explain", "--out", text).name
    except TypeError:
        raise argparse.ArgumentTypeError(
            f"unknown output dtype {text!r}; known: f32, bf16, f16, e4m3, e5m2"
        ) from None


def _sweep(text: str) -> range:
    try:
        first, last, *rest = (int(part) for part in text.split(":"))
        (step,) = rest or [1]
    except ValueError:
        raise argparse.ArgumentTypeError(f"not FIRST:LAST or FIRST:LAST:STEP: {text!r}") from None
    if first < 0 or last < first or step < 1:
        raise argparse.ArgumentTypeError(f"needs 0 <= FIRST <= LAST and STEP >= 1, got {text!r}")
    return range(first, last + 1, step)
