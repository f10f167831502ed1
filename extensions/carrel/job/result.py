"""Hands a job's result back to whoever submitted it, with the task's own token.

Only the first task of a gang does. What cannot be sent is said in the log, and the job goes on: the
work is done, whether or not somebody hears of it.
"""

import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from carrel import results
from carrel.job.task import Task, present, warn

TIMEOUT_SECONDS: Final = 60.0
PAUSES_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # a service restarts in less
Put = Callable[[str, str, bytes], int]


def hand_back(value: object = None, error: BaseException | None = None) -> None:
    """Send a value, or what was raised; called by the programs that Carrel starts cells with."""
    task = present()
    if task.index or not task.reports_to:
        return
    content = results.of_value(value) if error is None else results.of_error(error)
    send(task, content)


def send(
    task: Task,
    content: bytes,
    *,
    put: Put | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether it arrived; a service that does not answer is asked again for a minute."""
    url = task.reports_to.removesuffix("reports") + "result"
    for pause in (*PAUSES_SECONDS, None):
        try:
            status = (put or _put)(url, task.token, content)
        except (OSError, HTTPException) as error:
            status, why = 0, str(error)
        else:
            why = f"status {status}"
        if 200 <= status < 300:
            return True
        if 400 <= status < 500 or pause is None:
            break
        sleep(pause)
    warn(f"the result was not taken ({why}); whoever waits for it gets none.")
    return False


def _put(url: str, token: str, content: bytes) -> int:
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.netloc, timeout=TIMEOUT_SECONDS)
    headers = {"Authorization": f"token {token}", "Content-Type": results.MEDIA_TYPE}
    try:
        connection.request("PUT", parts.path, body=content, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
