"""``identify``: which arithmetic a user's FP8 GEMM, or this machine's own dot, runs."""

import argparse
import importlib
import sys
import traceback

from mmaemu_jax.commands.parsing import shape

_DESCRIPTION = """\
Calls an FP8 GEMM on designed operands, a dozen times at most, and says from the output bits alone
which member of the family it is: blocks, bits, restarts, split-K, order of additions, epilogue.

TARGET is module:function, a callable gemm(a, b) -> c with a [M, K], b [K, N] of float8; --native is
this machine's own FP8 dot, a jitted lax.dot_general on JAX's default device.

Exit code 0: identified; 1: undecided or outside the family; 2: usage."""

_EXAMPLES = """\
examples:
  identify --native --out bf16
  identify mykernels:fp8_gemm --shape 256x256x4096 --json
  identify mykernels:gemm_nt --b-layout nk --operands scale_a,scale_b"""


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "identify",
        help="which arithmetic an FP8 GEMM runs, from its bits",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("target", nargs="?", metavar="TARGET", help="module:function")
    what.add_argument("--native", action="store_true", help="this machine's own FP8 dot")
    formats = ("e4m3", "e5m2")
    parser.add_argument("--a", choices=formats, default="e4m3", help="format of a (e4m3)")
    parser.add_argument("--b", choices=formats, default="e4m3", help="format of b (e4m3)")
    parser.add_argument("--out", default="float32", help="output dtype: f32 (default), bf16, ...")
    parser.add_argument(
        "--shape",
        type=shape,
        action="append",
        metavar="MxNxK",
        help="a shape it may be called with; repeat for more (256x256x4096 and 256x256x4080)",
    )
    parser.add_argument("--budget", type=int, default=12, help="most calls to make (12)")
    parser.add_argument(
        "--b-layout", choices=("kn", "nk"), default="kn", help="b is [K, N] or [N, K]"
    )
    parser.add_argument("--operands", default="", help="such as scale_a,scale_b,bias")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    from mmaemu_jax.arguments import dtype_argument
    from mmaemu_jax.identify import DEFAULT_SHAPES, identify, native_dot

    try:
        out_dtype = dtype_argument("identify", "--out", args.out)
    except TypeError as error:
        raise ValueError(str(error)) from None
    gemm = native_dot(out_dtype) if args.native else _load(args.target)
    found = identify(
        gemm,
        formats=(args.a, args.b),
        out_dtype=out_dtype,
        shapes=args.shape or DEFAULT_SHAPES,
        budget=args.budget,
        operands=tuple(name for name in args.operands.split(",") if name),
        b_layout="kn" if args.native else args.b_layout,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(found.to_json() if args.json else found)
    return 0 if found.verdict == "identified" else 1


def _load(target: str):
    module, colon, name = target.partition(":")
    if not colon:
        raise ValueError(f"identify: {target!r} is not module:function.")
    sys.path.insert(0, "")
    try:
        value = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"identify: cannot load {target!r}: {error}") from None
    finally:
        sys.path.remove("")
    if not callable(value):
        raise ValueError(f"identify: {target!r} is not callable.")
    return _reported(target, value)


def _reported(target: str, gemm):
    """``gemm``, whose errors end the command as those of usage do, after their traceback."""

    def call(*operands, **keywords):
        try:
            return gemm(*operands, **keywords)
        except Exception as error:
            traceback.print_exc()
            given = [f"{x.dtype.name}{list(x.shape)}" for x in operands] + [*keywords]
            raise ValueError(
                f"identify: {target} raised {type(error).__name__} for {', '.join(given)}; "
                "see --a, --b, --shape, --operands and --b-layout."
            ) from error

    return call
