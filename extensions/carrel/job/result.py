"""Hands a job's result back to whoever submitted it, with the task's own token.

Only the first task of a gang does. A result that cannot be sent is reported in the log; the job is
not failed for it.
"""

import time
from collections.abc import Callable
from typing import Final

from carrel import results
from carrel.job import api
from carrel.job.task import Task, present, warn

TIMEOUT_SECONDS: Final = 60.0
PAUSES_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # a service restarts in less
Put = Callable[[str, str, bytes], int]


def hand_back(value: object = None, error: BaseException | None = None) -> None:
    """Send a value, or what was raised; called by the programs that Carrel starts cells with."""
    task = present()
    if task.index or not task.reports_url:
        return
    content = results.encode_value(value) if error is None else results.encode_error(error)
    send(task, content)


def send(
    task: Task,
    content: bytes,
    *,
    put: Put | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether the result was accepted; a service that does not answer is retried for a minute."""
    url = task.reports_url.removesuffix("reports") + "result"
    for pause in (*PAUSES_SECONDS, None):
        try:
            status = (put or _put)(url, task.token, content)
        except OSError as error:
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
    status, _ = api.request(
        "PUT", url, token, content, media_type=results.MEDIA_TYPE, timeout=TIMEOUT_SECONDS
    )
    return status
