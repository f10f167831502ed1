"""The state file of the test drivers: `state.h` in ctypes, and what tests write there.

`GpuState.create` makes a file with devices, `GpuState(path)` maps one that exists. The structures
are views of the mapped file: what a test assigns is seen by the drivers of all processes at once.
Amounts are bytes unless the name says otherwise.
"""

import ctypes
import mmap
from pathlib import Path
from typing import Self

MAGIC = 0x5550474C45525243
VERSION = 2
DEVICES, PROCESSES, LINKS, MIGS, XIDS = 16, 256, 18, 8, 32
LIMITS, GROUP = 64, 192
NOT_SUPPORTED = 3
NONE = 0xFFFFFFFF  # no GPU instance
MIB = 1024 * 1024

U32, U64 = ctypes.c_uint32, ctypes.c_uint64


class Link(ctypes.Structure):
    _fields_ = (
        *((name, U32) for name in ("active", "remote_type", "version", "errors")),
        ("remote_bus_id", ctypes.c_char * 32),
    )


class Mig(ctypes.Structure):
    _fields_ = (
        *(
            (name, U32)
            for name in (
                "present",
                "gpu_instance",
                "compute_instance",
                "profile",
                "start",
                "size",
                "compute_slices",
                "incomplete",
            )
        ),
        ("memory_total", U64),
        ("memory_used", U64),
        ("uuid", ctypes.c_char * 48),
        ("name", ctypes.c_char * 32),
    )


class Xid(ctypes.Structure):
    _fields_ = tuple(
        (name, U32) for name in ("code", "gpu_instance", "compute_instance", "reserved")
    )


class Device(ctypes.Structure):
    _fields_ = (
        ("uuid", ctypes.c_char * 48),
        ("name", ctypes.c_char * 64),
        ("bus_id", ctypes.c_char * 32),
        ("memory_total", U64),
        ("memory_reserved", U64),
        ("memory_used", U64),
        ("context_bytes", U64),
        *(
            (name, U32)
            for name in (
                "lost",
                "no_counters",
                "utilization_gpu",
                "utilization_memory",
                "power_mw",
                "power_limit_mw",
                "temperature_c",
                "fan_percent",
                "clock_sm_mhz",
                "clock_memory_mhz",
                "compute_major",
                "compute_minor",
            )
        ),
        ("numa_node", ctypes.c_int32),
        ("ecc_enabled", U32),
        *(
            (name, U64)
            for name in (
                "throttle_reasons",
                "ecc_corrected",
                "ecc_uncorrected",
                "ecc_corrected_total",
                "ecc_uncorrected_total",
            )
        ),
        *(
            (name, U32)
            for name in (
                "remapped_correctable",
                "remapped_uncorrectable",
                "remap_pending",
                "remap_failed",
                "mig_mode",
                "mig_pending",
                "mig_needs_reset",
                "mig_failures",
            )
        ),
        ("xids_written", U64),
        ("xids", Xid * XIDS),
        ("links", Link * LINKS),
        ("migs", Mig * MIGS),
    )


class ProcessUse(ctypes.Structure):
    _fields_ = (
        ("memory_used", U64),
        ("sampled_us", U64),
        *(
            (name, U32)
            for name in (
                "sm_percent",
                "memory_percent",
                "encoder_percent",
                "decoder_percent",
                "gpu_instance",
                "contexts",
            )
        ),
    )


class Process(ctypes.Structure):
    _fields_ = (
        ("pid", U32),
        ("listed", U32),
        ("launches", U64),
        ("allocations", U64),
        ("group", ctypes.c_char * GROUP),
        ("use", ProcessUse * DEVICES),
    )


class Limit(ctypes.Structure):
    _fields_ = (
        *((name, U64) for name in ("inode", "soft", "hard")),
        *((name, U32) for name in ("device", "reserved")),
        ("group", ctypes.c_char * GROUP),
    )


class Layout(ctypes.Structure):
    """`struct gpu_state`."""

    _fields_ = (
        ("magic", U64),
        ("version", U32),
        ("size", U32),
        ("device_count", U32),
        ("driver_version", U32),
        ("driver", ctypes.c_char * 32),
        ("allocation_ns", U64),
        ("fail_allocations", U32),
        ("unprivileged", U32),
        ("limits_answer", U32),
        ("reserved", U32),
        ("devices", Device * DEVICES),
        ("processes", Process * PROCESSES),
        ("limits", Limit * LIMITS),
    )


class GpuState:
    """A mapped state file: `layout` has every field; the methods write what tests write often."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), ctypes.sizeof(Layout))
        self.layout = Layout.from_buffer(self._map)

    @classmethod
    def create(
        cls, path: Path, *, devices: int = 1, memory: int = 16384 * MIB, context: int = 0
    ) -> Self:
        """Writes a file with equal, idle, healthy devices.

        Args:
            path: Where; the drivers find it by `CARREL_TEST_GPU_STATE`.
            devices: How many, at most 16.
            memory: Of each device, bytes.
            context: What each context takes of it, bytes.
        """
        path.write_bytes(bytes(ctypes.sizeof(Layout)))
        state = cls(path)
        layout = state.layout
        layout.magic, layout.version, layout.size = MAGIC, VERSION, ctypes.sizeof(Layout)
        layout.device_count, layout.driver_version = devices, 13000
        layout.driver, layout.limits_answer = b"580.95.05", NOT_SUPPORTED
        for index in range(devices):
            device = layout.devices[index]
            device.uuid = f"GPU-00000000-0000-0000-0000-{index:012d}".encode()
            device.name = b"Carrel Test GPU"
            device.bus_id = f"00000000:{index + 1:02X}:00.0".encode()
            device.memory_total, device.context_bytes = memory, context
            device.power_mw, device.power_limit_mw = 60_000, 700_000
            device.temperature_c = 35
            device.clock_sm_mhz, device.clock_memory_mhz = 1980, 2619
            device.compute_major, device.numa_node, device.ecc_enabled = 9, -1, 1
        return state

    def list_process(
        self,
        device: int,
        pid: int,
        *,
        memory: int,
        sm_percent: int = 0,
        sampled_us: int = 0,
        gpu_instance: int = NONE,
    ) -> None:
        """Adds a process that the drivers list on a device, or changes what is listed of it."""
        slots = self.layout.processes
        slot = next(
            (each for each in slots if each.listed and each.pid == pid),
            None,
        ) or next(each for each in slots if each.pid == 0)
        use = slot.use[device]
        self.layout.devices[device].memory_used += memory - use.memory_used
        use.memory_used, use.sm_percent, use.sampled_us = memory, sm_percent, sampled_us
        use.gpu_instance, use.contexts = gpu_instance, 1
        slot.listed, slot.pid = 1, pid

    def has_limits(self, answer: int = 0) -> None:
        """Be a driver that limits memory by control group, or answers so to the calls for it."""
        self.layout.driver, self.layout.limits_answer = b"615.71.05", answer

    def limits(self) -> dict[tuple[str, int], int]:
        """The hard limits that are set: bytes by the path of the group and the device."""
        return {
            (one.group.decode(), one.device): one.hard
            for one in self.layout.limits
            if one.inode and one.hard != 2**64 - 1
        }

    def report_xid(
        self, device: int, code: int, *, gpu_instance: int = NONE, compute_instance: int = NONE
    ) -> None:
        """Appends an Xid error to the device's queue."""
        found = self.layout.devices[device]
        entry = found.xids[found.xids_written % XIDS]
        entry.code = code
        entry.gpu_instance, entry.compute_instance = gpu_instance, compute_instance
        found.xids_written += 1
