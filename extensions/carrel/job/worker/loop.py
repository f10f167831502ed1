"""Takes trials, has them run, and tells how they ended, several at once.

It takes as many as fill about half a second, so that the scheduler is asked a few times a second
however short they are; what is not begun while one takes long is given back. When it is told to end
(SIGTERM: preempted, suspended, over its time limit) it gives back what it has not begun, passes the
signal on to the trial, and reports what has ended.
"""

import hashlib
import json
import signal
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from carrel.job import api
from carrel.job.task import PREEMPTED, Task, warn
from carrel.job.worker.orders import Order, TrialEnd, framed
from carrel.job.worker.process import Process

REPORT_SECONDS: Final = 0.5
RETURN_SECONDS: Final = 5.0
MOST_WANTED: Final = 256
WAIT_SECONDS: Final = 0.2
MOST_OUTPUT_BYTES: Final = 4 * 2**20
PAUSES_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
TIMEOUT_SECONDS: Final = 60.0


class NotTaken(Exception):  # noqa: N818 - what happened
    """The scheduler refuses what the worker says: it is no worker any more."""


class WorkerConnection:
    """The worker's connection to the scheduler."""

    def __init__(self, task: Task) -> None:
        self._url = task.reports_url.removesuffix("/reports")
        self._token = task.token

    def take(self, body: Mapping[str, Any]) -> list[Order]:
        """Tell what has ended and take further trials. Raises ``NotTaken``, ``OSError``."""
        content = self._request("POST", "trials", json.dumps(body).encode(), api.JSON)
        return [
            Order(one["trial"], one["command"], one["environment"])
            for one in json.loads(content)["items"]
        ]

    def output(self, content: bytes) -> None:
        """Send the results of items. Raises ``NotTaken``, ``OSError``."""
        digest = hashlib.sha256(content).hexdigest()
        self._request("PUT", f"outputs/{digest}", content, "application/octet-stream")

    def _request(self, method: str, path: str, content: bytes, media: str) -> bytes:
        for pause in (*PAUSES_SECONDS, None):
            try:
                status, answer = api.request(
                    method,
                    f"{self._url}/{path}",
                    self._token,
                    content,
                    media_type=media,
                    timeout=TIMEOUT_SECONDS,
                )
            except OSError:
                if pause is None:
                    raise
            else:
                if status < 300:
                    return answer
                if status < 500 and status != 429:
                    raise NotTaken(f"status {status}: {answer.decode('utf-8', 'replace')[:500]}")
                if pause is None:
                    raise ConnectionError(f"status {status}")
            time.sleep(pause)
        raise AssertionError("the last pause is none")


class Loop:
    """See the module.

    Args:
        scheduler: gives trials.
        process: runs them.
    """

    def __init__(self, scheduler: WorkerConnection, process: Process) -> None:
        self._scheduler, self._process = scheduler, process
        self._queue: deque[Order] = deque()
        self._ended: list[dict[str, Any]] = []
        self._outputs: list[tuple[int, bytes]] = []
        self._returned: list[int] = []
        self._seconds = REPORT_SECONDS  # of a trial, lately
        self._leaving = False
        self._told_at = 0.0

    def run(self) -> int:
        """Run until nothing is left to do; returns the exit code."""
        signal.signal(signal.SIGTERM, self._leave)
        refused = False
        try:
            while not self._leaving:
                self._exchange(self._wanted())
                if not self._queue:
                    break
                while self._queue and not self._leaving and not self._is_due():
                    self._run_one(self._queue.popleft())
            self._returned += [order.trial for order in self._queue]
            self._exchange(0)
        except NotTaken as error:
            warn(f"the worker ends: {error}")
            refused = True
        self._process.close(1.0)
        return PREEMPTED if self._leaving else int(refused)

    def _leave(self, *_: object) -> None:
        self._leaving = True
        self._process.terminate()

    def _wanted(self) -> int:
        room = int(REPORT_SECONDS / max(self._seconds, 1e-4)) - len(self._queue)
        return min(max(room, 0 if self._queue else 1), MOST_WANTED)

    def _is_due(self) -> bool:
        big = sum(len(content) for _, content in self._outputs) > MOST_OUTPUT_BYTES
        return big or time.monotonic() - self._told_at > REPORT_SECONDS

    def _exchange(self, want: int) -> None:
        """Report, and take as many trials."""
        if self._outputs:
            self._scheduler.output(framed(self._outputs))
            self._outputs = []
        if want or self._ended or self._returned:
            body = {"ended": self._ended, "returned": self._returned, "want": want}
            self._queue.extend(self._scheduler.take(body))
            self._ended, self._returned = [], []
        self._told_at = time.monotonic()

    def _run_one(self, order: Order) -> None:
        began = time.monotonic()
        self._process.start(order)
        while (ended := self._process.wait(WAIT_SECONDS)) is None:
            if (self._ended or self._queue) and time.monotonic() - began > RETURN_SECONDS:
                self._returned += [one.trial for one in self._queue]
                self._queue.clear()
                self._exchange(0)
        seconds = time.monotonic() - began
        self._seconds = (self._seconds + seconds) / 2
        if ended.left or (ended.error and self._leaving):
            self._returned.append(order.trial)
        else:
            self._note(ended, seconds)

    def _note(self, ended: TrialEnd, seconds: float) -> None:
        log = self._process.log()
        error = "\n".join(text for text in (ended.error, log.strip()) if text)
        found = {"trial": ended.trial, "seconds": seconds, "log": log, **ended.said}
        if ended.error:
            found["error"] = error.replace("\0", "")[:4000]
        if ended.output:
            self._outputs.append((ended.trial, ended.output))
        self._ended.append(found)
