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
    "csrc/cpu/tile_kernel-inl.h": ("orders", "kernels"),
    "csrc/cpu/generic_ops-inl.h": ("kernels",),
    "csrc/cpu/tally-inl.h": ("kernels",),
    "csrc/cpu/packed_codes.h": ("kernels",),
    "csrc/cpu/part_sse2.h": ("kernels",),
    "csrc/cpu/lanes_avx512_vbmi.h": ("kernels",),
    "csrc/cpu/lanes_avx512.h": ("kernels",),
    "csrc/cpu/lanes_avx2.h": ("kernels",),
    "csrc/cpu/ieee_env.h": ("environment", "parallel"),
    "csrc/cpu/lanes_neon.h": (),
    "csrc/ffi/gemm_call.cc": (),
}
