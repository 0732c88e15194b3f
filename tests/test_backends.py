"""Which backends there are, how one is asked for, and what happens where it cannot run."""

import re
import warnings

import cuda_fakes
import jax
import numpy as np
import pytest
from gemms import finite_codes, gemm
from processes import output_of, run_python, start_python

import mmaemu_jax as mj
from mmaemu_jax import _native, backends, cuda
from mmaemu_jax.errors import BackendFallbackWarning, BackendUnavailableError
from mmaemu_jax.testing import assert_bitwise_equal

A, B = finite_codes(1, (5, 48)), finite_codes(2, (7, 48))


def usable_kernels() -> list[str]:
    return [name for name, usable, _ in _native.cpu_targets() if usable]


def test_status():
    status = {s.name: s for s in backends.backends_status()}
    kernels = [f"cpu:{name}" for name, _, _ in _native.cpu_targets()]
    gpu = [f"cuda:{kernel.name}" for kernel in cuda.kernels()]
    assert list(status) == ["cpu", *kernels, "reference", "cuda", *gpu]
    assert kernels[-1] == "cpu:scalar"
    for name in ("cpu", "cpu:scalar", "reference"):
        assert status[name].usable
    for s in status.values():
        assert s.usable != bool(s.why_not), "whatever cannot run says why"


@pytest.mark.parametrize("backend", ["auto", "cpu", "cpu:scalar", "reference"])
def test_usable_backends_are_accepted(backend):
    backends.check_backend("f", backend)
    assert_bitwise_equal(gemm(A, B, backend=backend), gemm(A, B))


@pytest.mark.parametrize("backend", ["gpu", "cpu:", "cpu:sse", "CPU", "", "auto "])
def test_unknown_backends(backend):
    with pytest.raises(ValueError, match=re.escape(f"f: unknown backend {backend!r}")) as caught:
        backends.check_backend("f", backend)
    for known in ("auto", "cpu:scalar", "reference", "cuda"):
        assert known in str(caught.value)


def test_a_forced_kernel_that_cannot_run(monkeypatch):
    monkeypatch.setattr(backends.config, "CPU_TARGET", "avx999")
    for backend in ("auto", "cpu"):
        with pytest.raises(BackendUnavailableError, match=r"MMAEMU_JAX_CPU_TARGET='avx999'.*Ways"):
            backends.check_backend("f", backend)
    backends.check_backend("f", "cpu:scalar")


def test_a_model_that_simd_kernels_do_not_run(monkeypatch):
    monkeypatch.setattr(backends.config, "CPU_TARGET", None)
    choice = backends.choose_backend("auto", "cpu", mj.get_preset("b200_mma_sync").model)
    assert choice.name == "cpu:scalar"
    why = {s.name: s.why_not for s in choice.skipped}
    assert all("instruction model" in why[name] for name in why if name.startswith("cpu:"))


def test_platforms_without_kernels():
    (notice,) = backends.fallback_notices("f", "auto", "tpu")
    assert notice.category is mj.errors.BackendFallbackWarning
    assert backends.fallback_notices("f", "reference", "tpu") == ()
    with pytest.raises(BackendUnavailableError, match="f: backend 'cpu:scalar' was asked for"):
        backends.fallback_notices("f", "cpu:scalar", "tpu")


def test_backends_that_cannot_run(monkeypatch):
    cuda_fakes.remove(monkeypatch)
    with pytest.raises(
        BackendUnavailableError, match=r"'cuda' cannot run here.*Ways out: .*backend="
    ):
        backends.check_backend("f", "cuda")
    lacking = [("avx512", False, "this processor lacks AVX-512"), ("scalar", True, "")]
    monkeypatch.setattr(_native, "cpu_targets", lambda: lacking)
    with pytest.raises(BackendUnavailableError, match="cannot run here: this processor lacks AVX"):
        backends.check_backend("f", "cpu:avx512")


def test_a_kernel_of_another_architecture():
    elsewhere = backends._PROCESSORS.keys() - {s.name for s in backends.backends_status()}
    assert elsewhere, "no build has all kernels"
    for backend in elsewhere:
        with pytest.raises(BackendUnavailableError, match=r"cannot run here: it is a kernel for "):
            backends.check_backend("f", backend)


def test_every_simd_kernel_of_this_build_has_its_processors():
    names = {s.name for s in backends.backends_status() if s.name.startswith("cpu:")}
    assert names - {"cpu:scalar"} <= backends._PROCESSORS.keys()


def test_the_kernel_that_a_backend_means(monkeypatch):
    assert backends.cpu_kernel("cpu:avx2") == "avx2"
    monkeypatch.setattr(backends.config, "CPU_TARGET", None)
    assert [backends.cpu_kernel(b) for b in ("auto", "cpu")] == ["auto", "auto"]
    monkeypatch.setattr(backends.config, "CPU_TARGET", "avx2")
    assert [backends.cpu_kernel(b) for b in ("auto", "cpu")] == ["avx2", "avx2"]
    assert backends.cpu_kernel("cpu:scalar") == "scalar", "an explicit kernel wins"


# ------------------------------------------------------------------ MMAEMU_JAX_CPU_TARGET

PROGRAM = """
import jax, numpy as np
from gemms import finite_codes, gemm
operands = finite_codes(1, (5, 48)), finite_codes(2, (7, 48))
hlo = jax.jit(gemm).lower(*operands).as_text()
names = ("auto", "scalar", "avx2", "avx512", "avx512_vbmi", "neon")
print([name for name in names if f'kernel = "{name}"' in hlo])
try:
    print(np.asarray(gemm(*operands)).tobytes().hex())
except jax.errors.JaxRuntimeError as error:
    print(error)
"""


def test_forced_cpu_target():
    names = ["", *usable_kernels()]
    started = [start_python(PROGRAM, MMAEMU_JAX_CPU_TARGET=name) for name in names]
    desired = np.asarray(gemm(A, B)).tobytes().hex()
    for name, process in zip(names, started, strict=True):
        assert output_of(process).splitlines() == [str([name or "auto"]), desired]


def test_forced_cpu_target_that_does_not_exist():
    text = run_python(PROGRAM, MMAEMU_JAX_CPU_TARGET="avx1024")
    assert "INVALID_ARGUMENT: mmaemu_jax: kernel avx1024 is unknown or cannot run" in text


# ------------------------------------------------------------------ platforms without kernels


def lower_for(platform: str, backend: str) -> str:
    program = jax.jit(lambda a, b: gemm(a, b, backend=backend) + gemm(a, b, backend=backend))
    return program.trace(A, B).lower(lowering_platforms=(platform,)).as_text()


def test_another_platform_gets_the_reference_and_a_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        hlo = lower_for("tpu", "auto")
    assert [w.category for w in caught] == [BackendFallbackWarning]
    assert re.search("no kernels for tpu;.*Ways out:", str(caught[0].message))
    assert _native.GEMM_TARGET not in hlo
    assert "f64" in hlo


def test_asking_for_the_reference_does_not_warn():
    assert _native.GEMM_TARGET not in lower_for("tpu", "reference")


@pytest.mark.parametrize("backend", ["cpu", "cpu:scalar"])
def test_kernels_asked_for_on_another_platform(backend):
    with pytest.raises(BackendUnavailableError, match=f"'{backend}' .*for tpu.*Ways out: backend="):
        lower_for("tpu", backend)


def test_export_for_several_platforms():
    """One program for all of them takes the reference if one of them must."""
    export = jax.export.export(jax.jit(lambda a, b: gemm(a, b)), platforms=("cpu", "tpu"))
    with pytest.warns(BackendFallbackWarning, match="no kernels for tpu;"):
        exported = export(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (A, B)))
    assert _native.GEMM_TARGET not in exported.mlir_module()
    assert_bitwise_equal(exported.call(A, B), gemm(A, B))
