"""A few lines of ctypes around the driver's interface, for programs that tests run.

`Cuda()` loads `libcuda.so.1` and calls it by exported names, as ctypes looks them up (dlsym);
`Cuda(by_proc_address=True)` takes every function from `cuGetProcAddress_v2`, as the CUDA runtime
does. `call` returns the driver's result; `must` raises unless it is 0.
"""

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

MIB = 1024 * 1024
OUT_OF_MEMORY = 2


class Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class AllocationProp(ctypes.Structure):
    """`CUmemAllocationProp`."""

    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    )


class PoolProps(ctypes.Structure):
    """`CUmemPoolProps`."""

    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("max_size", c_size_t),
        ("reserved", ctypes.c_uint8 * 56),
    )


class AllocNode(ctypes.Structure):
    """`CUDA_MEM_ALLOC_NODE_PARAMS`."""

    _fields_ = (
        ("pool", PoolProps),
        ("access", c_void_p),
        ("access_count", c_size_t),
        ("bytes", c_size_t),
        ("address", c_uint64),
    )


class ArrayDescriptor(ctypes.Structure):
    """`CUDA_ARRAY3D_DESCRIPTOR`; its first fields are those of `CUDA_ARRAY_DESCRIPTOR`."""

    _fields_ = (
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
        ("format", c_int),
        ("channels", c_uint),
        ("flags", c_uint),
    )


class Cuda:
    """The driver, initialised, with a context on each of the given devices; the last is current."""

    def __init__(
        self,
        *devices: int,
        by_proc_address: bool = False,
        version: int = 12000,
        flags: int = 0,
        library: str = "libcuda.so.1",
    ) -> None:
        self.library = ctypes.CDLL(library)
        self._by_proc_address = by_proc_address
        self._version, self._flags = version, flags
        self.must("cuInit", 0)
        self.contexts = []
        for device in devices or (0,):
            context = c_void_p()
            self.must("cuCtxCreate_v2", byref(context), 0, device)
            self.contexts.append(context)

    def address(self, name: str) -> int:
        """The address that `cuGetProcAddress_v2` gives for a name without its ending."""
        found, status = c_void_p(), c_int()
        result = self.library.cuGetProcAddress_v2(
            name.encode(), byref(found), self._version, c_uint64(self._flags), byref(status)
        )
        assert result == 0, (name, result)
        return found.value or 0

    def call(self, name: str, *arguments: Any) -> int:
        if self._by_proc_address:
            plain = name.removesuffix("_ptsz").removesuffix("_v2")
            function = ctypes.CFUNCTYPE(c_int)(self.address(plain))
        else:
            function = getattr(self.library, name)
        passed = [c_uint64(one) if isinstance(one, int) else one for one in arguments]
        return int(function(*passed))

    def must(self, name: str, *arguments: Any) -> None:
        result = self.call(name, *arguments)
        assert result == 0, (name, result)

    def get(self, name: str, *arguments: Any, kind: Any = c_uint64) -> int:
        """The value that a function writes to its first argument."""
        value = kind()
        self.must(name, byref(value), *arguments)
        return int(value.value)

    def info(self) -> tuple[int, int]:
        """(free, total) of the current device in MiB."""
        free, total = c_size_t(), c_size_t()
        self.must("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value // MIB, total.value // MIB

    def alloc(self, mib: float) -> int:
        """The address, or 0 when there is no memory; other errors raise."""
        value = c_uint64()
        result = self.call("cuMemAlloc_v2", byref(value), int(mib * MIB))
        assert result in (0, OUT_OF_MEMORY), result
        return value.value if result == 0 else 0

    def free(self, address: int) -> None:
        self.must("cuMemFree_v2", address)

    def create(self, mib: int, device: int = 0) -> int:
        """A handle of physical memory, or 0 when there is no memory."""
        prop = AllocationProp(type=1, location=Location(1, device))
        handle = c_uint64()
        result = self.call("cuMemCreate", byref(handle), mib * MIB, byref(prop), 0)
        assert result in (0, OUT_OF_MEMORY), result
        return handle.value if result == 0 else 0
