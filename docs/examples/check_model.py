"""Which layer differs, and why? Four projections, recorded while they run, checked one by one.

The "GPU" is emulated, so that this runs anywhere: it does what an H100 does, except that somebody
switched one layer to slow accumulation and that its library splits K of another. The check knows
neither; it reads the files.
"""

import dataclasses
import functools
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj

TOKENS = 64
LAYERS = {"qkv": (256, 256), "out": (256, 256), "up": (256, 1024), "down": (1024, 256)}  # [K, N]
#: What the "GPU" does otherwise.
ODD = {"up": {"use_fast_accum": False}, "down": {"splitk": (3, "contiguous")}}


def quantised(x):
    """E4M3 codes and their scale (448 is the format's largest value)."""
    scale = jnp.max(jnp.abs(x)).astype(jnp.float32) / 448
    return mj.quantize(x, "e4m3", 1 / scale), scale


def model(weights, x, profile="hopper", odd=None):
    """FP8 projections with an activation after each; x is [tokens, K]."""
    for name, weight in zip(LAYERS, weights, strict=True):
        how = {"use_fast_accum": True, "splitk": 1, **(odd or {}).get(name, {})}
        with jax.named_scope(name):
            (a, scale_a), (b, scale_b) = quantised(x), quantised(weight)
            y = mj.scaled_mm(a, b, scale_a, scale_b, out_dtype=jnp.bfloat16, profile=profile, **how)
            x = jax.nn.relu(y / 64)
    return x


def main() -> None:
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.standard_normal(k_n, np.float32)) for k_n in LAYERS.values()]
    x = jnp.asarray(rng.standard_normal((TOKENS, 256), np.float32))
    on_the_gpu = functools.partial(model, odd=ODD)

    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)

        def keep(gemm):
            asked_for = dataclasses.replace(gemm, use_fast_accum=True)  # all that a hook can see
            mj.write_gemm(asked_for, folder / f"{gemm.name}.npz")

        result = mj.record_gemms(on_the_gpu, keep)(weights, x)
        wanted = jax.jit(model)(weights, x)
        differing = mj.testing.compare_bits(result, wanted).differing
        print(f"The model's result: {differing} of {wanted.size} values differ.\n")
        print(mj.check_outputs(folder, "hopper", splitk=1, explain=True))

    print("\nThe same model on an RTX 4060:\n")
    gemms = []
    mj.record_gemms(functools.partial(model, profile="ada"), gemms.append)(weights, x)
    print(mj.check_outputs(gemms, "hopper", splitk=1, explain=True))


if __name__ == "__main__":
    main()
