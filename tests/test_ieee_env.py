"""XLA's floating-point environment (flushed subnormals, FMAs) must not reach any result (R26)."""

import ctypes
import ctypes.util
import dataclasses
import platform
from functools import partial

import hard_gemms
import jax
import jax.numpy as jnp
import numpy as np
import oracle_fractions
import pytest
from gemms import finite_codes, gemm
from hard_gemms import SCALE_A, SCALE_B, SCALE_RESULT
from processes import output_of, start_python

from mmaemu_jax import _native, reference
from mmaemu_jax.accumulate import ONE_CHAIN
from mmaemu_jax.epilogue import OUTPUT_DTYPES
from mmaemu_jax.formats import E4M3, E5M2, format_of
from mmaemu_jax.instruction import HOPPER
from mmaemu_jax.testing import assert_bitwise_equal, bits_of

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="MXCSR is x86's control register")

STICKY = 0x3F  # what has happened so far, no control
IEEE, FLUSHED = 0x1F80, 0x9FC0  # FLUSHED: the former with FTZ (0x8000) and DAZ (0x40)
GUARD_WAS_NEEDED = (
    "XLA:CPU does not call handlers or pool tasks with subnormals flushed any more: the guard of "
    "csrc/cpu/ieee_env.h became unnecessary here (and stays harmless)."
)


def probe() -> np.ndarray:
    """MXCSR of the handler, of the handler guarded, of a pool task, of a pool task guarded."""
    look = jax.ffi.ffi_call(
        _native.PROBE_TARGET, jax.ShapeDtypeStruct((4,), np.uint32), has_side_effect=True
    )
    return np.asarray(jax.jit(lambda: look())()) & ~np.uint32(STICKY)


@x86
def test_what_xla_calls_us_with():
    handler, handler_guarded, task, task_guarded = probe()
    assert (handler, task) == (FLUSHED, FLUSHED), GUARD_WAS_NEEDED
    assert (handler_guarded, task_guarded) == (IEEE, IEEE)


def python_control() -> int:
    """MXCSR of this thread, from the end of glibc's fenv_t."""
    environment = (ctypes.c_uint32 * 8)()
    assert ctypes.CDLL(ctypes.util.find_library("m")).fegetenv(environment) == 0
    return environment[7] & ~STICKY


@x86
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="reads glibc's fenv_t")
def test_the_callers_environment_is_untouched():
    before = python_control()
    assert before == IEEE
    probe()
    for program in hard_gemms.kernel_programs():
        program().block_until_ready()
        jax.jit(program)().block_until_ready()
        assert python_control() == before
    assert np.float32(2.0**-149) * np.float32(1) > 0


# --------------------------------------------------------------------------- one answer everywhere


@pytest.fixture(scope="module")
def scaled_by_scalar() -> dict:
    return {dtype: np.asarray(hard_gemms.scaled("cpu:scalar", dtype)) for dtype in OUTPUT_DTYPES}


@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES, ids=str)
def test_hard_scales_against_exact_fractions(out_dtype, scaled_by_scalar):
    shape = scaled_by_scalar[out_dtype].shape
    codes = (x.view(np.uint8)[0, 0] for x in (hard_gemms.A, hard_gemms.B))
    a, b = (
        [[oracle_fractions.value_of_code(int(code), fmt) for code in row] for row in matrix]
        for matrix, fmt in zip(codes, (E4M3, E5M2), strict=True)
    )
    sums = [
        [
            oracle_fractions.dot_value(row, column, E4M3, E5M2, 0, HOPPER.model, ONE_CHAIN)
            for column in b
        ]
        for row in a
    ]
    alphas = np.broadcast_arrays(*(x.view(np.uint32) for x in (SCALE_A, SCALE_B, SCALE_RESULT)))
    desired = np.zeros(shape, f"u{out_dtype.itemsize}")
    for i, j, row, column in np.ndindex(shape):
        scales = [int(x[i, j]) for x in alphas]
        if not format_of(out_dtype):
            scales[2] = None
        desired[i, j, row, column] = oracle_fractions.epilogue_bits(
            sums[row][column], *scales, out_dtype
        )
    assert_bitwise_equal(scaled_by_scalar[out_dtype], desired.view(out_dtype))


@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES, ids=str)
def test_eager_jit_and_reference(out_dtype, scaled_by_scalar):
    desired = scaled_by_scalar[out_dtype]
    program = partial(hard_gemms.scaled, "auto", out_dtype)
    assert_bitwise_equal(program(), desired)
    assert_bitwise_equal(jax.jit(program)(), desired)
    assert_bitwise_equal(jax.jit(program)(SCALE_A, SCALE_RESULT), desired)
    with jax.disable_jit():
        assert_bitwise_equal(program(), desired)
    assert_bitwise_equal(jax.jit(partial(hard_gemms.scaled, "reference", out_dtype))(), desired)


@pytest.mark.parametrize("backend", ["auto", "cpu:scalar", "reference"])
@pytest.mark.parametrize("out_dtype", OUTPUT_DTYPES[:2], ids=str)
def test_inside_scan(backend, out_dtype, scaled_by_scalar):
    unsigned = f"u{out_dtype.itemsize}"

    def step(carry, scales):
        row = hard_gemms.scaled(backend, out_dtype, *(x[None] for x in scales))[0]
        # As integers: the scan's own stacking of bfloat16 would rewrite the NaN payload.
        return carry, jax.lax.bitcast_convert_type(row, unsigned)

    bits = jax.jit(lambda scales: jax.lax.scan(step, 0, scales)[1])((SCALE_A, SCALE_RESULT))
    assert_bitwise_equal(bits, scaled_by_scalar[out_dtype].view(unsigned))


def test_the_reference_step_by_step():
    """Operation by operation, without fusion into FMAs, its bits are the same (R26)."""
    model = dataclasses.replace(HOPPER.model, nfma=2)
    operands = finite_codes(5, (2, 5)), finite_codes(6, (3, 5), E5M2), *np.float32([1e-20, 1e-19])
    desired = gemm(*operands, model=model, backend="cpu:scalar")
    with jax.disable_jit():
        operands = map(jnp.asarray, operands)
        y = reference.gemm(*operands, model=model, plan=ONE_CHAIN, out_dtype=np.float32)
    assert_bitwise_equal(y, desired)


@pytest.mark.parametrize("backend", ["auto", "cpu:scalar", "reference"])
def test_tiny_accumulators(backend):
    """c below the normal range is kept on the grid 2^(-126 - frac_out) of R7."""
    y = jax.jit(partial(hard_gemms.tiny_accumulators, backend))()
    untouched = hard_gemms.TINY_C.view(np.uint32)[:, 0, 0]
    kept = untouched & ~np.uint32((1 << (23 - HOPPER.frac_out)) - 1)
    kept = np.where(kept << 1 == 0, 0, kept).astype(np.uint32)
    assert_bitwise_equal(y[:, 0, 0], kept.view(np.float32))
    assert np.count_nonzero(kept & 0x7F800000 == 0) > np.count_nonzero(kept == 0)
    assert_bitwise_equal(y[:, 1], np.full((len(y), 1), -(2.0**-32) * hard_gemms.K, np.float32))


def test_results_below_the_normal_range():
    """Not vacuous: subnormal results of every IEEE output dtype come out, of both signs."""
    for dtype, infinity in ((np.float32, 0x7F800000), (jnp.bfloat16, 0x7F80), (np.float16, 0x7C00)):
        bits = bits_of(hard_gemms.scaled("auto", dtype))
        magnitude = bits & (np.iinfo(bits.dtype).max >> 1)
        subnormal = (magnitude != 0) & (magnitude & infinity == 0)
        assert {True, False} == set((bits == magnitude)[subnormal].tolist())


def test_several_tiles():
    assert_bitwise_equal(hard_gemms.large("auto"), hard_gemms.large("cpu:scalar"))


# --------------------------------------------------------------------------- other process settings

ONE_THREAD = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
KERNELS = "import hard_gemms as h; print(h.digest(h.kernel_programs()))\n"
REFERENCE = KERNELS + "print(h.digest(h.reference_programs()))\n"
OTHER_CODE = "--xla_cpu_max_isa=AVX --xla_backend_optimization_level=0"
SETTINGS = {
    "one thread": (ONE_THREAD + KERNELS, ""),
    "four devices": (KERNELS, "--xla_force_host_platform_device_count=4"),
    "fast math": (REFERENCE, "--xla_cpu_enable_fast_math=true --xla_cpu_ftz=true"),
    "other code": (REFERENCE, f"{OTHER_CODE} --xla_allow_excess_precision=false"),
}


@pytest.fixture(scope="module")
def started():
    """All processes at once, so that they share the time that each spends importing."""
    every = {name: start_python(p, XLA_FLAGS=flags) for name, (p, flags) in SETTINGS.items()}
    yield every
    for process in every.values():  # those of the tests that run elsewhere
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def digests():
    programs = (hard_gemms.kernel_programs(), hard_gemms.reference_programs())
    return [hard_gemms.digest(p) for p in programs]


@pytest.mark.parametrize("setting", SETTINGS)
def test_process_settings(setting, started, digests):
    found = output_of(started[setting]).split()
    assert found == digests[: len(found)]
    assert len(found) == SETTINGS[setting][0].count("print")
