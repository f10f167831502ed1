"""Start a task exactly once: build its folder aside, claim its name, hand over to a supervisor.

The claim is one rename, which only one of any number of schedulers can win. The folder's lock is
held from before the claim and passed on to the supervisor: a claimed folder whose lock is free
proves that no process is about to start its task any more.
"""

import errno
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import AlreadyStarted, EngineError, TaskSpec
from carrel_scheduler.engines.local import environment, task_folder
from carrel_scheduler.engines.local.accounts import Account, Accounts
from carrel_scheduler.engines.local.capabilities import (
    filter_without_user_namespaces,
    holder_in_image,
    require_sandbox,
    sandbox_programs,
)
from carrel_scheduler.engines.local.cgroups import Limiter
from carrel_scheduler.engines.local.fork_server import ForkServer, NoSupervisor
from carrel_scheduler.engines.local.gpu_memory import GpuMemory
from carrel_scheduler.engines.local.images.store import (
    Image,
    ImageStore,
    PullTicket,
    StoreSettings,
    Tell,
)
from carrel_scheduler.engines.local.mig import capability_nodes, take_instance
from carrel_scheduler.engines.local.network.namespaces import (
    RESOLV_CONF,
    Joined,
    NetworkNamespaces,
    files_inside,
    hosts_inside,
)
from carrel_scheduler.engines.local.shim import process_tree
from carrel_scheduler.engines.local.shim.job import ShimTask
from carrel_scheduler.engines.local.task_state import Lock, StateLayout, TaskRecord, write_whole
from carrel_scheduler.node.mig import Instance, MigDevices

WITHOUT_HOME: Final = frozenset({"tensorboard"})
HOSTS: Final = Path("/etc/hosts")


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of all tasks of an engine.

    Attributes:
        most_processes: of one task, threads counted.
        user_namespaces: whether tasks may begin some.
        log_segment_bytes: size after which a segment of a task's output ends.
        log_segments: how many segments are kept.
        images: limits of the store of images.
    """

    most_processes: int = 4096
    user_namespaces: bool = False
    log_segment_bytes: int = 16 * 1024 * 1024
    log_segments: int = 4
    images: StoreSettings = StoreSettings()


class Launcher:
    """Starts tasks of ``node``; without ``namespaces`` they share the machine's network.

    ``mig`` are GPUs that are divided as work asks; ``None``: they are not.
    """

    def __init__(
        self,
        layout: StateLayout,
        node: str,
        accounts: Accounts,
        limiter: Limiter,
        namespaces: NetworkNamespaces | None,
        options: TaskOptions,
        gpu_memory: GpuMemory,
    ) -> None:
        self._layout, self._node = layout, node
        self.mig: MigDevices | None = None
        self._accounts, self._limiter = accounts, limiter
        self._namespaces, self._options = namespaces, options
        self._gpu_memory = gpu_memory
        self._fork_server = ForkServer()
        self._images = ImageStore(
            layout.root.resolve() / "images", lambda: sandbox_programs()[0], options.images
        )

    @property
    def syscall_filter(self) -> bytes:
        """The seccomp filter of sandboxes; empty for none."""
        return b"" if self._options.user_namespaces else filter_without_user_namespaces()

    def pull(self, task: TaskSpec, tell: Tell, used: Collection[str]) -> Image:
        """Get the task's image; blocks while it is pulled. Raises ``EngineError``."""
        account = self._accounts.resolve(task.user, task.posix)
        if account.shared:
            raise EngineError(
                f"image={task.image!r}: left out: images need Carrel to run as root; work of an"
                " ordinary account runs with the machine's own programs"
            )
        require_sandbox()
        ticket = PullTicket(uid=account.uid, logins=task.registry_logins)
        if self._namespaces is not None:
            joined = self._namespaces.join(account.uid)
            ticket = msgspec.structs.replace(
                ticket, network=joined.path, files=tuple(files_inside())
            )
        return self._images.get(task.image, ticket, tell, used)

    def start(self, task: TaskSpec, image: Image | None = None, held: Collection[str] = ()) -> None:
        """Start a task, in its image if it has one; blocks for some milliseconds.

        Making a MIG instance takes seconds; ``held`` are those of tasks that run.
        Raises ``AlreadyStarted``, or ``EngineError`` after which nothing is left.
        """
        self._check(task)
        folder = self._layout.task(task.id)
        if folder.exists():
            raise AlreadyStarted(f"task {task.id} was started before")
        account = self._accounts.resolve(task.user, task.posix)
        joined = None
        if not account.shared:
            require_sandbox()
            joined = self._namespaces.join(account.uid) if self._namespaces else None
        instance = self._instance(task, held)
        building = Path(tempfile.mkdtemp(dir=self._layout.building))
        try:
            lock = Lock.take(building)
            try:
                self._build(building, task, account, joined, image, instance)
                job = self._job(task, account, folder, joined, image)
                self._add_instance(job, task, instance)
                self._claim(building, folder, task)
                self._hand_over(job, task, folder, lock)
            finally:
                os.close(lock)
        except (OSError, UnicodeError) as error:
            reason = f"it could not be prepared: {error}"
            raise EngineError(reason) from error
        finally:
            self._layout.discard(building)

    def _instance(self, task: TaskSpec, held: Collection[str]) -> Instance | None:
        if not task.mig_slots:
            return None
        if self.mig is None:
            raise EngineError(
                f"mig_profile={task.mig_profile!r}: GPUs are not divided here; start Carrel with"
                " --mig"
            )
        return take_instance(self.mig, task, held)

    @staticmethod
    def _add_instance(job: ShimTask, task: TaskSpec, instance: Instance | None) -> None:
        """Show a task its MIG instance in place of the GPU that it is a part of."""
        if instance is None:
            return
        job.environment["CUDA_VISIBLE_DEVICES"] = instance.uuid
        job.environment["NVIDIA_VISIBLE_DEVICES"] = instance.uuid
        if job.device_nodes:  # of a real GPU, in a sandbox
            minor = environment.device_numbers()[task.device_uuids[0]]
            job.device_nodes = [*job.device_nodes, *capability_nodes(minor, instance)]

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
        self,
        building: Path,
        task: TaskSpec,
        account: Account,
        joined: Joined | None,
        image: Image | None,
        instance: Instance | None,
    ) -> None:
        for name in ("work", "log", "tmp"):
            (building / name).mkdir(mode=0o700)
        (building / "tmp").chmod(0o1777)
        task_folder.write_files(building / "work", task.files)
        task_folder.place_volumes(
            building / "work", task.volumes, task.files, linked=account.shared
        )
        task_folder.give(building / "work", account)
        os.mkfifo(building / "control", 0o600)
        self._gpu_memory.prepare(building, task, account)
        if image is not None:
            environment.write_account_files(building, image.folder, account)
        if self._has_hosts(task, joined):
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
            groups=account.groups,
            shared=account.shared,
            devices=task.devices,
            memory_mib=task.memory_mib,
            working_dir=task.working_dir,
            address=joined.address if joined else "",
            image=image.digest if image else "",
            mig_instance=instance.uuid if instance else "",
            gpu_parts_mib=self._gpu_memory.parts(task),
        )
        write_whole(building / "task.json", msgspec.json.encode(record))

    @staticmethod
    def _has_hosts(task: TaskSpec, joined: Joined | None) -> bool:
        return bool(task.hosts or joined or task.image) and HOSTS.exists()

    def _job(
        self,
        task: TaskSpec,
        account: Account,
        folder: Path,
        joined: Joined | None,
        image: Image | None,
    ) -> ShimTask:
        for source in task.read_only:
            task_folder.check_kept(source, account)
        folders = task_folder.folders_of(self._layout, task, account, folder)
        job = ShimTask(
            task_id=str(task.id),
            folder=str(folder),
            command=list(task.command),
            environment=self._environment(task, account, folder, folders, image),
            working_dir=task.working_dir or str(folders.work),
            private_tmp=str(folder / "tmp"),
            log_segment_bytes=self._options.log_segment_bytes,
            log_segments=self._options.log_segments,
        )
        if account.shared:
            environment.check_shared_memory(task)
            self._check_usable(task)
            return job
        if image is not None:
            job.image = str(image.folder)
        needed = self._mounts(task, account, folder, folders, image)
        self._sandbox(job, task, account, needed, joined)
        # A link written by others must not lead a reader to the reader's own files.
        foreign = {str(path) for place in folders.shown for path in (place, place.resolve())}
        job.links_not_followed = [target for _, target, _ in job.binds if target in foreign]
        return job

    def _environment(
        self,
        task: TaskSpec,
        account: Account,
        folder: Path,
        folders: task_folder.TaskFolders,
        image: Image | None,
    ) -> dict[str, str]:
        """The task's environment variables, with those of the limiter."""
        given = environment.task_environment(
            task,
            account,
            work=folders.work,
            checkpoints=folders.checkpoints,
            artifacts=next(iter(folders.artifacts), None),
            before=next(iter(folders.before), None),
            model=next(iter(folders.models), None),
            events=next(iter(folders.events), None),
            cpu_limited=self._limiter.enforces and task.cpu_limit_milli > 0,
            gpu_limited=self._gpu_memory.applies(task),
            image=None if image is None else image.environment,
        )
        return given | self._gpu_memory.environment(task, account, folder)

    def _mounts(
        self,
        task: TaskSpec,
        account: Account,
        folder: Path,
        folders: task_folder.TaskFolders,
        image: Image | None,
    ) -> task_folder.Mounts:
        """The masks and bind mounts of a task in a sandbox."""
        without_home = task.kind in WITHOUT_HOME
        own = [folders.work, *folders.artifacts, *folders.events]
        if folders.checkpoints.parent == self._layout.checkpoints:
            own.append(folders.checkpoints)
        if not without_home:
            own.append(account.home)
        readable = [*folders.shown, *folders.before, *folders.models]
        if image is not None:
            return task_folder.mounts_in_image(folder, readable, own)
        return task_folder.plan_mounts(
            account,
            readable=[*task_folder.interpreter_folders(account), *readable],
            own=own,
            covered=[account.home] if without_home else [],
            replaced=environment.account_files(account, self._layout.accounts),
        )

    def _sandbox(
        self,
        job: ShimTask,
        task: TaskSpec,
        account: Account,
        needed: task_folder.Mounts,
        joined: Joined | None,
    ) -> None:
        """Set the fields of a job that make its sandbox; see ``shim.sandbox``."""
        folder = Path(job.folder)
        work = os.path.realpath(folder / "work")
        job.uid, job.gid, job.user = account.uid, account.gid, account.name
        job.groups = account.groups
        job.home = str(account.home) if account.home.is_relative_to(self._layout.root) else ""
        job.bubblewrap, holder = sandbox_programs()
        loaded: list[tuple[str, str, bool]] = []
        job.holder = [holder]
        if job.image:
            job.holder, loaded = holder_in_image()
        job.syscall_filter = self.syscall_filter
        job.masks = needed.masks
        job.binds = [*needed.binds, *self._binds_of_gang(task, folder, joined)]
        job.binds += [*self._gpu_memory.binds(task, folder), *loaded]
        places = [target for source, target, _ in job.binds if source == work]
        job.volumes = list(self._volumes(task, places))
        job.temporaries = [str(one) for one in task_folder.temporary_folders(task.image)]
        job.shared_memory_bytes = task.memory_mib * 1024**2
        job.device_nodes = environment.device_nodes(task)
        if not self._limiter.counts_processes:
            job.most_processes = self._options.most_processes
        if joined is not None:
            job.network_namespace = str(joined.path)

    def _volumes(
        self, task: TaskSpec, places: Sequence[str]
    ) -> Iterator[tuple[str, str, str, bool]]:
        """Volumes of a job; ``places`` are the paths at which its folder is bound."""
        for source, place in task_folder.destinations(task.volumes, task.files):
            targets = [f"{folder}/{place}" for folder in places]
            for target in targets if place and not place.startswith("/") else [place]:
                yield "volumes", source, target, source in task.read_only
        inside = task.working_dir and task_folder.in_volume(task.working_dir, task.volumes)
        for field, source in (
            ("working_dir", "" if inside or task.image else task.working_dir),
            ("checkpoint_dir", task.checkpoint_dir),
        ):
            if source and Path(source).parent != self._layout.checkpoints:
                yield field, str(Path(source).absolute()), "", False

    def _binds_of_gang(
        self, task: TaskSpec, folder: Path, joined: Joined | None
    ) -> Iterator[tuple[str, str, bool]]:
        """Bind mounts by which names and paths of others hold for a task, too."""
        own = folder.parent.resolve() / folder.name
        if self._has_hosts(task, joined):
            yield str(own / HOSTS.name), os.path.realpath(HOSTS), True
        if task.image and joined is None and RESOLV_CONF.exists():
            yield os.path.realpath(RESOLV_CONF), str(RESOLV_CONF), True
        if task.seen_as is not None:
            other = folder.parent.resolve() / self._layout.task(task.seen_as).name
            yield str(own / "work"), str(other / "work"), False
        if joined is not None:
            inside = list(files_inside())
            if task.image and not inside and RESOLV_CONF.exists():
                inside = [(RESOLV_CONF.resolve(), RESOLV_CONF)]
            yield from ((str(source), str(target), True) for source, target in inside)

    def _check_usable(self, task: TaskSpec) -> None:
        """Refuse paths that cannot be read; tasks of a shared account are in no sandbox."""
        named = [("volumes", source) for source, _ in task.volumes]
        named += [("working_dir", task.working_dir), ("checkpoint_dir", task.checkpoint_dir)]
        for field, path in named:
            if path and not os.access(path, os.R_OK):
                raise EngineError(f"{field}={path!r}: does not exist or may not be read")

    def _claim(self, building: Path, folder: Path, task: TaskSpec) -> None:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            building.rename(folder)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise AlreadyStarted(f"task {task.id} was started before") from error
            raise

    def _hand_over(self, job: ShimTask, task: TaskSpec, folder: Path, lock: int) -> None:
        """Start the supervisor; on a failure nothing ran, and the claim is undone."""
        try:
            groups = self._limiter.make(task, self._options.most_processes)
            job.cgroups, job.oom_files = groups.folders, groups.oom_files
            self._gpu_memory.limit_group(task.id, self._gpu_memory.parts(task))
            self._start_supervisor(job, folder, lock)
        except (EngineError, OSError):
            process_tree.remove_groups(self._limiter.find(str(task.id)).folders)
            self._layout.discard(folder)
            raise

    def _start_supervisor(self, job: ShimTask, folder: Path, lock: int) -> None:
        log = folder / "supervisor.log"
        try:
            with log.open("wb") as errors:
                self._fork_server.start(job, lock, errors.fileno())
        except NoSupervisor as error:
            text = log.read_text(errors="replace").strip()
            raise NoSupervisor(f"{error}\n{text[-500:]}".strip()) from error

    def close(self) -> None:
        """Start nothing any more; tasks go on."""
        self._fork_server.close()
