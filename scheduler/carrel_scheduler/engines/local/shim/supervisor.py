"""The supervisor, one small process per task: starts it, writes its output, enforces its end.

It is no child of the scheduler, so a task lives on when that dies. It reports by files of the
task's folder, each written atomically: ``pid.json`` before the task's first instruction,
``exit.json`` after the last process of the task is gone. It holds the lock of the folder to its end
(the scheduler passed it on while holding it), so the lock alone says whether a task has a
supervisor. ``stop`` holds the deadline (monotonic clock) after which the task is killed; a byte in
the ``control`` pipe says that it changed.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import time

from carrel_scheduler.engines.local.shim import linux, process_tree
from carrel_scheduler.engines.local.shim.child import fork_child
from carrel_scheduler.engines.local.shim.job import ShimTask
from carrel_scheduler.engines.local.shim.logwriter import LogWriter, complain
from carrel_scheduler.engines.local.shim.sandbox import Sandbox, SandboxError

AT_WORK = b"+"
READ_BYTES = 65536
KILL_SECONDS = 0.02
RETRY_SECONDS = 0.5
ORPHAN_POLL_SECONDS = 0.1


def supervise(job: int, lock: int, answer: int) -> None:
    """Run a supervisor until its task has ended.

    Args:
        job: descriptor of the job in memory.
        lock: descriptor that holds the lock of the task's folder, kept to the end of the process.
        answer: descriptor to write ``AT_WORK`` to, or why the task cannot start.
    """
    os.set_inheritable(lock, False)  # noqa: FBT003 - the name of the call says it
    try:
        task = ShimTask.from_memory(job)
        os.chdir(task.folder)
        supervisor = TaskSupervisor(task)
    except OSError as error:
        os.write(answer, f"{error.strerror}: {error.filename}".encode())
        raise
    except SandboxError as error:
        os.write(answer, str(error).encode())
        return
    with contextlib.suppress(BrokenPipeError):  # the engine is gone; the task was claimed, and runs
        os.write(answer, AT_WORK)
    os.close(answer)
    supervisor.run()


def write_whole(name: str, text: str, *, sync: bool = False) -> None:
    """Write a file of the folder atomically."""
    with open(name + ".new", "w", encoding="utf-8") as file:  # noqa: PTH123 - slow to load
        file.write(text)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.rename(name + ".new", name)  # noqa: PTH104 - pathlib is slow to load


class TaskSupervisor:
    """Supervises one task from its first process to the record of its end."""

    def __init__(self, job: ShimTask) -> None:
        self._job = job
        self._log = LogWriter("log", job.log_segment_bytes, job.log_segments)
        self._output, self._task_output = os.pipe()
        self._wake, self._control = self._listen()
        self._sandbox = Sandbox.start(job) if job.uid >= 0 else None
        self._deadline: float | None = None
        self._status: int | None = None
        self._childless = False
        self._start_error = b""

    def _listen(self) -> tuple[int, int]:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        wake, wake_write = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return wake, os.open("control", os.O_RDWR | os.O_NONBLOCK)

    def run(self) -> None:
        """Start the task, supervise it, and record its end."""
        self._pid, release, errors = fork_child(self._job, self._task_output, self._sandbox)
        os.close(self._task_output)
        os.set_blocking(self._output, False)
        self._record_start()
        os.write(release, b"g")
        os.close(release)
        self._supervise(errors)
        self._kill_the_rest()
        self._keep_output()
        self._log.close()
        self._record_end(time.time())

    def _record_start(self) -> None:
        record = {
            "pid": self._pid,
            "start_time": process_tree.start_time(self._pid),
            "boot_id": process_tree.boot_id(),
            "started_at": time.time(),
            "supervisor": os.getpid(),
        }
        if self._sandbox is not None:
            record |= {"init": self._sandbox.init, "init_start": self._sandbox.init_started}
        write_whole("pid.json", json.dumps(record))

    def _supervise(self, errors: int) -> None:
        """Wait for the end of the task; of a stopped one until its tree or the grace ends."""
        poll = select.poll()
        for descriptor in (self._output, self._wake, self._control, errors):
            poll.register(descriptor, select.POLLIN)
        self._read_stop()
        while not self._ended():
            for descriptor, _ in poll.poll(self._timeout_ms()):
                if descriptor == self._output and not self._keep_output(READ_BYTES):
                    poll.unregister(descriptor)
                elif descriptor == errors:
                    poll.unregister(errors)
                    self._start_error = os.read(errors, 4096)
                elif descriptor == self._wake:
                    os.read(self._wake, 4096)
                elif descriptor == self._control:
                    os.read(self._control, 4096)
                    self._read_stop()
            self._reap()
        if self._start_error == b"" and self._status:
            os.set_blocking(errors, False)
            self._start_error = _read_some(errors)

    def _ended(self) -> bool:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return True
        if self._status is None or self._deadline is None:
            return self._status is not None
        return self._childless if self._sandbox is None else not self._sandbox.busy()

    def _timeout_ms(self) -> float | None:
        if self._deadline is None:
            return None
        timeout = max(0.0, self._deadline - time.monotonic())
        if self._sandbox is not None and self._status is not None:
            # There is no signal for the end of processes that are no children.
            timeout = min(timeout, ORPHAN_POLL_SECONDS)
        return timeout * 1000 + 1

    def _read_stop(self) -> None:
        """Read the deadline; the first time, send SIGTERM to the whole tree."""
        try:
            with open("stop") as file:  # noqa: PTH123 - pathlib is slow to load
                deadline = float(file.read())
        except FileNotFoundError:
            return
        first, self._deadline = self._deadline is None, deadline
        if first:
            for process in process_tree.descendants(os.getpid()):
                process_tree.send(process, signal.SIGTERM)
                process_tree.send(process, signal.SIGCONT)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._status = status

    def _kill_the_rest(self) -> None:
        """Kill every process of the task, even if they keep forking."""
        if self._sandbox is not None:
            self._sandbox.kill()
        while True:
            self._reap()
            rest = process_tree.members(self._job.cgroups)
            if not self._childless:
                rest += process_tree.descendants(os.getpid())
            elif not rest:
                return
            for process in rest:
                process_tree.send(process, signal.SIGKILL)
            select.select([self._wake], [], [], KILL_SECONDS)
            _read_some(self._wake)
            self._keep_output()

    def _keep_output(self, at_most: int = -1) -> bool:
        """Copy output from the pipe to the log; false at the end."""
        while at_most != 0:
            try:
                data = os.read(self._output, READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._log.write(data)
            at_most = max(0, at_most - len(data)) if at_most > 0 else at_most
        return True

    def _record_end(self, ended_at: float) -> None:
        status = self._status if self._status is not None else 0
        code, message = os.waitstatus_to_exitcode(status), ""
        exit_code: int | None = code if code >= 0 else None
        if self._start_error:
            reported, _, message = self._start_error.decode(errors="replace").partition(" ")
            exit_code = int(reported) or None
        record = {
            "exit_code": exit_code,
            "signal": -code if code < 0 and not self._start_error else 0,
            "ended_at": ended_at,
            "message": message,
            "last_output": "" if code == 0 else self._log.end.decode(errors="replace"),
            "oom_kills": process_tree.count_oom_kills(self._job.oom_files),
        }
        process_tree.remove_groups(self._job.cgroups)
        self._remove_tmp()
        self._write_end(json.dumps(record))

    def _write_end(self, record: str) -> None:
        """Write ``exit.json``; retried on a full disk, because a task without it runs once more."""
        reported = False
        while True:
            try:
                write_whole("exit.json", record, sync=True)
            except FileNotFoundError:
                raise  # the folder was removed with its workload
            except OSError as error:
                if not reported:
                    complain(f"the end is recorded later: {error}")
                reported = True
                time.sleep(RETRY_SECONDS)
            else:
                return

    def _remove_tmp(self) -> None:
        if self._job.private_tmp:
            try:
                shutil.rmtree(self._job.private_tmp)
            except OSError as error:
                complain(f"what is left of /tmp stays: {error}")


def _read_some(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except BlockingIOError:
        return b""
