"""Between a trial's process and the scheduler: values go out in their order, the answer comes back.

Values that cannot be sent are kept and sent again. The process waits for them when it ends: the
last one is what the whole trial was for.
"""

import atexit
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from carrel.job.sender import TIMEOUT_SECONDS, Sender

ANSWER_SECONDS: Final = 2.0
LAST_SECONDS: Final = 60.0
MOST_VALUES: Final = 1000


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Two reports as one: all values in their order; of very many the last."""
    values = [*old.get("values", ()), *new.get("values", ())][-MOST_VALUES:]
    return {**old, **new, **({"values": values} if values else {})}


class Link:
    """A trial's way to its experiment.

    Args:
        url: of the trial's workload.
        token: the task's own token.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._pruned = self._silent = self._answered = False
        self._sender = Sender(f"{url}/trial", token, merge, post=self._post, interval=0.1)
        atexit.register(self._sender.flush, LAST_SECONDS)

    def put(self, body: Mapping[str, Any]) -> None:
        """Send soon; returns at once."""
        self._sender.put(body)

    def deliver(self, body: Mapping[str, Any]) -> None:
        """Send now and wait until it was taken."""
        self._sender.put(body)
        self._sender.flush(LAST_SECONDS)

    def ask(self) -> bool:
        """Whether the trial is pruned; waits for the answer, but only once if none comes."""
        if not self._pruned:
            self._answered = False
            self._sender.put({"asks": True})
            self._sender.flush(0.0 if self._silent else ANSWER_SECONDS)
            self._silent = not self._answered
        return self._pruned

    def suggest(self, parameter: Mapping[str, Any]) -> Any:
        """The value of a parameter; raises ``RuntimeError``."""
        try:
            status, content = self._request("suggestions", json.dumps(parameter).encode())
        except OSError as error:
            raise RuntimeError(f"the scheduler cannot be asked now: {error}") from error
        answer = json.loads(content)
        if status != 200:
            raise RuntimeError(str(answer.get("detail") or f"refused with status {status}"))
        return answer["value"]

    def _post(self, content: bytes) -> int:
        status, answer = self._request("trial", content)
        if status == 200:
            self._answered = True
            self._silent = False
            self._pruned = self._pruned or bool(json.loads(answer)["should_prune"])
        return status

    def _request(self, part: str, content: bytes) -> tuple[int, bytes]:
        from http.client import HTTPConnection, HTTPSConnection  # heavy; needed here only

        parts = urlsplit(self._url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.netloc, timeout=TIMEOUT_SECONDS)
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", f"{parts.path}/{part}", body=content, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
