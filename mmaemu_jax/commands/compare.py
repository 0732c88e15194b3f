"""``compare``: a small language model trained under several FP8 arithmetics, and a report."""

import argparse
import contextlib
import dataclasses
import functools
import pathlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

_DESCRIPTION = """\
Trains the same small transformer language model on the same text under several arithmetics and
writes a report directory: index.html (open it first), plots, metrics.jsonl (every measured value)
and config.json. docs/compare.md says what is measured. The defaults take about ten minutes on two
cores. Interrupted, it goes on with --resume and gives the same bits.

Exit code 0: done; 2: usage, or a directory that holds something else; 130: interrupted."""

_EXAMPLES = """\
examples:
  compare --out report
  compare --out report --resume
  compare --out short --variants fp8-float32,hopper-fast --steps 20 --seeds 0
  compare --out report --report-only      # the page again, from metrics.jsonl
  compare --list"""


def add(commands) -> None:
    """Adds the command to the subparsers."""
    parser = commands.add_parser(
        "compare",
        help="train a small language model under several arithmetics; a report of what differs",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("compare-report"), metavar="DIR",
        help="report directory (compare-report)",
    )  # fmt: skip
    parser.add_argument(
        "--variants", type=_names, metavar="NAME,...", help="the first is the reference; see --list"
    )
    parser.add_argument("--steps", type=_positive, default=50, help="training steps (50)")
    parser.add_argument("--seeds", type=_seeds, default=(0, 1, 2), metavar="S,...", help="(0,1,2)")
    parser.add_argument("--resume", action="store_true", help="go on with what is in DIR")
    parser.add_argument("--report-only", action="store_true", help="write the page of DIR again")
    parser.add_argument("--list", action="store_true", help="print the variants and exit")
    sizes = parser.add_argument_group("the model")
    for name, text in (
        ("width", "of the residual stream"),
        ("hidden", "of the feed-forward layer"),
        ("blocks", "transformer blocks"),
        ("heads", "attention heads"),
        ("sequences", "sequences of a batch"),
        ("length", "symbols of a sequence"),
    ):
        sizes.add_argument(f"--{name}", type=_positive, metavar="N", help=text)
    sizes.add_argument("--learning-rate", type=float, default=5e-4, metavar="R", help="(5e-4)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns its exit code."""
    from mmaemu_jax.training.comparison import DEFAULT_VARIANTS, VARIANTS, load_comparison

    if args.list:
        for name, variant in VARIANTS.items():
            mark = "*" if name in DEFAULT_VARIANTS else " "
            print(f"{mark} {name:<18} {variant.description}")
        print("* compared unless --variants says otherwise")
        return 0
    if args.report_only:
        comparison = load_comparison(args.out)
        print(comparison.write_report(args.out))
        return 0
    _note_missing_plots()
    try:
        with _collected_warnings() as collected:
            comparison = _train(args)
    except KeyboardInterrupt:
        print(
            f"\ninterrupted; go on with the same options, --out {args.out} and --resume",
            file=sys.stderr,
        )
        return 130
    for text in collected:
        print(f"warning: {text}", file=sys.stderr)
    print(comparison.summary())
    print(f"\nreport: {args.out / 'index.html'}")
    return 0


def _train(args: argparse.Namespace):
    from mmaemu_jax.data.text import WONDERLAND_SHA256, load_wonderland, text_batch
    from mmaemu_jax.errors import unknown_name
    from mmaemu_jax.training.comparison import DEFAULT_VARIANTS, VARIANTS, compare
    from mmaemu_jax.training.comparison import language_model as lm

    names = args.variants or DEFAULT_VARIANTS
    for name in names:
        if name not in VARIANTS:
            raise unknown_name("variant", name, VARIANTS, "compare --list describes them")
    shape = _shape(args)
    text, alphabet = load_wonderland()
    blocks = f"{shape.blocks} block{'s' * (shape.blocks > 1)}"
    about: dict[str, Any] = {
        "model": f"transformer, {blocks} of width {shape.width} (feed-forward "
        f"{shape.hidden}), {shape.heads} heads; float32 parameters, bfloat16 activations, Adam "
        f"with learning rate {args.learning_rate}",
        "batch": f"{shape.sequences} sequences of {shape.length} symbols",
        "text": f"Alice's Adventures in Wonderland, {text.size} bytes, {len(alphabet)} symbols "
        f"(SHA-256 {WONDERLAND_SHA256[:12]}...)",
        "command": _command(args, names),
    }
    return compare(
        functools.partial(lm.train_step, shape, args.learning_rate),
        {name: VARIANTS[name] for name in names},
        init=functools.partial(lm.init_state, shape, len(alphabet)),
        batches=functools.partial(text_batch, shape.sequences, shape.length),
        steps=args.steps,
        seeds=args.seeds,
        loss=functools.partial(lm.loss_fn, shape),
        sites=shape.sites,
        directory=args.out,
        resume=args.resume,
        title="a small language model",
        about=about,
        progress=sys.stderr,
    )


def _shape(args: argparse.Namespace):
    from mmaemu_jax.training.comparison.language_model import ModelShape

    names = [field.name for field in dataclasses.fields(ModelShape)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return ModelShape(**given)


def _command(args: argparse.Namespace, names) -> str:
    """The options that decide the bits, as a command line."""
    options = {
        "variants": ",".join(names),
        "steps": args.steps,
        "seeds": ",".join(map(str, args.seeds)),
        **dataclasses.asdict(_shape(args)),
        "learning-rate": args.learning_rate,
    }
    text = " ".join(f"--{name} {value}" for name, value in options.items())
    return f"python -m mmaemu_jax compare --out report {text}"


@contextlib.contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """This package's warnings, each once and after the progress bar; others pass."""
    from mmaemu_jax.errors import MmaemuWarning

    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MmaemuWarning)
        yield texts
    for warning in caught:
        if not issubclass(warning.category, MmaemuWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        elif str(warning.message) not in texts:
            texts.append(str(warning.message))


def _note_missing_plots() -> None:
    from mmaemu_jax.plotting import have_matplotlib

    if not have_matplotlib():
        print(
            "matplotlib is not installed: the report will have tables and no plots. Install it and "
            "run compare --report-only to add them.",
            file=sys.stderr,
        )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(set(names)) < len(names) or len(names) < 2:
        raise argparse.ArgumentTypeError(f"not two or more different names: {text!r}")
    return names


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not integers with commas: {text!r}") from None


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be positive, got {value}")
    return value
