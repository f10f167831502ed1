"""The sandbox of a task: namespaces and mounts that bubblewrap makes and a supervisor keeps.

Its first processes are bubblewrap's init and ``cat``, which answers once everything is mounted and
ends with the supervisor. The task's processes join from outside, so that the supervisor is their
parent and learns how they ended.

Root resolves no path that a user can change. Paths that a user named are opened with the user's
rights and mounted by descriptor; the engine's are opened without following any link; and every
mount point lies in a folder that root alone can change while the mounts are made.
"""

import json
import os
import signal
import stat
from collections.abc import Iterator, Sequence

from carrel_scheduler.engines.local.shim import linux, mount_points, process_tree
from carrel_scheduler.engines.local.shim.job import ShimTask
from carrel_scheduler.engines.local.shim.mount_points import BadMountPoint, root_alone_changes

NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--die-with-parent")
MACHINE = ("--bind", "/", "/")
KERNEL = ("--proc", "/proc", "--dev", "/dev")
BASE = (*NAMESPACES, *MACHINE, *KERNEL)
DEVICES = "/dev"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's name
MOUNTS_CHANGED = b"Can't bind mount"
"""The error of bubblewrap where a mount of the machine went while it copied the mounts."""
TRIES = 10
LARGEST_COMPLAINT_BYTES = 4096
Step = tuple[str, list[str]]


class SandboxError(Exception):
    """No sandbox can be made or joined; the message has the cause."""


class Sandbox:
    """The namespaces of a running sandbox, held by descriptors; ``init`` is its first process."""

    def __init__(self, init: int) -> None:
        self.init = init
        self._process = os.pidfd_open(init)
        self.init_started = process_tree.start_time(init)
        self._pids = _namespace(init, "pid")
        self._others = [_namespace(init, name) for name in ("net", "ipc", "mnt")]

    @classmethod
    def start(cls, job: ShimTask) -> "Sandbox":
        """Make the sandbox of a job. Raises ``SandboxError`` or ``OSError``; then there is none."""
        os.setgroups([])
        complaint = b""
        for _ in range(TRIES):
            job_options = _BubblewrapArguments(job)
            try:
                init, complaint = _run(job, job_options.arguments())
            except BadMountPoint as error:
                raise SandboxError(str(error)) from error
            finally:
                for descriptor in job_options.descriptors:
                    os.close(descriptor)
            if init:
                return cls(init)
            if MOUNTS_CHANGED not in complaint:
                break
        os.write(2, complaint)
        raise SandboxError("its sandbox could not be made")

    @classmethod
    def find(cls, init: int, started: int) -> "Sandbox":
        """The sandbox whose first process began at this time. Raises ``SandboxError``."""
        try:
            found = cls(init)
        except OSError as error:
            raise SandboxError("it has ended") from error
        if not started or found.init_started != started:
            raise SandboxError("it has ended")
        return found

    def adopt_children(self) -> None:
        """Start later children of this process inside; the process itself stays outside."""
        linux.setns(self._pids)

    def enter(self) -> None:
        """Enter the namespaces except that of process ids."""
        for descriptor in self._others:
            linux.setns(descriptor)

    def busy(self) -> bool:
        """Whether orphans of the task are left inside."""
        return len(process_tree.descendants(self.init)) > 1

    def kill(self) -> None:
        """Kill every process inside: the kernel does when the first one ends."""
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            return


def _namespace(pid: int, name: str) -> int:
    return os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


class _BubblewrapArguments:
    """Arguments of bubblewrap, with the descriptors that they name."""

    def __init__(self, job: ShimTask) -> None:
        self._job = job
        self.descriptors: list[int] = []
        self._made: set[str] = set()
        self._remade: list[str] = []
        self._needed = [*job.masks, *(target for _, target, _ in job.binds)]
        self._image = self._ours(job.image) if job.image else -1

    def arguments(self) -> list[str]:
        """The arguments, mounts of outer folders first."""
        job = self._job
        size = ["--size", str(job.shared_memory_bytes)] if job.shared_memory_bytes else []
        devices = [*KERNEL, "--perms", "1777", *size, "--tmpfs", SHARED_MEMORY]
        for node in job.device_nodes:
            devices += ["--dev-bind", node, node]
        steps: list[Step] = [(path, ["--perms", "0755", "--tmpfs", path]) for path in job.masks]
        binds = [*((job.private_tmp, target, False) for target in job.temporaries), *job.binds]
        steps += [
            self._mount(self._ours(source), self._placed(target), read_only=read_only)
            for source, target, read_only in binds
        ]
        for field, source, target, read_only in job.volumes:
            steps += self._volume(field, source, target, read_only=read_only)
        remade = [(folder, mount_points.remake(folder)) for folder in self._remade]
        options = [*NAMESPACES, *self._root()]
        # The kernel's own follow the root, which may be made anew.
        for target, step in sorted((*remade, ("/", devices), *steps), key=_depth):
            options += [*self._parents(target), *step]
        for path in job.masks:
            options += ["--remount-ro", path]
        return options

    def _root(self) -> Sequence[str]:
        """The arguments for the root of the sandbox, before anything is mounted in it."""
        if self._image >= 0:
            # Paths of the store hold no options and are the engine's: nobody else changes them.
            return "--overlay-src", self._job.image, "--tmp-overlay", "/"
        return () if "/" in self._remade else MACHINE

    def _mount(self, descriptor: int, target: str, *, read_only: bool = False) -> Step:
        how = "--ro-bind-fd" if read_only else "--bind-fd"
        # Each descriptor is taken over by one mount.
        copy = os.dup(descriptor)
        self.descriptors.append(copy)
        return target, [how, str(copy), target]

    def _parents(self, target: str) -> list[str]:
        """Make the folders above a mount point inside fresh folders, passable for everybody."""
        options: list[str] = []
        for fresh in self._fresh():
            if target.startswith(fresh.rstrip("/") + "/"):
                parts = target[len(fresh.rstrip("/")) + 1 :].split("/")[:-1]
                for end in range(1, len(parts) + 1):
                    folder = "/".join((fresh.rstrip("/"), *parts[:end]))
                    kept = fresh in self._remade and os.path.lexists(folder)
                    if folder not in self._made and not kept:
                        self._made.add(folder)
                        options += ["--perms", "0755", "--dir", folder]
        return options

    def _fresh(self) -> Iterator[str]:
        """The folders whose whole content is created for this sandbox."""
        yield from (*self._job.masks, *self._job.temporaries, DEVICES)
        yield from self._remade if self._image < 0 else ("/",)

    def _ours(self, path: str) -> int:
        """Open a path of the engine: no link, below folders that root alone changes."""
        resolve = linux.RESOLVE_NO_SYMLINKS | linux.RESOLVE_NO_MAGICLINKS
        above, _, name = path.rpartition("/")
        try:
            descriptor = linux.open_path(f"{os.path.realpath(above or '/')}/{name}", resolve)
        except OSError as error:
            raise SandboxError(f"{path}: {error.strerror or error}") from error
        self.descriptors.append(descriptor)
        return descriptor

    def _volume(self, field: str, source: str, target: str, *, read_only: bool) -> list[Step]:
        """Mount a path that a user named; without a target at its own path, if that is hidden."""
        if "\0" in source:
            raise SandboxError(f"{field}={source!r}: a path without a NUL character is right")
        descriptor = self._open_as_user(field, source)
        # The mount point must not lead out of the folder that is fresh: `..` means another folder
        # where a link went before.
        source = os.path.normpath(source)
        real = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - pathlib is slow to load
        if target or (self._image >= 0 and not self._shown(source)):
            targets = [self._point(field, target or source)]
        else:
            targets = [path for path in (source, real) if self._hidden(path)]
        if read_only and not target and not self._hidden(real) and root_alone_changes(real):
            targets.append(real)
        if read_only and not targets:
            raise SandboxError(
                f"{field}={source!r}: you can move what lies above it, so it cannot be kept from"
                " being written to at its own path; give it a destination"
            )
        if targets and shows_the_machine(real):
            raise SandboxError(
                f"{field}={source!r}: holds the machine's own processes or terminals (/proc,"
                " /dev/pts), which tasks do not see; a folder with files is right"
            )
        return [self._mount(descriptor, one, read_only=read_only) for one in dict.fromkeys(targets)]

    def _point(self, field: str, target: str) -> str:
        """The mount point of a volume, in no folder that a user can change."""
        own = self._job.folder
        if any(_within(target, folder) for folder in (own, os.path.realpath(own))):
            return self._placed(target)
        try:
            point = self._point_in_root(os.path.normpath(target))
        except BadMountPoint as error:
            raise SandboxError(f"{field}={target!r}: {error}") from error
        if self._shown(point) or any(_within(other, point) for other in self._needed):
            raise SandboxError(
                f"{field}={target!r}: lies in, or above, a folder that is mounted for the task;"
                " a folder beside it is right"
            )
        self._needed.append(point)
        return point

    def _point_in_root(self, target: str) -> str:
        if any(_within(target, folder) for folder in self._job.temporaries):
            return target
        mount_points.check_allowed(target)
        if self._image >= 0:
            point = mount_points.in_image(self._image, target)
            mount_points.check_allowed(point)
            return point
        point, above = mount_points.on_machine(target)
        masked = any(_within(point, folder) for folder in self._job.masks)
        if above and not masked and above not in self._remade:
            self._remade.append(above)
        return point

    def _shown(self, path: str) -> bool:
        """Whether a path lies in a mounted folder."""
        return any(_within(path, folder) for folder in self._needed[len(self._job.masks) :])

    def _placed(self, target: str) -> str:
        """The place of a path of the engine in the sandbox."""
        return target if self._image < 0 else mount_points.in_image(self._image, target)

    def _hidden(self, path: str) -> bool:
        return any(path.startswith(folder + "/") for folder in self._job.temporaries)

    def _open_as_user(self, field: str, path: str) -> int:
        """Open with the user's rights, so that refusals tell no more than the user can find out."""
        home, name = linux.AT_FDCWD, path
        if self._job.home and f"{path}/".startswith(f"{self._job.home}/"):
            home, name = self._ours(self._job.home), path[len(self._job.home) + 1 :] or "."
        linux.set_file_ids(self._job.uid, self._job.gid)
        try:
            descriptor = linux.open_path(name, linux.RESOLVE_NO_MAGICLINKS, home)
            self.descriptors.append(descriptor)
            mode = os.fstat(descriptor).st_mode
            need = os.R_OK | os.X_OK if stat.S_ISDIR(mode) else os.R_OK
            readable = os.access(f"/proc/self/fd/{descriptor}", need, effective_ids=True)
        except PermissionError:
            readable, mode = False, 0
        except OSError as error:
            raise SandboxError(f"{field}={path!r}: {error.strerror or error}") from error
        except UnicodeError as error:
            raise SandboxError(f"{field}={path!r}: no path can be written so") from error
        finally:
            linux.set_file_ids(0, 0)
        if not readable:
            raise SandboxError(f"{field}={path!r}: user {self._job.user!r} may not read it")
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise SandboxError(f"{field}={path!r}: a folder or a plain file is right")
        return descriptor


def _within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def shows_the_machine(path: str) -> bool:
    """Whether a mount with processes or terminals of the machine lies at, above or below a path."""
    wanted = path.rstrip("/") + "/"
    with open("/proc/self/mountinfo", "rb") as mounts:  # noqa: PTH123 - pathlib is slow to load
        for line in mounts:
            where, _, what = os.fsdecode(line).partition(" - ")
            point = where.split(" ")[4].rstrip("/") + "/"
            if what.split(" ", 1)[0] in ("proc", "devpts") and (
                point.startswith(wanted) or wanted.startswith(point)
            ):
                return True
    return False


def _depth(step: Step) -> int:
    return step[0].rstrip("/").count("/")


def _run(job: ShimTask, options: list[str]) -> tuple[int, bytes]:
    """Start bubblewrap and wait until all is mounted.

    Returns the pid of the first process, or 0 and what bubblewrap said on standard error.
    """
    if any("\0" in option for option in options):  # it would begin another option
        raise SandboxError("a path of its sandbox contains a NUL character")
    arguments = os.memfd_create("carrel-sandbox")
    os.write(arguments, os.fsencode("\0".join(options)) + b"\0")
    os.lseek(arguments, 0, os.SEEK_SET)
    errors = os.memfd_create("carrel-sandbox-errors")
    hear_life, life = os.pipe()
    ready, say_ready = os.pipe()
    hear_info, info = os.pipe()
    # pathlib and subprocess are slow to load
    if (bubblewrap := os.fork()) == 0:
        try:
            _become_bubblewrap(job, options, arguments, (hear_life, say_ready, errors, info))
        finally:
            os._exit(1)
    for descriptor in (arguments, hear_life, say_ready, info):
        os.close(descriptor)
    try:
        if not _is_ready(life, ready):
            os.close(life)
            os.waitpid(bubblewrap, 0)
            return 0, os.pread(errors, LARGEST_COMPLAINT_BYTES, 0)
        found = b""
        while piece := os.read(hear_info, 4096):
            found += piece
        return int(json.loads(found)["child-pid"]), b""
    finally:
        os.close(errors)
        os.close(ready)
        os.close(hear_info)


def _is_ready(life: int, ready: int) -> bool:
    """Whether the first process answers, which it does once everything is mounted."""
    try:
        os.write(life, b"r")
    except BrokenPipeError:
        return False
    return os.read(ready, 1) == b"r"


def _become_bubblewrap(
    job: ShimTask, options: list[str], memory: int, streams: tuple[int, int, int, int]
) -> None:
    """Execute bubblewrap; it inherits the ignored signals, so a stop of the task spares it."""
    os.chdir("/")
    if job.network_namespace:
        network = os.open(job.network_namespace, os.O_RDONLY | os.O_CLOEXEC)
        linux.setns(network)
    os.dup2(streams[0], 0)
    os.dup2(streams[1], 1)
    os.dup2(streams[2], 2)
    inherited = [memory, streams[3]]
    inherited += [int(options[at + 1]) for at, word in enumerate(options) if word in _BY_NUMBER]
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - the name of the call says it
    arguments = ["--args", str(memory), "--info-fd", str(streams[3]), "--", *job.holder]
    os.execve(job.bubblewrap, [job.bubblewrap, *arguments], {})  # noqa: S606 - no shell


_BY_NUMBER = frozenset({"--bind-fd", "--ro-bind-fd"})
