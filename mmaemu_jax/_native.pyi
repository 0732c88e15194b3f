"""Stub of the C++ extension (csrc/ffi/bindings.cc)."""

VERSION: str
SOURCE_DIGEST: str
GEMM_TARGET: str
PROBE_TARGET: str

def registrations() -> dict[str, object]: ...
def cpu_targets() -> list[tuple[str, bool, str]]: ...
def cpu_features() -> dict[str, bool]: ...
