"""The job of a supervisor or terminal, handed over in memory so that no secret is written to disk.

It is encoded with ``marshal``, which is built into the interpreter that both ends share.
"""

import marshal
import os
from collections.abc import Sequence
from typing import Any, dataclass_transform


@dataclass_transform(kw_only_default=True)
class _Fields:
    """A class of named fields; ``dataclasses`` is slow to import."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


class ShimTask(_Fields):
    """A task in the form that its supervisor reads.

    Attributes:
        folder: the task's record folder (absolute); the supervisor writes nowhere else.
        uid: account to become, or -1 to keep the own one; such tasks have no sandbox.
        user: the account's name, for messages.
        home: of an account whose home lies in the closed state folder; else empty.
        bubblewrap: the program that makes sandboxes.
        holder: the command (``cat``) that keeps one.
        image: folder of the unpacked image that is its root; empty for the machine's own.
        network_namespace: path of the network namespace to begin in; empty for the machine's.
        masks: folders hidden by an empty one in the task's mount namespace.
        binds: (source, target, read_only) of folders of the engine, shown inside masked ones.
        volumes: (field, source, target, read_only) that the user named; an empty target means its
            own path, where needed.
        temporaries: folders that are replaced by ``private_tmp``.
        links_not_followed: targets among ``binds`` in which no symbolic link is followed.
        device_nodes: of its GPUs.
        shared_memory_bytes: size of its own ``/dev/shm``; 0 for half of the memory.
        most_processes: limit of its account, where no control group counts them; 0 means none.
        syscall_filter: in the kernel's form (BPF); empty for none.
        cgroups: control group folders to join, removed at the end.
        oom_files: where the kernel counts processes killed for lack of memory.
        sandbox: of a terminal: (pid, start time) of the first process of the sandbox to join.
    """

    task_id: str
    folder: str
    command: list[str]
    environment: dict[str, str]
    working_dir: str
    uid: int = -1
    gid: int = -1
    groups: Sequence[int] = ()
    user: str = ""
    home: str = ""
    bubblewrap: str = ""
    holder: Sequence[str] = ()
    image: str = ""
    network_namespace: str = ""
    masks: Sequence[str] = ()
    binds: Sequence[tuple[str, str, bool]] = ()
    volumes: Sequence[tuple[str, str, str, bool]] = ()
    temporaries: Sequence[str] = ()
    links_not_followed: Sequence[str] = ()
    device_nodes: Sequence[str] = ()
    shared_memory_bytes: int = 0
    most_processes: int = 0
    syscall_filter: bytes = b""
    cgroups: Sequence[str] = ()
    oom_files: Sequence[str] = ()
    private_tmp: str = ""
    log_segment_bytes: int = 16 * 1024 * 1024
    log_segments: int = 4
    sandbox: tuple[int, int] = (0, 0)

    def to_memory(self) -> int:
        """Write the job to an anonymous file and return its descriptor."""
        descriptor = os.memfd_create("carrel-job")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(marshal.dumps(vars(self)))
        return descriptor

    @classmethod
    def from_memory(cls, descriptor: int) -> "ShimTask":
        """Read what ``to_memory`` wrote, from its start, and close the descriptor."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "rb") as file:
            return cls(**marshal.loads(file.read()))  # noqa: S302 - written by our own parent
