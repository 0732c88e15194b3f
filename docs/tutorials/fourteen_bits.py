"""What "14-bit accumulation" means, and what it costs.

FP8 tensor cores of Hopper and Ada align the products of a block to the largest and keep 13
fraction bits: 14 with the leading one. The sum goes into a register of float32's exponent range
and 13 fraction bits, 1 + 8 + 13 = 22 bits: "FP22". Both numbers describe the same hardware.

    python fourteen_bits.py
    python fourteen_bits.py --plot errors.png       # the same tables as curves; needs matplotlib
"""

import argparse
import warnings

import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj

F8 = jnp.float8_e4m3fn
M = N = 64
SIZES = (512, 1024, 2048, 4096, 8192)


def what_survives() -> None:
    """1 + 2^-n as two products of one block."""
    print("1 + 2^-n in one block, as each model returns it:")
    print("   n   hopper    ada       b200_mma_sync")
    for n in (12, 13, 14, 18):
        half = n // 2
        a = jnp.array([1, 2.0**-half], F8)
        b = jnp.array([1, 2.0 ** (half - n)], F8)
        with warnings.catch_warnings():  # the B200 model is experimental
            warnings.simplefilter("ignore", mj.errors.ExperimentalPresetWarning)
            sums = [float(mj.dot(a, b, preset=p)) for p in ("hopper", "ada", "b200_mma_sync")]
        print(f"  {n:2}   {'      '.join('kept' if s > 1 else 'lost' for s in sums)}")
    print("Hopper and Ada cut after 13 fraction bits. The B200 model keeps 25 in the alignment.\n")


def errors(a, b, fast: bool) -> tuple[float, float]:
    """Normwise error and bias of the accumulators against the exact sums."""
    acc = np.asarray(mj.accumulate(a, b, use_fast_accum=fast, splitk=1), np.float64)
    exact = np.asarray(a, np.float64) @ np.asarray(b, np.float64).T
    wrong = acc - exact
    bias = np.sum(wrong * np.sign(exact)) / np.sum(np.abs(exact))
    return float(np.linalg.norm(wrong) / np.linalg.norm(exact)), float(bias)


def table(title: str, draw) -> list[tuple[float, float]]:
    """Prints errors and biases by K; returns the errors (fast, slow)."""
    print(title)
    print("      K   fast: error    bias      slow: error    bias")
    rows = []
    for k in SIZES:
        a, b = (mj.quantize(draw((n, k), np.float32), "e4m3", 64.0) for n in (M, N))
        (fast, fast_bias), (slow, slow_bias) = errors(a, b, True), errors(a, b, False)
        print(f"  {k:5}      {fast:8.1e}  {fast_bias:+8.3%}        {slow:8.1e}  {slow_bias:+8.3%}")
        rows.append((fast, slow))
    print()
    return rows


def plot(path: str, rows_by_title: dict[str, list[tuple[float, float]]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (title, rows), color in zip(rows_by_title.items(), ("tab:blue", "tab:orange"), strict=True):
        for curve, mode, line in zip(zip(*rows, strict=True), ("fast", "slow"), "-:", strict=True):
            axes.loglog(SIZES, curve, line, color=color, marker="o", label=f"{title}, {mode}")
    axes.set_xticks(SIZES, map(str, SIZES))
    axes.minorticks_off()
    axes.set(xlabel="K", ylabel="error of the accumulators / exact, by norm")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args()
    what_survives()
    rng = np.random.default_rng(0)
    rows = {
        "normal": table("Normal data: truncation errors partly cancel.", rng.standard_normal),
        "in [0, 1)": table("Data in [0, 1): every truncation points the same way.", rng.random),
    }
    print("Slow accumulation (R11) restarts the 14-bit chain every 128 elements and adds the")
    print("chains in float32; so the error stops growing with K. That is the 'promotion' of")
    print("DeepSeek-V3, CUTLASS and DeepGEMM, and use_fast_accum=False.")
    if options.plot:
        plot(options.plot, rows)


if __name__ == "__main__":
    main()
