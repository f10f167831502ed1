"""One small process per task: starts it, keeps its output, enforces its end, records how it went.

It belongs to nobody, so a task lives on when the scheduler dies. What it knows it tells through
files of the task's folder, each written whole or not at all: ``pid.json`` before the task's first
instruction, ``exit.json`` after the last process of the task is gone. It holds the lock of the
folder all its life (the scheduler passed it on while holding it), so the lock alone says whether
a task is looked after. ``stop`` holds the instant (monotonic clock) at which patience ends; a
byte in the ``control`` pipe says that it changed.
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
from carrel_scheduler.engines.local.shim.job import Job
from carrel_scheduler.engines.local.shim.logwriter import LogWriter, complain
from carrel_scheduler.engines.local.shim.sandbox import Sandbox, SandboxError

AT_WORK = b"+"
READ_BYTES = 65536
UNTIL_NEXT_LOOK = 0.02
UNTIL_NEXT_TRY = 0.5
UNTIL_ORPHANS_END = 0.1


def supervise(job: int, lock: int, word: int) -> None:
    """The life of a supervisor.

    Args:
        job: descriptor of the job in memory.
        lock: descriptor that holds the lock of the task's folder, kept to the end of the process.
        word: where to say ``AT_WORK``, or why not.
    """
    os.set_inheritable(lock, False)  # noqa: FBT003 - the name of the call says it
    try:
        told = Job.from_memory(job)
        os.chdir(told.folder)
        supervisor = Supervisor(told)
    except OSError as error:
        os.write(word, f"{error.strerror}: {error.filename}".encode())
        raise
    except SandboxError as error:
        os.write(word, str(error).encode())
        return
    with contextlib.suppress(BrokenPipeError):  # who asked is gone; the task was claimed, and runs
        os.write(word, AT_WORK)
    os.close(word)
    supervisor.run()


def write_whole(name: str, text: str, *, sync: bool = False) -> None:
    """Write a file of the folder so that a reader sees all of it or none."""
    with open(name + ".new", "w", encoding="utf-8") as file:  # noqa: PTH123 - slow to load
        file.write(text)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.rename(name + ".new", name)  # noqa: PTH104 - pathlib is slow to load


class Supervisor:
    """The life of one task."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._log = LogWriter("log", job.log_segment_bytes, job.log_segments)
        self._output, self._task_output = os.pipe()
        self._wake, self._control = self._listen()
        self._sandbox = Sandbox.start(job) if job.uid >= 0 else None
        self._deadline: float | None = None
        self._status: int | None = None
        self._childless = False
        self._complaint = b""

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
        """From the first process to the last record."""
        self._pid, release, errors = fork_child(self._job, self._task_output, self._sandbox)
        os.close(self._task_output)
        os.set_blocking(self._output, False)
        self._record_start()
        os.write(release, b"g")
        os.close(release)
        self._look_after(errors)
        self._kill_the_rest()
        self._keep_output()
        self._log.close()
        self._record_end(time.time())

    def _record_start(self) -> None:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123 - slow to load
            boot = file.read().strip()
        record = {
            "pid": self._pid,
            "start_time": process_tree.start_time(self._pid),
            "boot_id": boot,
            "started_at": time.time(),
            "supervisor": os.getpid(),
        }
        if self._sandbox is not None:
            record |= {"init": self._sandbox.init, "init_start": self._sandbox.init_started}
        write_whole("pid.json", json.dumps(record))

    def _look_after(self, errors: int) -> None:
        """Until the task has ended; a stopped one until its whole tree has, or patience ends."""
        poll = select.poll()
        for descriptor in (self._output, self._wake, self._control, errors):
            poll.register(descriptor, select.POLLIN)
        self._obey()
        while not self._over():
            for descriptor, _ in poll.poll(self._patience_ms()):
                if descriptor == self._output and not self._keep_output(READ_BYTES):
                    poll.unregister(descriptor)
                elif descriptor == errors:
                    poll.unregister(errors)
                    self._complaint = os.read(errors, 4096)
                elif descriptor == self._wake:
                    os.read(self._wake, 4096)
                elif descriptor == self._control:
                    os.read(self._control, 4096)
                    self._obey()
            self._reap()
        if self._complaint == b"" and self._status:
            os.set_blocking(errors, False)
            self._complaint = _read_some(errors)

    def _over(self) -> bool:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return True
        if self._status is None or self._deadline is None:
            return self._status is not None
        return self._childless if self._sandbox is None else not self._sandbox.busy()

    def _patience_ms(self) -> float | None:
        if self._deadline is None:
            return None
        patience = max(0.0, self._deadline - time.monotonic())
        if self._sandbox is not None and self._status is not None:
            # Nobody tells us of the end of what is not our child.
            patience = min(patience, UNTIL_ORPHANS_END)
        return patience * 1000 + 1

    def _obey(self) -> None:
        """Read what patience is left; the first time, ask the whole tree to end."""
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
        """End every process of the task, however often they fork."""
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
            select.select([self._wake], [], [], UNTIL_NEXT_LOOK)
            _read_some(self._wake)
            self._keep_output()

    def _keep_output(self, at_most: int = -1) -> bool:
        """Move what is in the pipe to the log; false at its end."""
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
        if self._complaint:
            told, _, message = self._complaint.decode(errors="replace").partition(" ")
            exit_code = int(told) or None
        record = {
            "exit_code": exit_code,
            "signal": -code if code < 0 and not self._complaint else 0,
            "ended_at": ended_at,
            "message": message,
            "oom_kills": process_tree.count_oom_kills(self._job.oom_files),
        }
        process_tree.remove_groups(self._job.cgroups)
        self._remove_tmp()
        self._write_end(json.dumps(record))

    def _write_end(self, record: str) -> None:
        """Tell how it went; on a full disk once there is room: else it would run once more."""
        said = False
        while True:
            try:
                write_whole("exit.json", record, sync=True)
            except FileNotFoundError:
                raise  # the folder was removed: nobody asks any more
            except OSError as error:
                if not said:
                    complain(f"the end is recorded later: {error}")
                said = True
                time.sleep(UNTIL_NEXT_TRY)
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
