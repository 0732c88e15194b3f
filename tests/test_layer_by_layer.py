"""docs/layer-by-layer.md: the example prints what the page shows; the torch hook writes its files.

The hook runs on a stand-in for torch: what it reads of a call and what it writes is tested, torch
itself is not.
"""

import pathlib
import re
import runpy
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import mmaemu_jax as mj

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
SHOWN = re.compile(r"^python docs/examples/check_model\.py\n```\n\n```text\n(.*?)```$", re.M | re.S)


def test_the_example_prints_what_the_page_shows(capsys):
    runpy.run_path(str(DOCS / "examples" / "check_model.py"), run_name="__main__")
    (shown,) = SHOWN.findall((DOCS / "layer-by-layer.md").read_text())
    assert capsys.readouterr().out == shown


class Tensor:
    """The methods of a torch tensor that the hook uses, on numpy."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    @property
    def dtype(self):
        return f"torch.{self.array.dtype.name}"

    def __getitem__(self, index):
        return Tensor(self.array[index])

    def view(self, dtype):
        assert self.array.flags.c_contiguous
        return Tensor(self.array.view(dtype))

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array))

    def reshape(self, *shape):
        return Tensor(self.array.reshape(*shape))

    def float(self):
        return Tensor(self.array.astype(np.float32))

    def t(self):
        return Tensor(self.array.T)

    def numpy(self):
        return self.array

    def detach(self):
        return self

    cpu = detach


class Module:
    def __init__(self):
        self.hooks = []

    def named_modules(self):
        return [("", self), ("mlp.up", self)]

    def register_forward_pre_hook(self, hook):
        self.hooks.append(hook)


def scaled_mm(a, mat2, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, fast=False):
    scales = (scale_a.array, scale_b.array)
    return Tensor(
        mj.host.scaled_mm(
            a.array, mat2.array, *scales, out_dtype=out_dtype, use_fast_accum=fast, splitk=1
        )
    )


@pytest.fixture
def hook(monkeypatch):
    torch = types.ModuleType("torch")
    torch.uint8, torch.Tensor = np.uint8, Tensor
    torch.ops = types.SimpleNamespace(
        aten=types.SimpleNamespace(_scaled_mm=types.SimpleNamespace(default=scaled_mm))
    )
    dispatch = types.ModuleType("torch.utils._python_dispatch")
    dispatch.TorchDispatchMode = object
    for name, module in (
        ("torch", torch),
        ("torch.utils", types.ModuleType("torch.utils")),
        ("torch.utils._python_dispatch", dispatch),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(DOCS / "examples" / "dump_torch.py"))


def operands(*shapes):
    rng = np.random.default_rng(0)
    return [
        np.asarray(mj.quantize(rng.standard_normal(shape, np.float32), "e4m3", 64.0))
        for shape in shapes
    ]


def test_torch_scaled_mm(hook, tmp_path):
    x, w = operands((32, 256), (48, 256))
    one = Tensor(np.full((), 0.25, np.float32))
    model = Module()
    folder = hook["Folder"](tmp_path, model, rows=8)
    mode = hook["ScaledMm"](folder)
    model.hooks[1](model, ())
    options = {"out_dtype": ml_dtypes.bfloat16}
    arguments = (Tensor(x), Tensor(w.T), one, one)
    mode.__torch_dispatch__(scaled_mm, (), arguments, options)
    mode.__torch_dispatch__(scaled_mm, (), (*arguments, None, None, np.float32, True))
    mode.__torch_dispatch__(lambda: "another op", ())
    gemms = [mj.read_gemm(path) for path in sorted(tmp_path.iterdir())]
    assert [g.name for g in gemms] == ["00000-mlp.up", "00001-mlp.up"]
    assert [g.use_fast_accum for g in gemms] == [False, True]
    assert [g.out.dtype.name for g in gemms] == ["bfloat16", "float32"]
    assert gemms[0].shape == (32, 48, 256)
    assert gemms[0].a.shape == (8, 256)
    assert mj.check_outputs(tmp_path, "hopper", 1).equal


def float8(array, transposed=False):
    """A Float8Tensor that keeps its codes, or only their transposed copy."""
    codes = Tensor(array.view(np.uint8))
    return types.SimpleNamespace(
        _data=None if transposed else codes,
        _transpose=codes.t().contiguous() if transposed else None,
        _scale_inv=Tensor(np.full(1, 0.5, np.float32)),
        _fp8_dtype=8,
    )


@pytest.mark.parametrize("only_transposed", [False, True])
def test_transformer_engine(hook, tmp_path, monkeypatch, only_transposed):
    """Forward (TN), gradient of the input (NN) and of the weight (NT), as general_gemm calls."""
    x, w, dy = operands((32, 64), (48, 64), (32, 48))
    te = types.ModuleType("transformer_engine_torch")
    te.DType = types.SimpleNamespace(kFloat8E4M3=8, kFloat8E5M2=9)

    def generic_gemm(A, transa, B, transb, *rest):
        return Tensor(rest[0]), None, None, None

    te.generic_gemm = generic_gemm
    monkeypatch.setitem(sys.modules, "transformer_engine_torch", te)

    def product(a, b, fast):
        return mj.host.scaled_mm(
            np.ascontiguousarray(a), b, 0.5, 0.5, out_dtype=ml_dtypes.bfloat16,
            use_fast_accum=fast, splitk=1,
        )  # fmt: skip

    with hook["transformer_engine"](hook["Folder"](tmp_path)):
        for A, transa, B, transb, out, grad in (
            (w, True, x, False, product(x, w.T, True), False),
            (w, False, dy, False, product(dy, w, False), True),
            (x, False, dy, True, product(dy.T, x, False), True),
        ):
            end = (None, None, None, None, False, None, grad, None, 0, False, grad)
            sides = (float8(A, only_transposed), transa, float8(B, only_transposed), transb)
            te.generic_gemm(*sides, out, *end)
            te.generic_gemm(*sides, out, *end[:9], True, grad)  # accumulates: left out
        te.generic_gemm(Tensor(w), True, Tensor(x), False, product(x, w.T, True), *end)  # no FP8
    assert te.generic_gemm is generic_gemm
    report = mj.check_outputs(tmp_path, "hopper", 1)
    assert [g.shape for g in report.gemms] == [(32, 48, 64), (32, 64, 48), (48, 64, 32)]
    assert report.equal
