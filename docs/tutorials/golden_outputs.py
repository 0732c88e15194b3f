"""Golden FP8 outputs in CPU CI: record a layer once, compare bits in every later run.

    python golden_outputs.py            # records to a temporary file, then plays CI against it

The recorded bits are those of the GPU that the profile names, so the same file serves a test that
runs on that GPU.
"""

import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj

TOKENS, IN, OUT = 32, 1024, 256
OPTIONS = {"out_dtype": jnp.bfloat16, "profile": "hopper", "splitk": 1}


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Activations [M, K] and a weight [N, K], float32."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((TOKENS, IN), np.float32), rng.standard_normal((OUT, IN), np.float32)


def layer(x, w, scale_x, scale_w, *, use_fast_accum=True):
    """The code under test: y = x @ w.T in FP8."""
    x8, w8 = mj.quantize(x, "e4m3", scale_x), mj.quantize(w, "e4m3", scale_w)
    scales = (1 / scale_x, 1 / scale_w)
    return mj.scaled_mm(x8, w8.T, *scales, use_fast_accum=use_fast_accum, **OPTIONS)


def record(path: pathlib.Path) -> None:
    """Saves operands, scales and output bits: what another machine needs, and no more."""
    x, w = inputs()
    scales = np.float32(448 / np.abs(x).max()), np.float32(448 / np.abs(w).max())
    y = jax.jit(layer)(x, w, *scales)
    np.savez(path, x=x, w=w, scales=scales, bits=mj.testing.bits_of(y))


def check(path: pathlib.Path, code) -> mj.testing.BitReport:
    """What CI does: run ``code`` on the recorded operands and compare bit patterns."""
    golden = np.load(path)
    y = jax.jit(code)(golden["x"], golden["w"], *golden["scales"])
    return mj.testing.compare_bits(y, golden["bits"].view(jnp.bfloat16))


def slow(*args):
    """The layer after somebody forgot use_fast_accum, whose default in torch is False."""
    return layer(*args, use_fast_accum=False)


def scaled_after(x, w, scale_x, scale_w):
    """The layer after a refactoring that applies the scales to the rounded output."""
    x8, w8 = mj.quantize(x, "e4m3", scale_x), mj.quantize(w, "e4m3", scale_w)
    y = mj.scaled_mm(x8, w8.T, 1.0, 1.0, use_fast_accum=True, **OPTIONS)
    return y * (1 / scale_x * (1 / scale_w)).astype(y.dtype)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "layer.npz"
        record(path)
        profile = OPTIONS["profile"]
        print(f"recorded {path.name}: bfloat16 [{TOKENS}, {OUT}] as {profile!r} gives it\n")
        for name, code in [
            ("unchanged", layer),
            ("slow accumulation", slow),
            ("scales applied late", scaled_after),
        ]:
            report = check(path, code)
            verdict = "pass" if report.equal else "FAIL"
            print(f"{verdict}  {name:20} {report.differing:5} of {report.size} outputs differ")
    print("\nIn a test: mj.testing.assert_bitwise_equal(layer(...), golden)")


if __name__ == "__main__":
    main()
