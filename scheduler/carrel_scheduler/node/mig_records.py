"""Records of the MIG instances that the agent of a node made, in a file that outlives it.

An instance is known by its GPU, its profile and its place. It is written down before it is made, so
that one is found again whose maker ended in between. What is not there any more is forgotten, as
after a restart of the node, which removes all instances.
"""

import logging
import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
from typing_extensions import override

from carrel_scheduler.node.mig import Instance
from carrel_scheduler.node.mig_allocation import InstanceOwner, InstanceRequest, MachineInstances

log = logging.getLogger("carrel_node")


class InstanceRecords(InstanceOwner):
    """The record of what the agent made. Raises ``OSError`` where it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made = _read(path)
        self._lock = threading.Lock()

    @override
    def seen(self, device: str, there: Sequence[Instance]) -> None:
        """Forget those of a GPU that are not there any more.

        The file is read again: an agent that is just ending may have made one since.
        """
        present = {_place(device, one.profile, one.bits) for one in there}
        with self._lock:
            self._made = _read(self._path, self._made)
            gone = {one for one in self._made if one[0] == device} - present
            if gone:
                self._write(self._made - gone)

    @override
    def is_ours(self, device: str, instance: Instance) -> bool:
        """Whether the agent made it."""
        return _place(device, instance.profile, instance.bits) in self._made

    @override
    def making(self, wanted: InstanceRequest) -> None:
        """Write down that one is about to be made."""
        with self._lock:
            self._write(self._made | {_place(wanted.device, wanted.profile, wanted.bits)})

    @override
    def removed(self, device: str, instance: Instance) -> None:
        """Forget one."""
        with self._lock:
            self._write(self._made - {_place(device, instance.profile, instance.bits)})

    def _write(self, made: set[tuple[str, str, int]]) -> None:
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(sorted(made)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._made = made


def ownership(path: Path | None) -> InstanceOwner:
    """The owner of instances: of those in the record, or of all where there is no record."""
    return MachineInstances() if path is None else InstanceRecords(path)


def _place(device: str, profile: str, bits: int) -> tuple[str, str, int]:
    return device, profile, bits


def _read(
    path: Path, otherwise: Collection[tuple[str, str, int]] = ()
) -> set[tuple[str, str, int]]:
    """The content of the file; ``otherwise`` where it cannot be read."""
    try:
        return set(msgspec.json.decode(path.read_bytes(), type=list[tuple[str, str, int]]))
    except FileNotFoundError:
        return set()
    except msgspec.MsgspecError as error:
        log.warning("%s cannot be read: no instance that is there is removed: %s", path, error)
        return set(otherwise)
