"""Which C++ files are mutated, and which tests can kill their mutants, the quickest first."""

_NUMERICS = ("formats", "plan", "block_step", "rounding", "epilogue", "specials")
_KERNELS = ("kernels",)
_CPU = ("parallel", "specials", "environment", "kernels", "epilogue")

#: Tests that survivors meet once more with all their cases.
ALL_CASES = {"rounding"}

#: Tests of csrc/tests by file; none where nothing here can run the file.
TESTS: dict[str, tuple[str, ...]] = {
    "csrc/numerics/accumulate.h": ("plan", "specials"),
    "csrc/numerics/block_fma.h": ("block_step", "plan"),
    "csrc/numerics/epilogue.h": ("rounding", "epilogue"),
    "csrc/numerics/formats.h": _NUMERICS,
    "csrc/numerics/instruction_model.h": ("block_step", "plan"),
    "csrc/numerics/portability.h": _NUMERICS,
    "csrc/numerics/rounding.h": ("rounding", "block_step", "plan", "epilogue"),
    "csrc/numerics/specials.h": ("specials",),
    "csrc/cpu/chain_kernel-inl.h": _KERNELS,
    "csrc/cpu/dispatch.cc": ("kernels",),
    "csrc/cpu/epilogue-inl.h": ("epilogue",),
    "csrc/cpu/gemm.cc": _CPU,
    "csrc/cpu/generic_ops-inl.h": _KERNELS,
    "csrc/cpu/ieee_env.h": ("environment", "parallel"),
    "csrc/cpu/lanes_avx2.h": _KERNELS,
    "csrc/cpu/lanes_avx512.h": _KERNELS,
    "csrc/cpu/lanes_avx512_vbmi.h": _KERNELS,
    "csrc/cpu/lanes_neon.h": (),
    "csrc/cpu/pack-inl.h": _KERNELS,
    "csrc/cpu/packed_codes.h": _KERNELS,
    "csrc/cpu/parallel.cc": ("parallel", "environment"),
    "csrc/cpu/parallel.h": ("parallel", "environment"),
    "csrc/cpu/part_sse2.h": _KERNELS,
    "csrc/cpu/portable.cc": ("specials", "environment", "kernels"),
    "csrc/cpu/specials.cc": ("specials", "kernels"),
    "csrc/cpu/tally-inl.h": _KERNELS,
    "csrc/cpu/tile_kernel-inl.h": _KERNELS,
    "csrc/ffi/gemm_call.cc": (),
}
