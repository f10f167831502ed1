"""What a supervisor is told about its task, handed over in memory so that no secret meets the disk.

``marshal`` is built into the interpreter that both ends share, so reading it costs no import.
"""

import marshal
import os


class Job:
    """One task as the supervisor needs it.

    Attributes:
        folder: the task's record folder (absolute); the supervisor writes nowhere else.
        uid: account to become, or -1 to stay what we are; its tasks are in no sandbox then.
        user: the account's name, for words.
        home: of an account whose home lies in our closed folders; else empty.
        bubblewrap: the program that makes sandboxes.
        holder: the program (``cat``) that keeps one.
        network_namespace: path of the network namespace to begin in; empty for the machine's.
        veils: folders hidden in the task's own view of the file system.
        binds: (source, target, read_only) of ours: what is shown again inside hidden folders.
        volumes: (field, source, target, read_only) that the user named; an empty target means at
            its own path, where needed.
        temporaries: folders whose place ``private_tmp`` takes.
        links_not_followed: targets among ``binds`` in which no symbolic link is followed.
        device_nodes: of its GPUs.
        shared_memory_bytes: size of its own ``/dev/shm``; 0 for half of the memory.
        most_processes: of its account, where no control group counts them; 0 means no limit.
        syscall_filter: in the kernel's form (BPF); empty for none.
        cgroups: control group folders to join, removed at the end.
        oom_files: where the kernel counts its kills for want of memory.
        sandbox: of a terminal: (pid, start time) of the first process of the sandbox to join.
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
        user: str = "",
        home: str = "",
        bubblewrap: str = "",
        holder: str = "",
        network_namespace: str = "",
        veils: list[str] | None = None,
        binds: list[tuple[str, str, bool]] | None = None,
        volumes: list[tuple[str, str, str, bool]] | None = None,
        temporaries: list[str] | None = None,
        links_not_followed: list[str] | None = None,
        device_nodes: list[str] | None = None,
        shared_memory_bytes: int = 0,
        most_processes: int = 0,
        syscall_filter: bytes = b"",
        cgroups: list[str] | None = None,
        oom_files: list[str] | None = None,
        private_tmp: str = "",
        log_segment_bytes: int = 16 * 1024 * 1024,
        log_segments: int = 4,
        sandbox: tuple[int, int] = (0, 0),
    ) -> None:
        self.task_id = task_id
        self.folder = folder
        self.command = command
        self.environment = environment
        self.working_dir = working_dir
        self.uid, self.gid, self.user, self.home = uid, gid, user, home
        self.bubblewrap, self.holder = bubblewrap, holder
        self.network_namespace = network_namespace
        self.veils = veils or []
        self.binds = binds or []
        self.volumes = volumes or []
        self.temporaries = temporaries or []
        self.links_not_followed = links_not_followed or []
        self.device_nodes = device_nodes or []
        self.shared_memory_bytes = shared_memory_bytes
        self.most_processes, self.syscall_filter = most_processes, syscall_filter
        self.cgroups = cgroups or []
        self.oom_files = oom_files or []
        self.private_tmp = private_tmp
        self.log_segment_bytes = log_segment_bytes
        self.log_segments = log_segments
        self.sandbox = sandbox

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
