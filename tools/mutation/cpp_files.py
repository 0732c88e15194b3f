"""Which C++ files are mutated, and which tests can kill their mutants, the quickest first."""

_HEADERS = ("formats", "plan", "block_step", "rounding")

#: Functions that the compiler alone evaluates, in part at least: their mutants are compiled.
COMPILED = {"finite_codes", "subnormal_step", "sum_keeps_its_binade"}

#: Tests of csrc/tests by file; none where nothing here can run the file.
TESTS: dict[str, tuple[str, ...]] = {
    "csrc/numerics/accumulate.h": ("plan",),
    "csrc/numerics/block_fma.h": ("block_step", "plan"),
    "csrc/numerics/epilogue.h": ("rounding", "epilogue"),
    "csrc/numerics/formats.h": _HEADERS,
    "csrc/numerics/instruction_model.h": ("block_step",),
    "csrc/numerics/portability.h": _HEADERS,
    "csrc/numerics/rounding.h": ("rounding", "block_step"),
    "csrc/numerics/specials.h": ("specials",),
    "csrc/cpu/portable.cc": ("specials",),
    "csrc/cpu/specials.cc": ("specials",),
    "csrc/cpu/parallel.cc": ("parallel",),
    "csrc/cpu/parallel.h": ("parallel",),
    "csrc/cpu/dispatch.cc": ("kernels",),
    "csrc/cpu/gemm.cc": ("gemm", "specials", "kernels"),
    "csrc/cpu/epilogue-inl.h": ("epilogue",),
    "csrc/cpu/chain_kernel-inl.h": ("kernels",),
    "csrc/cpu/pack-inl.h": ("kernels",),
    "csrc/cpu/tile_kernel-inl.h": ("orders", "bounds", "kernels"),
    "csrc/cpu/generic_ops-inl.h": ("kernels",),
    "csrc/cpu/tally-inl.h": ("kernels",),
    "csrc/cpu/packed_codes.h": ("kernels",),
    "csrc/cpu/part_sse2.h": ("kernels",),
    "csrc/cpu/lanes_avx512_vbmi.h": ("kernels",),
    "csrc/cpu/lanes_avx512.h": ("kernels",),
    "csrc/cpu/lanes_avx2.h": ("kernels",),
    "csrc/cpu/ieee_env.h": ("environment", "parallel"),
    "csrc/cpu/lanes_neon.h": ("orders", "specials", "kernels"),
    "csrc/ffi/cpu_call.cc": ("fuzz_replay",),
    "csrc/ffi/gemm_call.cc": ("handler_refusals", "fuzz_replay"),
    "csrc/cuda/byte_lanes.h": ("cuda_kernels",),
    "csrc/cuda/fragment.h": ("cuda_kernels",),
    "csrc/cuda/gemm.cc": ("cuda_kernels",),
    "csrc/cuda/gemm.h": ("cuda_kernels",),
    "csrc/cuda/ieee_kernel.cu": ("cuda_kernels",),
    "csrc/cuda/ieee_step.h": ("cuda_kernels",),
    "csrc/cuda/kernels.cc": ("cuda_kernels",),
    "csrc/cuda/kernels.h": ("cuda_kernels",),
    "csrc/cuda/mma.h": (),
    "csrc/cuda/mma_step.h": ("cuda_kernels",),
    "csrc/cuda/mma_sync_kernel.cu": ("cuda_kernels",),
    "csrc/cuda/output_code.h": ("cuda_kernels",),
    "csrc/cuda/portable_kernel.cu": ("cuda_kernels",),
    "csrc/cuda/portable_kernel.h": ("cuda_kernels",),
    "csrc/cuda/runtime.h": (),
    "csrc/cuda/sm90.h": (),
    "csrc/cuda/tile_gemm.h": ("cuda_kernels",),
    "csrc/cuda/wgmma_kernel.cu": ("cuda_kernels",),
}

#: Files for an AArch64 processor, which an emulator runs here.
ELSEWHERE = {"csrc/cpu/lanes_neon.h"}
