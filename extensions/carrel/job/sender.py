"""Sends reports from a thread: merged, at most two a second, again after a failure.

Where the job is no longer known (its token ended) sending stops for good; a report that is refused
as such is dropped; anything else is tried again with the newest values. Trouble is told once.
"""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from carrel.job.task import warn

Merge = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
INTERVAL_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 5.0
URGENT_PAUSE_SECONDS: Final = 0.2
UNKNOWN_STATUSES: Final = frozenset({401, 403, 404, 410})
REFUSED_STATUSES: Final = frozenset({400, 413, 422})


class Sender:
    """One thread, started with the first report.

    Args:
        url: where to.
        token: the task's own token.
        merge: makes one report of two.
        post: sends one body and returns the status; replaced in tests.
        interval: seconds between two sends.
    """

    def __init__(
        self,
        url: str,
        token: str,
        merge: Merge,
        *,
        post: Callable[[bytes], int] | None = None,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._url, self._token, self._merge = url, token, merge
        self._post = post or self._request
        self._interval = interval
        self._changed = threading.Condition()
        self._waiting: dict[str, Any] = {}
        self._sending = self._stopped = self._urgent = self._told = False
        self._thread: threading.Thread | None = None

    def put(self, body: Mapping[str, Any]) -> None:
        """Take a report; returns at once."""
        with self._changed:
            if self._stopped:
                return
            self._waiting = self._merge(self._waiting, body)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="carrel-report", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait, at most so long, until nothing waits to be sent."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting and not self._sending, seconds)
            self._urgent = False

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                self._changed.wait_for(lambda: self._urgent, self._interval + pause)
                body, self._waiting, self._sending = self._waiting, {}, True
            sent = self._send(body)
            with self._changed:
                self._sending = False
                if self._stopped:
                    self._waiting = {}
                elif not sent:
                    self._waiting = self._merge(body, self._waiting)
                self._changed.notify_all()
                if self._stopped:
                    return
                if not sent and self._urgent:
                    self._changed.wait(URGENT_PAUSE_SECONDS)
            pause = 0.0 if sent else min(max(2 * pause, 1.0), LONGEST_PAUSE_SECONDS)

    def _send(self, body: Mapping[str, Any]) -> bool:
        """Whether it is done with, so that it need not be sent again."""
        import http.client  # heavy; needed in this thread only

        try:
            status = self._post(json.dumps(body).encode())
        except (OSError, http.client.HTTPException) as error:
            self._tell_once(f"reports cannot be sent now ({error}); the job goes on.")
            return False
        if status in UNKNOWN_STATUSES:
            self._stopped = True
            self._tell_once(f"reports are not taken (status {status}); the job goes on without.")
        elif status in REFUSED_STATUSES:
            self._tell_once(f"a report was refused (status {status}) and dropped.")
        elif status >= 300:
            self._tell_once(f"reports are not taken now (status {status}); the job goes on.")
        return status < 300 or status in UNKNOWN_STATUSES | REFUSED_STATUSES

    def _tell_once(self, text: str) -> None:
        if not self._told:
            self._told = True
            warn(text)

    def _request(self, content: bytes) -> int:
        from http.client import HTTPConnection, HTTPSConnection

        parts = urlsplit(self._url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.netloc, timeout=TIMEOUT_SECONDS)
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", parts.path, body=content, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()
