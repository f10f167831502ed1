"""Turns the fake scheduler into one that runs workspaces: the processes an engine would start.

A stub answers in the workspace's place unless ``real`` says to run the very command. Tests hold
workloads back with ``hold`` and decide themselves what they wait for.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from carrel.testing import FakeScheduler

STUB = Path(__file__).with_name("stub_server.py")
Key = tuple[str, str]


class Runner:
    """Runs pending workspaces of the fake until it is stopped."""

    def __init__(self, fake: FakeScheduler, home: Path) -> None:
        self.fake, self.home = fake, home
        self.real = False
        self.hold = False
        self.command: list[str] | None = None
        self._processes: dict[str, tuple[Key, subprocess.Popen[bytes]]] = {}
        self.turn = threading.Lock()  # held, nobody takes in what becomes of workspaces
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        """Begin to look after workloads."""
        self._thread.start()

    def stop(self) -> None:
        """End everything that runs."""
        self._end.set()
        self._thread.join(60)
        for _, process in self._processes.values():
            self._kill(process)

    def processes(self) -> int:
        """The number of running workspaces."""
        return sum(process.poll() is None for _, process in self._processes.values())

    def kill(self, project: str, name: str) -> None:
        """Let a workspace die."""
        for key, process in self._processes.values():
            if key == (project, name):
                self._kill(process)

    def _loop(self) -> None:
        while not self._end.wait(0.05):
            with self.turn:
                self._look()

    def _look(self) -> None:
        workloads = {one["uid"]: one for one in self.fake.workloads()}
        for uid, workload in workloads.items():
            self._step(uid, workload)
        for uid, (_, process) in list(self._processes.items()):
            gone = uid not in workloads or workloads[uid]["status"]["phase"] == "stopped"
            if gone and process.poll() is None:
                self._kill(process)

    def _step(self, uid: str, workload: dict[str, Any]) -> None:
        key = (workload["project"], workload["name"])
        phase, spec = workload["status"]["phase"], workload["spec"]
        held = self.hold or spec.get("hold_for_claim")
        with contextlib.suppress(Exception):  # it may vanish between looking and doing
            if uid not in self._processes and spec.get("port") and not held:
                if phase in ("pending", "starting", "running"):
                    self._start(uid, key, spec)
            elif uid in self._processes and phase == "running":
                code = self._processes[uid][1].poll()
                if code is not None:
                    self.fake.finish(*key, exit_code=abs(code) or 1)

    def _start(self, uid: str, key: Key, spec: dict[str, Any]) -> None:
        command = self.command or self._usual(spec)
        home = self.home / spec["user"]
        home.mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            **spec["environment"],
            **self.fake.secrets(*key),
        }
        with (self.home / f"{uid}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=home, stdout=log, stderr=log, start_new_session=True
            )
        self._processes[uid] = (key, process)
        self.fake.run(*key)

    def _usual(self, spec: dict[str, Any]) -> list[str]:
        if not self.real:
            return [sys.executable, str(STUB)]
        as_root = os.geteuid() == 0  # an engine would run it as an ordinary user
        return [*spec["command"], *(["--allow-root"] if as_root else [])]

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
