"""The few functions of the CUDA driver that talking to cuBLASLt takes, by ctypes."""

import contextlib
import ctypes
from collections.abc import Iterator

import numpy as np

from mmaemu_jax.errors import BackendUnavailableError, message

LIBRARY = "libcuda.so.1"
_SM_COUNT, _MAJOR, _MINOR = 16, 75, 76  # CUdevice_attribute


class CudaDriver:
    """One GPU's primary context, current in the calling thread.

    Raises:
        BackendUnavailableError: there is no driver or no such GPU.
    """

    def __init__(self, library: str = LIBRARY, device: int = 0):
        try:
            self._cuda = ctypes.CDLL(library)
        except OSError as error:
            text = f"cuBLASLt: the CUDA driver cannot be loaded: {error}."
            raise BackendUnavailableError(message(text, ["run this on a GPU machine"])) from error
        self._call("cuInit", ctypes.c_uint(0))
        handle, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(device))
        self._device = handle
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)
        self._call("cuCtxSetCurrent", self._context)

    def _call(self, name: str, *arguments) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status != 0:
            text = f"cuBLASLt: {name} failed with CUresult {status}."
            raise BackendUnavailableError(message(text, ["run this on a GPU machine"]))

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(which), self._device)
        return value.value

    @property
    def name(self) -> str:
        """The GPU's name."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, ctypes.c_int(256), self._device)
        return text.value.decode()

    @property
    def capability(self) -> tuple[int, int]:
        """Its compute capability."""
        return self._attribute(_MAJOR), self._attribute(_MINOR)

    @property
    def sm_count(self) -> int:
        """Its number of multiprocessors."""
        return self._attribute(_SM_COUNT)

    @property
    def version(self) -> int:
        """The newest CUDA version of the driver, as 1000 * major + 10 * minor."""
        value = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    def __str__(self) -> str:
        """As :attr:`Profile.gpu` is written."""
        major, minor = self.capability
        return f"{self.name} (sm_{major}{minor}, {self.sm_count} SMs)"

    @contextlib.contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """Device memory of at least one byte, freed at the end: its address."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        try:
            yield address.value
        finally:
            self._call("cuMemFree_v2", address)

    def write(self, address: int, array: np.ndarray) -> None:
        """Copies a contiguous array to the device."""
        source = array.ctypes.data_as(ctypes.c_void_p)
        size = ctypes.c_size_t(array.nbytes)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), source, size)

    def read(self, address: int, array: np.ndarray) -> None:
        """Waits for the device, then copies into a contiguous array."""
        self._call("cuCtxSynchronize")
        target = array.ctypes.data_as(ctypes.c_void_p)
        size = ctypes.c_size_t(array.nbytes)
        self._call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(address), size)
