"""cuBLASLt by ctypes, called as torch 2.7.1's ``_scaled_mm`` calls it: the heuristic and the GEMM.

Nothing here computes emulated bits; it asks the GPU that is there. torch computes the row-major
[M, N] output as the column-major [N, M] one: the library's m, n and A are our N, M and mat2.
"""

import contextlib
import ctypes
import ctypes.util
import dataclasses
import importlib.metadata
import importlib.util
import pathlib
import re
from collections.abc import Iterator

import numpy as np

from mmaemu_jax.cuda_driver import CudaDriver
from mmaemu_jax.errors import BackendUnavailableError, message
from mmaemu_jax.formats import FORMATS

# Enumerators of cublasLt.h, cublas_api.h and library_types.h.
_COMPUTE_32F, _OP_N, _OP_T = 68, 0, 1
_DATA_TYPES = {
    "float32": 0,
    "float16": 2,
    "bfloat16": 14,
    "float8_e4m3fn": 28,
    "float8_e5m2": 29,
}
_DESC = {
    "transa": 3,
    "transb": 4,
    "epilogue": 7,
    "bias_pointer": 8,
    "a_scale_pointer": 17,
    "b_scale_pointer": 18,
    "d_scale_pointer": 20,
    "fast_accum": 25,
    "bias_data_type": 26,
}
_EPILOGUE_BIAS = 4
_MAX_WORKSPACE_BYTES = 1
#: cublasLtMatmulAlgoConfigAttributes_t; these are 32 bits wide.
_CONFIG = {
    "algo": 0,
    "tile": 1,
    "splitK": 2,
    "reduction": 3,
    "swizzle": 4,
    "custom": 5,
    "stages": 6,
}
_FP8_DTYPES = {fmt.name: fmt.dtype.name for fmt in FORMATS}


class _Algo(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64 * 8),)


class _HeuristicResult(ctypes.Structure):
    _fields_ = (
        ("algo", _Algo),
        ("workspace_size", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves_count", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclasses.dataclass(frozen=True)
class GemmCall:
    """One call: a [M, K] and b [N, K] by format name, and what else the heuristic depends on."""

    M: int
    N: int
    K: int
    format_a: str
    format_b: str
    out_dtype: str
    use_fast_accum: bool
    workspace_bytes: int
    has_scale_result: bool = False


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """The first heuristic result: the fields of its configuration, and the library's own bytes."""

    algo: int
    tile: int
    splitK: int
    reduction: int
    swizzle: int
    custom: int
    stages: int
    workspace_bytes: int
    opaque: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The library takes no such call: its cublasStatus_t."""

    status: int


def find_library() -> str | None:
    """The path of libcublasLt: what this process has loaded, or a wheel's, or the system's."""
    maps = pathlib.Path("/proc/self/maps")
    loaded = re.findall(r"\S*/libcublasLt\.so\S*", maps.read_text()) if maps.exists() else []
    if loaded:
        return loaded[0]
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(pathlib.Path(folder).glob("*/lib/libcublasLt.so.*")):
            return str(path)
    return ctypes.util.find_library("cublasLt")


class CublasLt:
    """A handle of the library on one GPU.

    Raises:
        BackendUnavailableError: no library, no driver, or it makes no handle.
    """

    def __init__(self, library: str | None = None, driver: CudaDriver | None = None):
        self.driver = CudaDriver() if driver is None else driver
        path = library or find_library()
        if path is None:
            text = "cuBLASLt: libcublasLt was not found."
            raise BackendUnavailableError(message(text, ["pip install nvidia-cublas-cu12"]))
        self._path = path
        self._lt = ctypes.CDLL(path)
        self._lt.cublasLtGetVersion.restype = ctypes.c_size_t
        self._handle = ctypes.c_void_p()
        self._check("cublasLtCreate", ctypes.byref(self._handle))

    def close(self) -> None:
        """Gives the handle back."""
        self._check("cublasLtDestroy", self._handle)

    @property
    def version(self) -> str:
        """Its version, with the build number where the file or its wheel says it."""
        number = self._lt.cublasLtGetVersion()
        short = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        named = re.search(
            r"libcublasLt\.so\.(\d+\.\d+\.\d+\.\d+)$", str(pathlib.Path(self._path).resolve())
        )
        wheels = [named[1]] if named else []
        for wheel in ("nvidia-cublas-cu12", "nvidia-cublas"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                wheels.append(importlib.metadata.version(wheel))
        return next((full for full in wheels if full.startswith(f"{short}.")), short)

    def _status(self, name: str, *arguments) -> int:
        return getattr(self._lt, name)(*arguments)

    def _check(self, name: str, *arguments) -> None:
        status = self._status(name, *arguments)
        if status != 0:
            text = f"cuBLASLt: {name} failed with cublasStatus_t {status}."
            raise BackendUnavailableError(
                message(text, ["run 'nvidia-smi' to see the GPU's state"])
            )

    def heuristic(self, call: GemmCall) -> Algorithm | Refusal:
        """The first result that the library's heuristic gives for ``call``."""
        with self._descriptors(call, scales=(256, 512, 768)) as parts:
            return self._ask(call, parts)

    def gemm(
        self,
        call: GemmCall,
        a: np.ndarray,
        b: np.ndarray,
        scale_a: np.float32,
        scale_b: np.float32,
        scale_result: np.float32 | None = None,
        *,
        bias: np.ndarray | None = None,
        c: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Algorithm] | Refusal:
        """Runs ``call`` with the heuristic's first algorithm.

        Args:
            call: has_scale_result must say whether ``scale_result`` is given.
            a, b: uint8 codes [M, K] and [N, K].
            scale_a, scale_b, scale_result: as scaled_mm's.
            bias: [N] bits (uint16) of bfloat16, added by the library's epilogue.
            c: [M, N] bits of the output dtype, added with beta = 1.

        Returns:
            The output's bits [M, N] and the algorithm, or the library's refusal.
        """
        size = {"float32": 4, "bfloat16": 2, "float16": 2}.get(call.out_dtype, 1)
        out = np.zeros((call.M, call.N), f"u{size}")
        scales = np.array([scale_a, scale_b, scale_result or 0.0], np.float32)
        bias = np.zeros(0, np.uint16) if bias is None else bias
        inputs = [np.ascontiguousarray(x) for x in (a, b, scales, bias, out if c is None else c)]
        with contextlib.ExitStack() as stack:
            new = lambda count: stack.enter_context(self.driver.memory(count))  # noqa: E731
            addresses = [new(x.nbytes) for x in inputs]
            for address, array in zip(addresses, inputs, strict=True):
                if array.nbytes:
                    self.driver.write(address, array)
            at_a, at_b, at_scales, at_bias, at_c = addresses
            at_out, workspace = new(out.nbytes), new(call.workspace_bytes)
            pointers = at_scales, at_scales + 4, at_scales + 8
            parts = stack.enter_context(
                self._descriptors(call, pointers, at_bias if len(bias) else None)
            )
            found = self._ask(call, parts)
            if isinstance(found, Refusal):
                return found
            status = self._multiply(
                call, parts, found, at_a, at_b, at_out if c is None else at_c, at_out, workspace,
                beta=0.0 if c is None else 1.0,
            )  # fmt: skip
            if status != 0:
                return Refusal(status)
            self.driver.read(at_out, out)
            return out, found

    @contextlib.contextmanager
    def _descriptors(
        self, call: GemmCall, scales: tuple[int, int, int], bias: int | None = None
    ) -> Iterator[list[ctypes.c_void_p]]:
        """The operation, the layouts of A, B, C and D, and the preference."""
        at_a, at_b, at_result = scales
        a_type, b_type = (_DATA_TYPES[_FP8_DTYPES[f]] for f in (call.format_a, call.format_b))
        d_type = _DATA_TYPES[call.out_dtype]
        # An FP8 GEMM's C has 16 bits.
        c_type = _DATA_TYPES["float16"] if call.out_dtype.startswith("float8") else d_type
        M, N, K = call.M, call.N, call.K
        with contextlib.ExitStack() as stack:
            make = lambda name, *arguments: stack.enter_context(self._made(name, *arguments))  # noqa: E731
            operation = make("MatmulDesc", ctypes.c_int(_COMPUTE_32F), ctypes.c_int(0))
            layouts = [
                make("MatrixLayout", ctypes.c_int(t), *map(ctypes.c_uint64, (rows, columns)),
                     ctypes.c_int64(rows))
                for t, rows, columns in (
                    (b_type, K, N), (a_type, K, M), (c_type, N, M), (d_type, N, M)
                )
            ]  # fmt: skip
            preference = make("MatmulPreference")
            self._set_desc(operation, "transa", ctypes.c_int32(_OP_T))
            self._set_desc(operation, "transb", ctypes.c_int32(_OP_N))
            # The library's A is mat2.
            self._set_desc(operation, "a_scale_pointer", ctypes.c_void_p(at_b))
            self._set_desc(operation, "b_scale_pointer", ctypes.c_void_p(at_a))
            if call.has_scale_result:
                self._set_desc(operation, "d_scale_pointer", ctypes.c_void_p(at_result))
            if bias is not None:
                self._set_desc(operation, "bias_pointer", ctypes.c_void_p(bias))
                self._set_desc(operation, "epilogue", ctypes.c_int32(_EPILOGUE_BIAS))
                bfloat16 = ctypes.c_int32(_DATA_TYPES["bfloat16"])
                self._set_desc(operation, "bias_data_type", bfloat16)
            self._set_desc(operation, "fast_accum", ctypes.c_int8(call.use_fast_accum))
            size = ctypes.c_uint64(call.workspace_bytes)
            self._check("cublasLtMatmulPreferenceSetAttribute", preference,
                        ctypes.c_int(_MAX_WORKSPACE_BYTES), ctypes.byref(size),
                        ctypes.c_size_t(8))  # fmt: skip
            yield [operation, *layouts, preference]

    @contextlib.contextmanager
    def _made(self, name: str, *arguments) -> Iterator[ctypes.c_void_p]:
        made = ctypes.c_void_p()
        self._check(f"cublasLt{name}Create", ctypes.byref(made), *arguments)
        try:
            yield made
        finally:
            self._check(f"cublasLt{name}Destroy", made)

    def _set_desc(self, operation: ctypes.c_void_p, name: str, value) -> None:
        self._check("cublasLtMatmulDescSetAttribute", operation, ctypes.c_int(_DESC[name]),
                    ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))  # fmt: skip

    def _ask(self, call: GemmCall, parts: list[ctypes.c_void_p]) -> Algorithm | Refusal:
        result, count = _HeuristicResult(), ctypes.c_int()
        status = self._status("cublasLtMatmulAlgoGetHeuristic", self._handle, *parts,
                              ctypes.c_int(1), ctypes.byref(result),
                              ctypes.byref(count))  # fmt: skip
        if status != 0 or count.value == 0 or result.state != 0:
            return Refusal(status or result.state or -1)
        fields = {name: self._config(result.algo, which) for name, which in _CONFIG.items()}
        return Algorithm(**fields, workspace_bytes=result.workspace_size, opaque=bytes(result.algo))

    def _config(self, algo: _Algo, which: int) -> int:
        value, written = ctypes.c_uint32(), ctypes.c_size_t()
        self._check("cublasLtMatmulAlgoConfigGetAttribute", ctypes.byref(algo), ctypes.c_int(which),
                    ctypes.byref(value), ctypes.c_size_t(4), ctypes.byref(written))  # fmt: skip
        return value.value

    def _multiply(self, call, parts, found, a, b, c, out, workspace, *, beta: float) -> int:
        operation, layout_a, layout_b, layout_c, layout_d, _ = parts
        one, add = ctypes.c_float(1.0), ctypes.c_float(beta)
        algo = _Algo.from_buffer_copy(found.opaque)
        pointer = ctypes.c_void_p
        return self._status(
            "cublasLtMatmul", self._handle, operation, ctypes.byref(one),
            pointer(b), layout_a, pointer(a), layout_b, ctypes.byref(add),
            pointer(c), layout_c, pointer(out), layout_d, ctypes.byref(algo),
            pointer(workspace), ctypes.c_size_t(call.workspace_bytes), pointer(None),
        )  # fmt: skip


#: The measured profile of each compute capability whose arithmetic and split rule are known.
MEASURED_PROFILES = {(8, 9): "ada", (9, 0): "hopper"}


def scheme_of(capability: tuple[int, int], algorithm: Algorithm) -> str | None:
    """How the parts of a split are combined (R12, R13); None where nobody has measured it."""
    if algorithm.splitK <= 1:
        return "none"
    known = MEASURED_PROFILES.get(capability)
    if known == "hopper":
        return "contiguous"
    if known == "ada":
        return "pairwise" if algorithm.custom == 1 else "serial"
    return None
