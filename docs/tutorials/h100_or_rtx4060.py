"""Why do an H100 and an RTX 4060 give different bits for the same FP8 GEMM?

Three causes, taken apart on one GEMM whose split of K is recorded for both GPUs: the block step
adds 32 products at a time on Hopper and 16 on Ada; the library splits K in other ways; and it adds
the parts in another order.
"""

import jax.numpy as jnp
import numpy as np

import mmaemu_jax as mj

M, N, K = 64, 512, 8192
F8 = jnp.float8_e4m3fn


def the_smallest_example() -> None:
    """256 - 256 + 2^-6: does the small number survive?"""
    a = jnp.zeros(32, F8).at[jnp.array([0, 1, 16])].set(jnp.array([16, -16, 2**-6], F8))
    b = jnp.zeros(32, F8).at[jnp.array([0, 1, 16])].set(jnp.array([16, 16, 1], F8))
    print("256 - 256 + 2^-6, the last product in the second half of 32:")
    for preset in ("hopper", "ada"):
        result = float(mj.dot(a, b, preset=preset))
        print(f"  {preset:6}  {mj.get_preset(preset).nfma} products at a time: {result}")
    print("Hopper aligns all 32 products to 256 and keeps 13 bits below it; Ada has already")
    print("cancelled 256 - 256 when the second 16 products arrive.\n")


def share(x, y) -> str:
    report = mj.testing.compare_bits(x, y)
    return f"{100 * report.differing / report.size:5.1f} % of outputs differ"


def main() -> None:
    the_smallest_example()
    rng = np.random.default_rng(0)
    a, b = (mj.quantize(rng.standard_normal((n, K), np.float32), "e4m3", 64.0) for n in (M, N))

    def gemm(profile, splitk, fast=True, out_dtype=jnp.bfloat16):
        scale = np.float32(2**-6)
        return mj.scaled_mm(
            a,
            b.T,
            scale,
            scale,
            out_dtype=out_dtype,
            use_fast_accum=fast,
            profile=profile,
            splitk=splitk,
        )

    print(f"{M} x {N} x {K}, normal data, bfloat16 output:")
    print(f"  unsplit on both, fast accumulation:  {share(gemm('hopper', 1), gemm('ada', 1))}")
    slow = share(gemm("hopper", 1, fast=False), gemm("ada", 1, fast=False))
    print(f"  unsplit on both, slow accumulation:  {slow}")
    f32 = share(*(gemm(p, 1, out_dtype=jnp.float32) for p in ("hopper", "ada")))
    print(f"  unsplit, fast, float32 output:       {f32}\n")

    print("What the libraries were recorded to do with this GEMM:")
    for profile in ("hopper", "ada"):
        decision = mj.resolve_splitk(
            M,
            N,
            K,
            a_dtype="e4m3",
            b_dtype="e4m3",
            out_dtype="bfloat16",
            use_fast_accum=True,
            profile=profile,
        )
        alone = share(gemm(profile, "auto"), gemm(profile, 1))
        print(f"  {profile:6}  S = {decision.S}, {decision.scheme:10}  against unsplit: {alone}")
    as_run = share(gemm("hopper", "auto"), gemm("ada", "auto"))
    print(f"  as each GPU runs it, fast:           {as_run}")
    print("\nNeither is more right: each is what that GPU returns.")


if __name__ == "__main__":
    main()
