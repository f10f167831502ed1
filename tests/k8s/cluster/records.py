"""Records of what a run started, so that a killed run leaves nothing behind.

Each run has a folder with a lock that it holds while it lives and a line for each process: pid and
start time, which together name a process for ever. Other things it leaves are named in a second
file (``leftovers``). The next run ends what every folder names whose lock is free, and removes the
folder.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Self

from k8s.cluster import leftovers

END_SECONDS: Final = 5.0
GONE_SECONDS: Final = 60.0
"""How long the kernel may take for the end of what was killed."""
_PAUSE_SECONDS: Final = 0.05
_STARTED: Final = 19  # of the fields of /proc/<pid>/stat behind the name


def home() -> Path:
    """The folder of all runs of this user."""
    return Path(tempfile.gettempdir()) / f"carrel-test-clusters-{os.getuid()}"


class Record:
    """The folder of one run."""

    def __init__(self, folder: Path, lock: IO[str]) -> None:
        self.folder = folder
        self._lock = lock
        self._children: list[subprocess.Popen[bytes]] = []

    @classmethod
    def begin(cls, at: Path | None = None) -> Self:
        """A new folder, after ending what earlier runs left."""
        base = home() if at is None else at
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(base):  # or another run would take a folder without its lock for a dead one's
            clean_up(base)
            folder = Path(tempfile.mkdtemp(dir=base))
            lock = (folder / "lock").open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(folder, lock)

    def leave(self, kind: str, name: str, value: str = "") -> None:
        """Write down what is about to be made: see ``leftovers.remove_all``."""
        with (self.folder / "leftovers").open("a") as lines:
            lines.write(f"{kind} {name} {value}\n")

    def start(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a process of this run and write it down.

        Programs in Go collect their garbage seldom: they take more memory, and less time.
        """
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"GOGC": "400", **(os.environ if environment is None else environment)},
            )
        self._children.append(process)
        with (self.folder / "processes").open("a") as lines:
            lines.write(f"{process.pid} {start_of(process.pid)}\n")
        return process

    def end(self) -> None:
        """End every process, the last one first, and remove the folder."""
        for process in reversed(self._children):
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _remove_leftovers(self.folder)
        _remove(self.folder)
        self._lock.close()


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Keep other runs from beginning meanwhile."""
    held = os.open(base, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def clean_up(base: Path) -> None:
    """End what runs left that are no more."""
    for folder in base.iterdir():
        try:
            lock = (folder / "lock").open("r+")  # never made anew in a folder that just goes away
        except (FileNotFoundError, NotADirectoryError):
            continue
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _end_all(folder)
            _remove_leftovers(folder)
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a run's folder, its lock last: nobody else takes up what is being removed."""
    for entry in folder.iterdir():
        if entry.name == "lock":
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    shutil.rmtree(folder)


def _end_all(folder: Path) -> None:
    file = folder / "processes"
    if not file.exists():
        return
    for line in reversed(file.read_text().splitlines()):
        pid, start = line.split()
        _end(int(pid), start)


def _remove_leftovers(folder: Path) -> None:
    file = folder / "leftovers"
    if file.exists():
        leftovers.remove_all(folder, file.read_text().splitlines())


def _end(pid: int, start: str) -> None:
    """SIGTERM, and SIGKILL when that does not do; nothing when it is another process by now."""
    for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, GONE_SECONDS)):
        if start_of(pid) != start:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while start_of(pid) == start and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)


def start_of(pid: int) -> str:
    """The start of a process, in the kernel's ticks; empty when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] == "Z" else fields[_STARTED]
