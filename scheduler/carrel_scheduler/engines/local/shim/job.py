"""What a supervisor is told about its task, handed over in memory so that no secret meets the disk.

``marshal`` is built into the interpreter that both ends share, so reading it costs no import.
"""

import marshal
import os


class Job:
    """One task as the supervisor needs it.

    Attributes:
        folder: the task's record folder (absolute); the supervisor writes nowhere else.
        uid: account to become, or -1 to stay what we are.
        veils: (path, source): folders hidden in the task's own view of the file system, behind
            an empty file system or, with a source, behind that folder.
        binds: (source, target, read_only): what is shown again inside hidden folders.
        shared_memory: mount options of its own ``/dev/shm``; empty for the machine's.
        cgroups: control group folders to join, removed at the end.
        oom_files: where the kernel counts its kills for want of memory.
        namespace_pid: of a terminal: join this process's view instead of making one.
    """

    def __init__(
        self,
        *,
        task_id: str,
        folder: str,
        command: list[str],
        environment: dict[str, str],
        working_dir: str,
        uid: int = -1,
        gid: int = -1,
        veils: list[tuple[str, str]] | None = None,
        binds: list[tuple[str, str, bool]] | None = None,
        shared_memory: str = "",
        cgroups: list[str] | None = None,
        oom_files: list[str] | None = None,
        private_tmp: str = "",
        log_segment_bytes: int = 16 * 1024 * 1024,
        log_segments: int = 4,
        namespace_pid: int = 0,
    ) -> None:
        self.task_id = task_id
        self.folder = folder
        self.command = command
        self.environment = environment
        self.working_dir = working_dir
        self.uid = uid
        self.gid = gid
        self.veils = veils or []
        self.binds = binds or []
        self.shared_memory = shared_memory
        self.cgroups = cgroups or []
        self.oom_files = oom_files or []
        self.private_tmp = private_tmp
        self.log_segment_bytes = log_segment_bytes
        self.log_segments = log_segments
        self.namespace_pid = namespace_pid

    def to_memory(self) -> int:
        """Write it to an anonymous file and return its descriptor."""
        descriptor = os.memfd_create("carrel-job")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(marshal.dumps(vars(self)))
        return descriptor

    @classmethod
    def from_memory(cls, descriptor: int) -> "Job":
        """Read what ``to_memory`` wrote, whoever began to before, and close the descriptor."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "rb") as file:
            return cls(**marshal.loads(file.read()))  # noqa: S302 - written by our own parent
