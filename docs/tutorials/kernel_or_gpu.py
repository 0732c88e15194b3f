"""Is my custom kernel right, or is it the GPU?

A kernel's FP8 GEMM differs from the library's in half of its outputs. That alone proves nothing:
tensor cores keep 14 bits, and another order of accumulation gives other bits. The question is
whether *some* legitimate arithmetic explains every bit. Here the kernel is a numpy function that
promotes partial sums every 256 elements where the library does it every 128; a second one also
loses the last block of K, which is a bug.
"""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj

M, N, K = 32, 64, 1280


def cut(x, grid):
    """``x`` rounded toward zero to a multiple of ``grid``."""
    return np.trunc(x / grid) * grid


def exponent(x, smallest):
    """floor(log2 |x|), at least ``smallest``, which zeros get too."""
    return np.where(x == 0, smallest, np.maximum(np.frexp(x)[1] - 1, smallest))


def wgmma(c, a, b):
    """One tensor-core step of 32 products (R3 to R7): c [M, N], a [M, 32], b [N, 32], float64."""
    products = a[:, None, :] * b
    exponents = exponent(a, -6)[:, None, :] + exponent(b, -6)
    largest = np.where(products == 0, -132, exponents).max(-1)
    grid = 2.0 ** (np.maximum(largest, exponent(c, -132)) - 13)
    total = cut(products, grid[..., None]).sum(-1) + cut(c, grid)
    return cut(total, 2.0 ** (exponent(total, -126) - 13))


def my_kernel(a, b, promote_every, k_end=K):
    """A GEMM that adds the tensor core's accumulator to a float32 sum every so many elements."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    total = np.zeros((M, N), np.float32)
    for start in range(0, k_end, promote_every):
        chain = np.zeros((M, N))
        for k in range(start, min(start + promote_every, k_end), 32):
            chain = wgmma(chain, a[:, k : k + 32], b[:, k : k + 32])
        total += chain.astype(np.float32)
    return total


def promoted_every(chunk: int) -> mj.Profile:
    """An H100's block step with another slow chunk (R11)."""
    preset = dataclasses.replace(mj.get_preset("hopper"), name=f"chunk-{chunk}", slow_chunk=chunk)
    return mj.Profile(preset.name, preset)


def explanations(a, b):
    """(name, accumulator) of every arithmetic that a correct kernel might have."""
    yield "cuBLASLt, fast accumulation", mj.accumulate(a, b, use_fast_accum=True, splitk=1)
    yield "cuBLASLt, slow accumulation", mj.accumulate(a, b, use_fast_accum=False, splitk=1)
    for s in (2, 3, 4):
        split = mj.accumulate(a, b, use_fast_accum=True, splitk=(s, "contiguous"))
        yield f"cuBLASLt, fast, K in {s} parts", split
    for chunk in (32, 64, 256, 512):
        with warnings.catch_warnings():  # an arithmetic of one's own is experimental
            warnings.simplefilter("ignore", mj.errors.ExperimentalPresetWarning)
            acc = mj.accumulate(a, b, use_fast_accum=False, splitk=1, profile=promoted_every(chunk))
        yield f"Hopper, promoted every {chunk}", acc


def explain(name, result, candidates):
    print(f"{name}:")
    for candidate, acc in candidates:
        differing = mj.testing.compare_bits(result, acc).differing
        print(f"  {candidate:28} {differing:5} outputs differ{'' if differing else '  <== this'}")
    equal = any(mj.testing.compare_bits(result, acc).equal for _, acc in candidates)
    print("  every bit is explained\n" if equal else "  nothing explains it: look for a bug\n")


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = (mj.quantize(rng.standard_normal((n, K), np.float32), "e4m3", 32.0) for n in (M, N))
    candidates = list(explanations(a, b))
    print(f"{M} x {N} x {K}, {M * N} outputs, float32 accumulators compared bit for bit\n")
    explain("my kernel", my_kernel(a, b, 256), candidates)
    explain("my kernel, next version", my_kernel(a, b, 128, k_end=K - 32), candidates)
    mj.testing.assert_bitwise_equal(jnp.asarray(my_kernel(a, b, 128)), candidates[1][1])
    print("With an interval of 128 and all of K it has the bits of cuBLASLt's slow accumulation.")


if __name__ == "__main__":
    main()
