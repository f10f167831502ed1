"""The process that becomes the task, or a command beside it: joins limits, sandbox and account.

A task's process waits until the supervisor has recorded its pid, so no task runs that no record
tells of. It dies with its supervisor, so a lost task never runs beside its next attempt. A command
beside a running task is started with a terminal or pipes as its standard streams (``main``); it
forks a process that joins, because only a child can enter a PID namespace.
"""

import errno
import fcntl
import os
import resource
import select
import signal
import sys
import termios

from carrel_scheduler.engines.local.shim import linux
from carrel_scheduler.engines.local.shim.job import ShimTask
from carrel_scheduler.engines.local.shim.sandbox import Sandbox, SandboxError

NOT_FOUND, NOT_EXECUTABLE = 127, 126
LEAST_GROUP = 1000
FORWARDED = (signal.SIGHUP, signal.SIGCONT)
RESTORED = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCHLD,
)


def fork_child(job: ShimTask, output: int, sandbox: Sandbox | None) -> tuple[int, int, int]:
    """Fork the task's process, which waits.

    Returns:
        Its pid, the descriptor on which one byte releases it, and the descriptor on which it
        reports why it could not start (end of file: it did).
    """
    go_read, go_write = os.pipe()
    error_read, error_write = os.pipe()
    supervisor = os.getpid()
    if sandbox is not None:
        sandbox.adopt_children()
    # Signals that arrive before the child has its handlers are delivered once it has.
    signal.pthread_sigmask(signal.SIG_BLOCK, RESTORED)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, RESTORED)
        os.close(go_read)
        os.close(error_write)
        return pid, go_write, error_read
    try:
        os.close(go_write)
        os.setsid()
        restore_signals()
        if os.read(go_read, 1) == b"":
            os._exit(NOT_EXECUTABLE)
        os.dup2(output, 1)
        os.dup2(output, 2)
        become(job, sandbox)
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        # In a sandbox, which ends with the supervisor, its parent has no number.
        if sandbox is None and os.getppid() != supervisor:
            os._exit(NOT_EXECUTABLE)
    except OSError as error:
        os.write(error_write, f"0 {error.strerror or error}".encode())
        os._exit(NOT_EXECUTABLE)
    try:
        execute(job)
    except (OSError, ValueError) as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        os.write(error_write, f"{code} {describe(error, job)}".encode())
    finally:
        os._exit(NOT_EXECUTABLE)


def restore_signals() -> None:
    """Reset ignored signals, because ignored ones survive an exec."""
    signal.set_wakeup_fd(-1)
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RESTORED)


def become(job: ShimTask, sandbox: Sandbox | None) -> None:
    """Enter the limits, the sandbox, the account and the folder of the job."""
    # Before the sandbox, in which the user could mount another folder at the path.
    for group in job.cgroups:
        with open(f"{group}/cgroup.procs", "w") as procs:  # noqa: PTH123 - pathlib is slow to load
            procs.write("0")
    os.umask(0o022)
    if sandbox is not None:
        sandbox.enter()
    for target in job.links_not_followed:
        flags = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOSYMFOLLOW
        linux.mount(None, target, linux.MS_REMOUNT | linux.MS_BIND | flags)
        if not os.statvfs(target).f_flag & linux.ST_NOSYMFOLLOW:
            raise OSError(
                errno.ENOTSUP, f"links in {target} would be followed (Linux 5.10 is right)"
            )
    if job.most_processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (job.most_processes, job.most_processes))
    drop_privileges(job)
    try:
        os.chdir(job.working_dir)
    except OSError as error:
        reason = f"the working folder {job.working_dir} cannot be entered: {error.strerror}"
        raise OSError(error.errno, reason) from error


def drop_privileges(job: ShimTask) -> None:
    """Switch to the job's account irrevocably; -1 keeps the present one."""
    if job.uid < 0:
        return
    if job.uid == 0 or job.gid == 0:
        raise OSError(errno.EPERM, "a task never runs as root")
    if any(group < LEAST_GROUP for group in job.groups):
        raise OSError(errno.EPERM, "a task is in no group of the system")
    os.setgroups(list(job.groups))
    os.setresgid(job.gid, job.gid, job.gid)
    os.setresuid(job.uid, job.uid, job.uid)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if job.syscall_filter:
        linux.set_syscall_filter(job.syscall_filter)


def execute(job: ShimTask) -> None:
    """Replace this process by the command; returns only by an error."""
    os.execvpe(job.command[0], job.command, job.environment)  # noqa: S606 - a list, no shell


def describe(error: OSError | ValueError, job: ShimTask) -> str:
    """The reason why the command did not start, for the user."""
    if isinstance(error, FileNotFoundError):
        path = job.environment.get("PATH", "")
        return f"{job.command[0]}: command not found (PATH={path})"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{job.command[0]}: {reason}"


def main() -> None:
    """Run a command beside a task; the descriptor of its job is the argument."""
    job = ShimTask.from_memory(int(sys.argv[1]))
    sandbox = None
    if job.uid >= 0:
        try:
            sandbox = Sandbox.find(*job.sandbox)
            sandbox.adopt_children()
        except (SandboxError, OSError) as error:
            _fail(NOT_EXECUTABLE, f"task {job.task_id} cannot be joined: {error}")
    alive, parent_alive = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    pid = os.fork()
    if pid == 0:
        os.close(parent_alive)
        _become_the_command(job, sandbox, alive)
    for number in FORWARDED:
        signal.signal(number, lambda got, _: _forward(pid, got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _forward(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it has ended, or has not begun


def _become_the_command(job: ShimTask, sandbox: Sandbox | None, alive: int) -> None:
    try:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        restore_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        become(job, sandbox)
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([alive], [], [], 0)[0]:  # its end: nothing is ever written to it
            os._exit(NOT_EXECUTABLE)
    except OSError as error:
        _fail(NOT_EXECUTABLE, f"task {job.task_id} cannot be joined: {error.strerror}")
    try:
        execute(job)
    except FileNotFoundError as error:
        _fail(NOT_FOUND, describe(error, job))
    except (OSError, ValueError) as error:
        _fail(NOT_EXECUTABLE, describe(error, job))


def _fail(code: int, reason: str) -> None:
    os.write(2, f"{reason}\r\n".encode())
    os._exit(code)
