"""Stub of the C++ extension (csrc/ffi/bindings.cc)."""

import numpy as np

VERSION: str
SOURCE_DIGEST: str
GEMM_TARGET: str
PROBE_TARGET: str

def registrations() -> dict[str, object]: ...
def cpu_targets() -> list[tuple[str, bool, str]]: ...
def cpu_features() -> dict[str, bool]: ...
def simd_kernels_run(nfma: int, frac: int, frac_out: int, min_exp: int, late_c: bool) -> bool: ...
def host_gemm(
    operands: list[tuple[np.ndarray, str]],
    out: np.ndarray,
    out_dtype: str,
    model: tuple[int, int, int, int],
    late_c: bool,
    plan: tuple[int, int, int],
    interleaved: bool,
    pairwise: bool,
    b_layout: str,
    kernel: str,
    has_scale_result: bool,
    has_c: bool,
    threads: int,
) -> None: ...
