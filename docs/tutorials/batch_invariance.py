"""Why does a row's output change with the batch size, and what to do about it?

A row of an FP8 GEMM depends on the other rows in one way only: cuBLASLt chooses by M into how many
parts it splits K. This script asks at which M that changes, shows that the bits of a row change
exactly there, and pins the split.
"""

import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj

N, K = 2048, 8192
SETTING = {"a_dtype": "e4m3", "b_dtype": "e4m3", "out_dtype": "bfloat16", "use_fast_accum": True}
BATCHES = (1, 16, 40, 41, 48, 64)
COLUMNS = 256  # of the N that are looked at; a column is its own computation


def main() -> None:
    print(mj.batch_invariance(N, K, M=range(1, 129), **SETTING), end="\n\n")

    rng = np.random.default_rng(0)
    x = mj.quantize(rng.standard_normal((max(BATCHES), K), np.float32), "e4m3", 64.0)
    w = mj.quantize(rng.standard_normal((COLUMNS, K), np.float32), "e4m3", 64.0)

    def first_row(m: int, splitk):
        """Row 0 of the product of the first ``m`` rows."""
        scale = np.float32(2**-6)
        y = mj.scaled_mm(
            x[:m],
            w.T,
            scale,
            scale,
            out_dtype=jnp.bfloat16,
            use_fast_accum=True,
            splitk=splitk,
        )
        return y[0]

    def decided(m: int):
        """What the library does for m rows and all N columns."""
        decision = mj.resolve_splitk(m, N, K, **SETTING)
        return 1 if decision.S == 1 else (decision.S, decision.scheme)

    alone = first_row(1, decided(1))
    print(f"row 0 against the same row in a batch of 1 ({COLUMNS} columns):")
    print("   M   as the library splits      splitk=1 everywhere")
    pinned = first_row(1, 1)
    for m in BATCHES:
        moved = mj.testing.compare_bits(first_row(m, decided(m)), alone).differing
        stays = mj.testing.compare_bits(first_row(m, 1), pinned).differing
        print(f"  {m:2}   {moved:3} outputs differ          {stays:3} outputs differ")

    print("\nWays to a stable row on the GPU: give the library no workspace, so that it never")
    print("splits (profile 'hopper-ws0'), or choose shapes for which it does not:")
    for name, n, k, profile in (
        ("no workspace", N, K, "hopper-ws0"),
        ("a wider layer", 4096, 4096, "hopper"),
    ):
        report = mj.batch_invariance(n, k, M=range(1, 129), profile=profile, **SETTING)
        print(f"  {name:14} N={n} K={k} {profile:10}  batch-invariant: {report.is_invariant}")


if __name__ == "__main__":
    main()
