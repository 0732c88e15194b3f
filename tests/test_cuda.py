"""The CUDA backend without a GPU: names, reasons, lowering, the gate of kernels."""

import functools
import hashlib
import importlib
import pathlib
import re
import sys
import types

import cuda_fakes
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from gemms import gemm

import mmaemu_jax as mj
from mmaemu_jax import _native, backends, cuda, cuda_gate
from mmaemu_jax.errors import (
    BackendFallbackWarning,
    BackendUnavailableError,
    ExperimentalKernelWarning,
)
from mmaemu_jax.testing.cases import families

ROOT = pathlib.Path(__file__).parent.parent
E4M3 = jnp.float8_e4m3fn


def program(backend="auto"):
    return functools.partial(
        mj.accumulate, use_fast_accum=True, splitk=1, profile="hopper", backend=backend
    )


def text_for(platforms, backend="auto", k=32, transposed=False):
    """The lowered text of a GEMM [16, k] x [48, k]."""
    function = program(backend)
    b = jnp.zeros((k, 48) if transposed else (48, k), E4M3)
    call = (lambda a, b: function(a, b.T)) if transposed else function
    traced = jax.jit(call).trace(jnp.zeros((16, k), E4M3), b)
    return traced.lower(lowering_platforms=platforms).as_text()


# ---------------------------------------------------------------- without the kernels


def test_without_the_extension(monkeypatch):
    cuda_fakes.remove(monkeypatch)
    status = {s.name: s for s in backends.backends_status()}
    assert status["cuda"].why_not == "this build has no CUDA kernels"
    assert not any(name.startswith("cuda:") for name in status)
    with pytest.raises(BackendUnavailableError, match=r"MMAEMU_JAX_CUDA=ON.*backend='auto'"):
        backends.check_backend("f", "cuda")
    with pytest.warns(
        BackendFallbackWarning, match=r"no kernels for cuda \(this build has no CUDA"
    ):
        assert _native.GEMM_TARGET not in text_for(("cuda",))


def test_an_extension_that_cannot_be_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, cuda.MODULE, None)
    assert cuda.extension.__wrapped__() == "this build has no CUDA kernels"

    def broken(name):
        raise ImportError("libsomething.so: undefined symbol")

    monkeypatch.setattr(cuda.importlib, "import_module", broken)
    assert "cannot be loaded: libsomething.so" in cuda.extension.__wrapped__()


# ---------------------------------------------------------------- with kernels


@pytest.mark.parametrize(
    ("gpu", "usable"),
    [
        (cuda_fakes.H200, {"wgmma", "ieee", "portable"}),
        (cuda_fakes.RTX_4060, {"mma_sync", "ieee", "portable"}),
        (cuda_fakes.A100, {"ieee", "portable"}),
    ],
    ids=["H200", "RTX 4060", "A100"],
)
def test_status_says_which_kernels_a_gpu_runs(monkeypatch, gpu, usable):
    cuda_fakes.install(monkeypatch, gpu)
    status = {s.name: s for s in backends.backends_status()}
    assert status["cuda"].usable
    assert {n[5:] for n, s in status.items() if n[:5] == "cuda:" and s.usable} == usable
    for name, s in status.items():
        if name[:5] == "cuda:" and not s.usable:
            assert "it needs compute capability" in s.why_not
            assert gpu.name in s.why_not
    for name in ("cuda", "cuda:ieee"):
        backends.check_backend("f", name)
    with pytest.raises(ValueError, match="unknown backend 'cuda:none'"):
        backends.check_backend("f", "cuda:none")


def test_no_gpu(monkeypatch):
    cuda_fakes.install(monkeypatch)
    with pytest.raises(BackendUnavailableError, match="'cuda' cannot run here: there is no GPU"):
        backends.check_backend("f", "cuda")


def test_explain_says_why_others_were_not_chosen(monkeypatch):
    cuda_fakes.install(monkeypatch, cuda_fakes.H200)
    choice = backends.choose_backend("auto", "gpu")
    assert choice.name == "cuda:ieee"
    why = {s.name: s.why_not for s in choice.skipped}
    assert "experimental" in why["cuda:wgmma"]
    assert "needs compute capability 8.9" in why["cuda:mma_sync"]
    assert why["cuda:portable"] == "a faster kernel can run"
    assert "the program is for gpu" in why["cpu:scalar"]
    late = backends.choose_backend("auto", "gpu", mj.get_preset("b200_mma_sync").model)
    assert late.name == "cuda:portable"
    assert backends.choose_backend("cuda:wgmma", "gpu").name == "cuda:wgmma"
    assert backends.choose_backend("auto", "cpu").name.startswith("cpu:")
    assert backends.choose_backend("reference", "gpu").name == "reference"


# ---------------------------------------------------------------- lowering


def test_lowering_for_another_machine_leaves_the_choice_to_the_handler(monkeypatch):
    cuda_fakes.install(monkeypatch)
    text = text_for(("cuda",))
    assert text.count(f"@{_native.GEMM_TARGET}") == 1
    assert 'kernel = "auto"' in text
    assert "xui8>" not in text, "no kernel of auto wants workspace"


def test_one_call_serves_both_platforms(monkeypatch):
    cuda_fakes.install(monkeypatch)
    assert text_for(("cpu", "cuda")).count(f"@{_native.GEMM_TARGET}") == 1
    with pytest.warns(BackendFallbackWarning, match="no kernels for cuda, tpu"):
        assert _native.GEMM_TARGET not in text_for(("cpu", "cuda", "tpu"))


def test_programs_for_both_platforms_without_kernels_for_both(monkeypatch):
    cuda_fakes.install(monkeypatch)
    with pytest.raises(
        BackendUnavailableError, match="'cpu:scalar' was asked for in a program for"
    ):
        text_for(("cpu", "cuda"), "cpu:scalar")
    assert _native.GEMM_TARGET not in text_for(("cpu", "cuda"), "reference")
    cuda_fakes.remove(monkeypatch)
    with pytest.warns(BackendFallbackWarning, match="no kernels for cuda"):
        assert _native.GEMM_TARGET not in text_for(("cpu", "cuda"))


def test_transposes_are_read_not_made(monkeypatch):
    cuda_fakes.install(monkeypatch)
    assert 'b_layout = "kn"' in text_for(("cuda",), transposed=True)


def pass_gate(monkeypatch, *failing):
    verdicts = dict.fromkeys(failing, "its self-test on cuda:0 failed: here")
    monkeypatch.setattr(cuda_gate, "verdict", lambda kernel: verdicts.get(kernel, ""))


def test_auto_takes_the_fastest_that_passed(monkeypatch):
    cuda_fakes.install(monkeypatch, cuda_fakes.H200)
    pass_gate(monkeypatch)
    assert 'kernel = "ieee"' in text_for(("cuda",))
    pass_gate(monkeypatch, "ieee")
    with pytest.warns(BackendFallbackWarning, match="'ieee' is not used: its self-test on cuda:0"):
        assert 'kernel = "portable"' in text_for(("cuda",))


def test_an_experimental_kernel_warns_and_gets_its_workspace(monkeypatch):
    cuda_fakes.install(monkeypatch, cuda_fakes.H200)
    pass_gate(monkeypatch)
    lowered = functools.partial(text_for, ("cuda",), "cuda:wgmma")
    with pytest.warns(ExperimentalKernelWarning, match="'cuda:wgmma' is experimental"):
        assert "xui8>" not in lowered()
    with pytest.warns(ExperimentalKernelWarning):
        text = lowered(transposed=True)
    assert f"tensor<{16 * 32 + 48 * 32 + 128}xui8>" in text
    pass_gate(monkeypatch, "wgmma")
    with pytest.raises(BackendUnavailableError, match="its self-test on cuda:0 failed: here"):
        lowered(k=64)


def test_the_workspace_is_for_one_matrix_of_a_batch(monkeypatch):
    cuda_fakes.install(monkeypatch, cuda_fakes.H200)
    pass_gate(monkeypatch)
    function = functools.partial(gemm, b_layout="kn", backend="cuda:wgmma")
    operands = jnp.zeros((3, 16, 32), E4M3), jnp.zeros((3, 32, 48), E4M3)
    with pytest.warns(ExperimentalKernelWarning):
        text = jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",)).as_text()
    assert f"tensor<{16 * 32 + 48 * 32 + 128}xui8>" in text


def test_a_kernel_of_another_platform(monkeypatch):
    cuda_fakes.install(monkeypatch, cuda_fakes.H200)
    with pytest.raises(
        BackendUnavailableError, match="'cpu:scalar' was asked for in a program for"
    ):
        text_for(("cuda",), "cpu:scalar")
    with pytest.raises(
        BackendUnavailableError, match=r"'cuda:ieee' was.*default_device\(jax.dev.*gpu"
    ):
        text_for(("cpu",), "cuda:ieee")


@pytest.mark.parametrize(
    ("args", "size"),
    [
        (("wgmma", 16, 48, 32, "nk"), 0),
        (("wgmma", 16, 48, 33, "nk"), 768 + 2304 + 128),
        (("ieee", 16, 48, 33, "kn"), 0),
        (("wgmma", 1, 1, 1, "kn"), 128 + 128 + 128),
    ],
)
def test_workspace(args, size):
    assert cuda.workspace_bytes(*args) == size


def test_symbolic_shapes_have_no_workspace():
    (m,) = jax.export.symbolic_shape("m")
    assert cuda.workspace_bytes("wgmma", m, 48, 33, "kn") == 0


# ---------------------------------------------------------------- gate


def test_the_gate_of_an_experimental_kernel_is_wide():
    for kernel, preset in (("wgmma", "hopper"), ("mma_sync", "ada")):
        cases = cuda_gate.gate_cases(kernel, True)
        assert {case.preset for case in cases} == {preset}
        assert {case.shape for case in cases} == set(cuda_gate.SHAPES)
        assert {case.b_layout for case in cases} == {"nk", "kn"}
        assert {case.family for case in cases} == set(families())
        assert len({case.formats for case in cases}) == 4
        assert len({case.plan for case in cases}) == len(list(cuda_gate.plans(preset)))
    few = cuda_gate.gate_cases("ieee", False)
    assert 4 <= len(few) <= 24
    assert {case.preset for case in few} == {"ada", "hopper"}


def test_the_gate_sees_one_wrong_bit(monkeypatch):
    cuda_fakes.install(monkeypatch, cuda_fakes.H200)
    here = jax.local_devices()[:1]
    monkeypatch.setattr(jax, "local_devices", lambda *, backend: here)
    seen = []

    def accumulators(kernel, a, b, *, model, plan, b_layout):
        n = b.shape[0] if b_layout == "nk" else b.shape[1]
        bits = np.ones((a.shape[0], n), np.uint32)
        seen.append(kernel)
        bits[-1, -1] += kernel == "wgmma" and len(seen) > 60
        return bits.view(np.float32)

    monkeypatch.setattr(cuda_gate, "accumulators", accumulators)
    assert cuda_gate.verdict("ieee") == ""
    seen.clear()
    found = cuda_gate.verdict("wgmma")
    assert re.search(r"its self-test on .* failed: hopper .*1 of", found)
    status = {s.name: s.why_not for s in backends.backends_status()}
    assert (status["cuda:ieee"], status["cuda:wgmma"]) == ("", found)
    assert cuda_gate.verdict("mma_sync").startswith("it needs compute capability 8.9")


def test_gate_operands_fit_their_layout():
    for case in cuda_gate.gate_cases("mma_sync", True)[:3]:
        a, b = case.operands()
        m, n, k = case.shape
        assert a.shape == (m, k)
        assert b.shape == ((k, n) if case.b_layout == "kn" else (n, k))
        assert (a.dtype, b.dtype) == tuple(fmt.dtype for fmt in case.formats)


# ---------------------------------------------------------------- the extension, where it is built


@pytest.fixture
def extension():
    try:
        return importlib.import_module(cuda.MODULE)
    except ModuleNotFoundError:
        return types.SimpleNamespace(missing=True)


def test_the_built_extension_is_this_checkout_s(extension):
    """As csrc/ffi/source_digest.cmake computes it; an installation without CUDA has none."""
    if getattr(extension, "missing", False):
        assert isinstance(cuda.extension(), str)
        return
    paths = sorted(
        path.relative_to(ROOT).as_posix()
        for folder in ("numerics", "cpu", "ffi", "cuda")
        for path in (ROOT / "csrc" / folder).iterdir()
        if path.suffix in (".h", ".cc", ".cu")
    )
    digests = "".join(hashlib.sha256((ROOT / p).read_bytes()).hexdigest() for p in paths)
    assert hashlib.sha256(digests.encode()).hexdigest() == extension.SOURCE_DIGEST
    assert list(extension.registrations()) == [_native.GEMM_TARGET]
    fakes = [(name, *rest) for name, _, *rest in cuda_fakes.KERNELS]
    assert [(name, *rest) for name, _, *rest in extension.kernels()] == fakes
