"""The process of one combination of XLA's flags: FP8 programs, their HLO and their bits.

It prints one line of JSON for each program as soon as it is done.
"""

import functools
import importlib.util
import itertools
import json
import pathlib
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj

SHAPES = ((64, 128, 256), (128, 64, 1040), (256, 256, 8192))
DRY_SHAPES = ((16, 32, 64),)
PRECISIONS = ("DEFAULT", "HIGHEST", "HIGH")
#: identify: shape and calls at most.
QUESTION, CALLS = (256, 256, 4096), 12
DRY_QUESTION = (40, 40, 384)
#: Splits to try where the table's explains nothing: XLA's library may be another version.
SPLITS = (2, 3, 4, 6, 8)
EPILOGUES = ("xla", "jaxpr")
MODES = {None: "as its precision says", True: "fast", False: "slow"}
_DIMS = (((1,), (1,)), ((), ()))


def dot(precision: str, out_dtype=jnp.bfloat16) -> Callable:
    """lax.dot_general of float8 a [M, K] and b [N, K] at a precision."""

    def program(a, b):
        return jax.lax.dot_general(
            a, b, _DIMS, precision=jax.lax.Precision[precision], preferred_element_type=out_dtype
        )

    return program


def programs(dry: bool) -> Iterator[tuple[str, Callable, tuple]]:
    """(name, function, arguments)."""
    random = np.random.default_rng(0)
    for (m, n, k), precision in itertools.product(DRY_SHAPES if dry else SHAPES, PRECISIONS):
        a, b = (jnp.asarray(random.normal(size=(rows, k)), jnp.float8_e4m3fn) for rows in (m, n))
        yield f"{precision} {m}x{n}x{k}", dot(precision), (a, b)
    yield from flax_programs(random)


def flax_programs(random) -> Iterator[tuple[str, Callable, tuple]]:
    """flax's FP8 dot, forward with and without a bias, and backward, where flax is installed.

    Everything is an argument, so that the compiler folds nothing.
    """
    if importlib.util.find_spec("flax") is None:
        return
    from flax import linen as nn
    from flax.linen import fp8_ops

    x = jnp.asarray(random.normal(size=(64, 256)), jnp.bfloat16)
    weights = jnp.asarray(random.normal(size=(64, 128)), jnp.float32)
    for bias in (False, True):
        layer = nn.Dense(128, use_bias=bias, dot_general_cls=fp8_ops.Fp8DirectDotGeneralOp,
                         dtype=jnp.bfloat16)  # fmt: skip
        variables = jax.tree.map_with_path(scaled, layer.init(jax.random.key(0), x))
        params, meta = variables.pop("params"), variables

        def forward(params, meta, x, layer=layer):
            return layer.apply({"params": params, **meta}, x)

        yield f"flax forward{' and bias' * bias}", forward, (params, meta, x)

    def loss(params, x, meta, weights):
        return (forward(params, meta, x).astype(jnp.float32) * weights).sum()

    yield "flax backward", jax.grad(loss, (0, 1)), (params, x, meta, weights)


def scaled(path, leaf: jax.Array) -> jax.Array:
    """Scales that are no powers of two and biases that are not zero, so that rounding shows."""
    name = jax.tree_util.keystr(path)
    if name.endswith("scale']"):
        return leaf * jnp.float32(0.0137)
    return leaf + jnp.linspace(-2, 2, leaf.size, dtype=leaf.dtype) if "bias" in name else leaf


def bits_of(tree) -> bytes:
    """The bits of all arrays of a result."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))


def codes(name: str, tree) -> dict[str, np.ndarray]:
    """The arrays of a tree as uint8, for a file."""
    leaves = [np.atleast_1d(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
    return {f"{name}{i}": leaf.view(np.uint8) for i, leaf in enumerate(leaves)}


def native(function: Callable, dry: bool) -> Callable:
    """The function as JAX computes it; in a dry run an emulated one stands for it."""
    return mj.emulate(function, profile_here()) if dry else function


def profile_here() -> str:
    """The profile of XLA's call on the GPU that is here."""
    capability = getattr(jax.devices()[0], "compute_capability", "9.0")
    return "ada" if capability == "8.9" else "hopper-xla"


def explanations(function: Callable, arguments: tuple, bits: bytes, deep: bool) -> list[str]:
    """The epilogue modes, accumulations and splits with which emulate returns these bits."""
    found = []
    rounds = [["auto_or_unsplit"], [(s, "contiguous") for s in SPLITS] if deep else []]
    for splits in rounds:
        for epilogue, fast, split in itertools.product(EPILOGUES, MODES, splits):
            if emulated_bits(function, arguments, epilogue, fast, split) == bits:
                said = "" if split == "auto_or_unsplit" else f", split {split[0]}"
                found.append(f"epilogue {epilogue}, {MODES[fast]}{said}")
        if found:
            break
    return found


def emulated_bits(function: Callable, arguments: tuple, epilogue, fast, split) -> bytes:
    """The bits of the emulated program, on the CPU."""
    options = {"epilogue": epilogue, "use_fast_accum": fast}
    emulated = mj.emulate(function, profile_here(), split, **options)
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu), warnings.catch_warnings():
        warnings.simplefilter("ignore", mj.errors.MmaemuWarning)
        return bits_of(jax.jit(emulated)(*jax.device_put(arguments, cpu)))


Job = tuple[str, Callable[[], dict]]


def compare(folder: pathlib.Path, dry: bool) -> Iterator[Job]:
    """Each program here, and what explains its bits."""

    def one(name, function, arguments):
        compiled = jax.jit(native(function, dry)).lower(*arguments).compile()
        output = compiled(*arguments)
        stem, text = name.replace(" ", "_"), compiled.as_text() or ""
        (folder / f"{stem}.hlo.txt").write_text(text)
        np.savez(folder / f"{stem}.npz", **codes("in", arguments), **codes("out", output))
        deep = name.endswith("8192") and not name.startswith("HIGH ")
        found = explanations(function, arguments, bits_of(output), deep)
        return {"explained": found, "calls": custom_calls(text)}

    for case in programs(dry):
        yield case[0], functools.partial(one, *case)


def custom_calls(text: str) -> list[str]:
    """What the compiler made of the dots: library calls and Triton fusions, by name."""
    words = ("__cublas$lt$matmul$f8", "__cublas$lt$matmul", "__cublas$gemm", "__triton_gemm")
    words += ("__triton_nested_gemm_fusion", "__cudnn$fusion")
    return [word for word in words if f'"{word}"' in text]


def identify(folder: pathlib.Path, dry: bool) -> Iterator[Job]:
    """mj.identify of the plain dot at each precision, float32 and bfloat16."""

    def one(precision, out_dtype):
        found = mj.identify(
            jax.jit(native(dot(precision, out_dtype), dry)), formats="e4m3", out_dtype=out_dtype,
            shapes=[DRY_QUESTION if dry else QUESTION], budget=CALLS, b_layout="nk",
        )  # fmt: skip
        name = f"identify_{precision}_{np.dtype(out_dtype).name}.json"
        (folder / name).write_text(found.to_json())
        return {"verdict": found.verdict, "member": str(found.member or found.nearest)}

    for out_dtype, precision in itertools.product((jnp.float32, jnp.bfloat16), PRECISIONS[:2]):
        name = f"{precision} {np.dtype(out_dtype).name}"
        yield name, functools.partial(one, precision, out_dtype)


def main() -> None:
    """Arguments: compare or identify, a folder, seconds, dry or gpu."""
    mode, folder, seconds, where = sys.argv[1:]
    end, dry = time.monotonic() + float(seconds), where == "dry"
    for name, job in {"compare": compare, "identify": identify}[mode](pathlib.Path(folder), dry):
        row = {"program": name}
        if time.monotonic() > end:
            row["failed"] = "had no time left"
        else:
            try:
                row |= job()
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:200]
                row["traceback"] = traceback.format_exc()
        print(json.dumps(row), flush=True)
