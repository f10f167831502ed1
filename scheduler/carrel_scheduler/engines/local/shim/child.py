"""The process that becomes the task: joins its limits, takes its view and its account, executes.

It waits for the supervisor's word before it does anything, so a task that no record knows of
never runs; and should the supervisor die, the task dies with it and can never run beside its heir.
"""

import errno
import os
import resource
import signal

from carrel_scheduler.engines.local.shim import linux
from carrel_scheduler.engines.local.shim.job import Job
from carrel_scheduler.engines.local.shim.sandbox import Sandbox

NOT_FOUND, NOT_EXECUTABLE = 127, 126
RESTORED = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCHLD,
)


def fork_child(job: Job, output: int, sandbox: Sandbox | None) -> tuple[int, int, int]:
    """Fork; the child waits.

    Returns:
        Its pid, the descriptor on which one byte lets it go, and the one on which it tells why
        it could not start (end of file: it did).
    """
    go_read, go_write = os.pipe()
    error_read, error_write = os.pipe()
    supervisor = os.getpid()
    if sandbox is not None:
        sandbox.adopt_children()
    # What is sent before the child is ready to die of it waits until it is.
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
    """Undo what the interpreter and the supervisor ignore: ignoring survives an exec."""
    signal.set_wakeup_fd(-1)
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RESTORED)


def become(job: Job, sandbox: Sandbox | None) -> None:
    """Take the limits, the sandbox, the account and the folder of the job."""
    # Before anything inside the sandbox, which is the user's, could lend a path another meaning.
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


def drop_privileges(job: Job) -> None:
    """Become the job's account for good; -1 stays what we are."""
    if job.uid < 0:
        return
    if job.uid == 0 or job.gid == 0:
        raise OSError(errno.EPERM, "a task never runs as root")
    os.setgroups([])
    os.setresgid(job.gid, job.gid, job.gid)
    os.setresuid(job.uid, job.uid, job.uid)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if job.syscall_filter:
        linux.set_syscall_filter(job.syscall_filter)


def execute(job: Job) -> None:
    """Replace this process; returns only by an error."""
    os.execvpe(job.command[0], job.command, job.environment)  # noqa: S606 - a list, no shell


def describe(error: OSError | ValueError, job: Job) -> str:
    """Why the command did not start, for the person who wrote it."""
    if isinstance(error, FileNotFoundError):
        path = job.environment.get("PATH", "")
        return f"{job.command[0]}: command not found (PATH={path})"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{job.command[0]}: {reason}"
