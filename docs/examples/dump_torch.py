"""Writes down the FP8 GEMMs of a torch model, an .npz for each; needs torch and numpy alone.

    folder = Folder("dumps", model)
    with ScaledMm(folder):            # torch._scaled_mm, in eager code (no torch.compile)
        model(batch)
    with transformer_engine(folder):  # Transformer Engine 2.3 for PyTorch, tensor-wise scales
        loss = model(batch)
        loss.backward()

Copy the file to the machine of the GPU and adapt it.
"""

import contextlib
import pathlib

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Of aten::_scaled_mm, in order; a call may leave out the last.
ARGUMENTS = ("self", "mat2", "scale_a", "scale_b", "bias", "scale_result", "out_dtype")
ARGUMENTS += ("use_fast_accum",)


def codes(tensor):
    """The bytes of a tensor; the last axis is that of the elements times their size."""
    return tensor.detach().contiguous().view(torch.uint8).cpu().numpy()


def scale(tensor):
    return None if tensor is None else tensor.detach().float().cpu().numpy()


class Folder:
    """Where the files go; knows which layer runs. ``rows``: keep only the first rows of M."""

    def __init__(self, path, model=None, rows=None):
        self.path, self.rows = pathlib.Path(path), rows
        self.path.mkdir(parents=True, exist_ok=True)
        self.count, self.layer = 0, "gemm"
        for name, module in model.named_modules() if model is not None else ():
            module.register_forward_pre_hook(lambda _, inputs, name=name: self._enter(name))

    def _enter(self, name):
        self.layer = name or "model"

    def save(self, a, b, out, **others):
        """a [M, K], b [N, K] and out [M, N] with their dtypes' names, scales and options."""
        arrays = {"M": a.shape[0], "a": codes(a[: self.rows]), "b": codes(b)}
        arrays |= {"out": codes(out[: self.rows]), "out_dtype": str(out.dtype)}
        if (bias := others.pop("bias", None)) is not None:
            arrays |= {"bias": codes(bias), "bias_dtype": str(bias.dtype)}
        arrays |= {name: value for name, value in others.items() if value is not None}
        np.savez_compressed(self.path / f"{self.count:05}-{self.layer}.npz", **arrays)
        self.count += 1


class ScaledMm(TorchDispatchMode):
    """Saves each ``torch._scaled_mm`` that runs inside ``with ScaledMm(folder):``."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._scaled_mm.default:
            call = dict(zip(ARGUMENTS, args, strict=False)) | (kwargs or {})
            a, b = call["self"], call["mat2"]
            self.folder.save(
                a,
                b.t(),
                out,
                a_dtype=str(a.dtype),
                b_dtype=str(b.dtype),
                scale_a=scale(call["scale_a"]),
                scale_b=scale(call["scale_b"]),
                scale_result=scale(call.get("scale_result")),
                use_fast_accum=call.get("use_fast_accum", False),
                bias=call.get("bias"),
            )
        return out


def rows_of(tensor, transposed):
    """Codes of a Float8Tensor with the contracted dimension last."""
    data = tensor._data if tensor._data is not None else tensor._transpose
    is_turned = tensor._data is None  # [features, tokens] instead of [tokens, features]
    matrix = data.reshape(data.shape[0], -1) if is_turned else data.reshape(-1, data.shape[-1])
    return matrix.t() if transposed != is_turned else matrix


@contextlib.contextmanager
def transformer_engine(folder):
    """Saves each FP8 GEMM of Transformer Engine, except those that add to ``out``."""
    import transformer_engine_torch as tex

    original = tex.generic_gemm
    formats = {tex.DType.kFloat8E4M3: "e4m3", tex.DType.kFloat8E5M2: "e5m2"}

    def recorded(A, transa, B, transb, *rest, **keywords):
        result = original(A, transa, B, transb, *rest, **keywords)
        bias, gelu, grad, accumulate, split_accumulator = (rest[i] for i in (3, 5, 7, 10, 11))
        plain = not gelu and not accumulate and isinstance(result[0], torch.Tensor)
        if (
            plain
            and all(hasattr(x, "_fp8_dtype") for x in (A, B))
            and not hasattr(result[0], "_data")
        ):
            out = result[0]
            folder.save(  # out = B @ A.T, in torch's rows
                rows_of(B, transb),
                rows_of(A, not transa),
                out.reshape(-1, out.shape[-1]),
                a_dtype=formats[B._fp8_dtype],
                b_dtype=formats[A._fp8_dtype],
                scale_a=scale(B._scale_inv),
                scale_b=scale(A._scale_inv),
                use_fast_accum=not split_accumulator,
                bias=None if grad else bias,
            )
        return result

    tex.generic_gemm = recorded
    try:
        yield
    finally:
        tex.generic_gemm = original
