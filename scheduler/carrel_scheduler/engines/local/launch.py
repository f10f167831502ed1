"""Start a task exactly once: build its folder aside, claim its name, hand over to a supervisor.

The claim is one rename, which only one of any number of schedulers can win. The folder's lock is
held from before the claim and passed on to the supervisor, so whoever looks at a claimed folder
whose lock is free knows that nobody is about to start it any more.
"""

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import AlreadyStarted, EngineError, TaskSpec
from carrel_scheduler.engines.local import (
    devicenodes,
    eventfiles,
    files,
    identity,
    isolation,
    sharedmemory,
)
from carrel_scheduler.engines.local.accounts import Account, Accounts
from carrel_scheduler.engines.local.capabilities import require_sandbox, sandbox_programs
from carrel_scheduler.engines.local.cgroups import Bounds, Limiter
from carrel_scheduler.engines.local.environment import task_environment
from carrel_scheduler.engines.local.layout import Layout, write_whole
from carrel_scheduler.engines.local.network.namespaces import (
    Joined,
    Namespaces,
    files_inside,
    hosts_inside,
)
from carrel_scheduler.engines.local.shim import tree
from carrel_scheduler.engines.local.shim.job import Job
from carrel_scheduler.engines.local.supervisors import NoSupervisor, Supervisors
from carrel_scheduler.engines.local.syscalls import filter_without_user_namespaces
from carrel_scheduler.engines.local.truth import Lock, TaskRecord

MOST_PROCESSES: Final = 4096
WITHOUT_HOME: Final = frozenset({"tensorboard"})
HOSTS: Final = Path("/etc/hosts")


class Launcher:
    """Starts tasks.

    Args:
        layout: the engine's folders.
        node: name of this machine; other nodes' tasks are refused.
        accounts: whose account a task gets.
        limiter: sets limits.
        readable: folders that every task may read besides our own Python's.
        namespaces: gives each account a network of its own; without, all share the machine's.
        most_processes: of one task, threads counted.
        user_namespaces: whether tasks may begin some.
        log_segment_bytes: see ``shim.logwriter``.
        log_segments: the same.
    """

    def __init__(
        self,
        layout: Layout,
        node: str,
        accounts: Accounts,
        limiter: Limiter,
        *,
        readable: Sequence[Path] = (),
        namespaces: Namespaces | None = None,
        most_processes: int = MOST_PROCESSES,
        user_namespaces: bool = False,
        log_segment_bytes: int = 16 * 1024 * 1024,
        log_segments: int = 4,
    ) -> None:
        self._layout, self._node = layout, node
        self._accounts, self._limiter = accounts, limiter
        self._readable, self._most_processes = tuple(readable), most_processes
        self._user_namespaces = user_namespaces
        self._namespaces = namespaces
        self._segment_bytes, self._segments = log_segment_bytes, log_segments
        self._supervisors = Supervisors()

    @property
    def syscall_filter(self) -> bytes:
        """What processes in sandboxes are refused; see ``syscalls``."""
        return b"" if self._user_namespaces else filter_without_user_namespaces()

    def start(self, task: TaskSpec) -> None:
        """Start; blocks for some milliseconds.

        Raises ``AlreadyStarted``, or ``EngineError`` after which nothing is left.
        """
        self._check(task)
        folder = self._layout.task(task.id)
        if folder.exists():
            raise AlreadyStarted(f"task {task.id} was started before")
        account = self._accounts.resolve(task.user)
        joined = None
        if not account.shared:
            require_sandbox()
            joined = self._namespaces.join(account.uid) if self._namespaces else None
        building = Path(tempfile.mkdtemp(dir=self._layout.building))
        try:
            lock = Lock.take(building)
            try:
                self._build(building, task, account, joined)
                job = self._job(task, account, folder, joined)
                self._claim(building, folder, task)
                self._hand_over(job, task, folder, lock)
            finally:
                os.close(lock)
        except (OSError, UnicodeError) as error:
            reason = f"task {task.id} could not be prepared: {error}"
            raise EngineError(reason) from error
        finally:
            self._layout.discard(building)

    def _check(self, task: TaskSpec) -> None:
        if task.node != self._node:
            raise EngineError(f"node={task.node!r}: this engine runs tasks of {self._node!r} only")
        if not task.command or not task.command[0]:
            raise EngineError(
                f"command={list(task.command)!r}: a program and its arguments are right"
            )
        if any("\0" in part for part in task.command):
            raise EngineError("command: an argument with a NUL character cannot be passed on")
        if task.device_uuids and len(task.device_uuids) != len(task.devices):
            raise EngineError(
                f"device_uuids={list(task.device_uuids)!r}: one for each of devices"
                f" {list(task.devices)!r}, or none, is right"
            )

    def _build(
        self, building: Path, task: TaskSpec, account: Account, joined: Joined | None
    ) -> None:
        for name in ("work", "log", "tmp"):
            (building / name).mkdir(mode=0o700)
        (building / "tmp").chmod(0o1777)
        files.write_files(building / "work", task.files)
        files.place_volumes(building / "work", task.volumes, task.files, linked=account.shared)
        files.give(building / "work", account)
        os.mkfifo(building / "control", 0o600)
        if (task.hosts or joined) and HOSTS.exists():
            lines = "".join(f"{address} {name}\n" for address, name in task.hosts)
            known = HOSTS.read_text()
            text = f"{known if joined is None else hosts_inside(known, self._node)}\n{lines}"
            write_whole(building / HOSTS.name, text.encode(), mode=0o644)
        record = TaskRecord(
            name=task.name,
            project=task.project,
            user=task.user,
            node=task.node,
            uid=account.uid,
            gid=account.gid,
            shared=account.shared,
            devices=task.devices,
            memory_mib=task.memory_mib,
            working_dir=task.working_dir,
            address=joined.address if joined else "",
        )
        write_whole(building / "task.json", msgspec.json.encode(record))

    def _job(self, task: TaskSpec, account: Account, folder: Path, joined: Joined | None) -> Job:
        work, tmp = folder / "work", folder / "tmp"
        for source in task.read_only:
            isolation.check_kept(source, account)
        checkpoints, events = self._checkpoints(task, account), self._events(task, account)
        shown = eventfiles.shown_folders(self._layout.events, task.reads_events)
        before = self._before(task)
        job = Job(
            task_id=str(task.id),
            folder=str(folder),
            command=list(task.command),
            environment=task_environment(
                task,
                account,
                work=work,
                checkpoints=checkpoints,
                before=before[0] if before else None,
                events=events[0] if events else None,
                cpu_limited=self._limiter.enforces and task.cpu_limit_milli > 0,
            ),
            working_dir=task.working_dir or str(work),
            private_tmp=str(tmp),
            log_segment_bytes=self._segment_bytes,
            log_segments=self._segments,
        )
        if account.shared:
            sharedmemory.check_machines(task)
            self._check_usable(task)
            return job
        homeless = task.kind in WITHOUT_HOME
        view = isolation.plan_view(
            account,
            readable=[*isolation.interpreter_folders(account), *self._readable, *shown, *before],
            own=[work, *self._ours(checkpoints), *events, *([] if homeless else [account.home])],
            covered=[account.home] if homeless else [],
            replaced=identity.listings(account, self._layout.accounts),
        )
        self._confine(job, task, account, view)
        # What others write must not lead its reader to files of the reader's own.
        foreign = {str(path) for folder in shown for path in (folder, folder.resolve())}
        job.links_not_followed = [target for _, target, _ in job.binds if target in foreign]
        if joined is not None:
            job.network_namespace = str(joined.path)
            job.binds += [(str(source), str(target), True) for source, target in files_inside()]
            if not task.hosts and HOSTS.exists():
                job.binds.append(self._hosts(folder))
        return job

    def _confine(self, job: Job, task: TaskSpec, account: Account, view: isolation.View) -> None:
        """What makes the sandbox; see ``shim.sandbox``."""
        binds = [*view.binds, *self._of_the_gang(task, Path(job.folder))]
        work = os.path.realpath(Path(job.folder, "work"))
        places = [target for source, target, _ in binds if source == work]
        for source, place in files.destinations(task.volumes, task.files):
            kept = source in task.read_only
            targets = [f"{folder}/{place}" for folder in places] if place else [""]
            job.volumes += [("volumes", source, target, kept) for target in targets]
        for field, source in (
            ("working_dir", task.working_dir),
            ("checkpoint_dir", task.checkpoint_dir),
        ):
            if source and Path(source).parent != self._layout.checkpoints:
                job.volumes.append((field, str(Path(source).absolute()), "", False))
        job.uid, job.gid, job.user = account.uid, account.gid, account.name
        job.home = str(account.home) if account.home.is_relative_to(self._layout.root) else ""
        job.bubblewrap, job.holder = sandbox_programs()
        job.syscall_filter = self.syscall_filter
        job.veils, job.binds = view.veils, binds
        job.temporaries = [str(folder) for folder in isolation.temporary_folders()]
        job.shared_memory_bytes = sharedmemory.size(task)
        if not self._limiter.counts_processes:
            job.most_processes = self._most_processes
        job.device_nodes = devicenodes.of_task(task)

    def _ours(self, checkpoints: Path) -> list[Path]:
        return [checkpoints] if checkpoints.parent == self._layout.checkpoints else []

    def _check_usable(self, task: TaskSpec) -> None:
        """Without accounts of their own nothing is hidden from tasks: they see what we see."""
        named = [("volumes", source) for source, _ in task.volumes]
        named += [("working_dir", task.working_dir), ("checkpoint_dir", task.checkpoint_dir)]
        for field, path in named:
            if path and not os.access(path, os.R_OK):
                raise EngineError(f"{field}={path!r}: does not exist or may not be read")

    def _of_the_gang(self, task: TaskSpec, folder: Path) -> Iterator[tuple[str, str, bool]]:
        """What a member sees so that names and paths of the others hold for it, too."""
        own = folder.parent.resolve() / folder.name
        if task.hosts and HOSTS.exists():
            yield self._hosts(folder)
        if task.seen_as is not None:
            other = folder.parent.resolve() / self._layout.task(task.seen_as).name
            yield str(own / "work"), str(other / "work"), False

    @staticmethod
    def _hosts(folder: Path) -> tuple[str, str, bool]:
        own = folder.parent.resolve() / folder.name
        return str(own / HOSTS.name), os.path.realpath(HOSTS), True

    def _checkpoints(self, task: TaskSpec, account: Account) -> Path:
        """The folder for checkpoints: ours per workload, or one that the user reaches alone."""
        ours = self._layout.checkpoints / task.id.workload_uid
        asked = Path(task.checkpoint_dir).absolute() if task.checkpoint_dir else ours
        if asked != ours:
            return asked
        return files.own_folder(ours.parent, ours.name, account)

    def _before(self, task: TaskSpec) -> list[Path]:
        """The checkpoints that it goes on from, if there are any; its account owns them."""
        folder = self._layout.checkpoints / task.continues
        if not task.continues or folder.parent != self._layout.checkpoints:
            return []
        return [folder] if folder.is_dir() and not folder.is_symlink() else []

    def _events(self, task: TaskSpec, account: Account) -> list[Path]:
        """The folder for event files, if it has any."""
        if not task.events:
            return []
        return [eventfiles.own_folder(self._layout.events, task.events, account)]

    def _claim(self, building: Path, folder: Path, task: TaskSpec) -> None:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            building.rename(folder)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise AlreadyStarted(f"task {task.id} was started before") from error
            raise

    def _hand_over(self, job: Job, task: TaskSpec, folder: Path, lock: int) -> None:
        """From the claim on, a failure takes the claim back: nothing ran."""
        try:
            groups = self._limiter.make(
                str(task.id),
                Bounds(task.cpu_milli, task.cpu_limit_milli, task.memory_mib, self._most_processes),
            )
            job.cgroups, job.oom_files = groups.folders, groups.oom_files
            self._spawn(job, folder, lock)
        except (EngineError, OSError):
            tree.remove_groups(self._limiter.find(str(task.id)).folders)
            self._layout.discard(folder)
            raise

    def _spawn(self, job: Job, folder: Path, lock: int) -> None:
        log = folder / "supervisor.log"
        try:
            with log.open("wb") as errors:
                self._supervisors.start(job, lock, errors.fileno())
        except NoSupervisor as error:
            said = log.read_text(errors="replace").strip()
            raise NoSupervisor(f"task {job.task_id}: {error}\n{said[-500:]}".strip()) from error

    def close(self) -> None:
        """Start nothing any more; what was started goes on."""
        self._supervisors.close()
