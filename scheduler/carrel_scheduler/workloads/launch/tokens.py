"""Task tokens: what a job shows when it reports, good for its own workload and nothing else.

A token is ``ct1.<uid>.<signature>`` with an HMAC-SHA256 of the uid; nothing is stored, so every
attempt of a workload has the same token and any process that has the key can check it.
"""

import base64
import hashlib
import hmac
from typing import Final

PREFIX: Final = "ct1"
SHORTEST_KEY: Final = 16


class TaskTokens:
    """Issues and reads task tokens with one secret key of at least 16 bytes."""

    def __init__(self, key: bytes) -> None:
        if len(key) < SHORTEST_KEY:
            msg = f"the key of task tokens has {len(key)} bytes; at least {SHORTEST_KEY} are needed"
            raise ValueError(msg)
        # Setting a key up takes far longer than signing with it.
        self._signing = hmac.new(key, b"task:", hashlib.sha256)

    def issue(self, uid: str) -> str:
        """The token of the workload with this uid."""
        return f"{PREFIX}.{uid}.{self._signature(uid)}"

    def uid(self, token: str) -> str | None:
        """The uid that a token was issued for; ``None`` if it is not one of ours."""
        prefix, _, rest = token.partition(".")
        uid, _, signature = rest.rpartition(".")
        if prefix != PREFIX or not uid or not token.isascii():
            return None
        return uid if hmac.compare_digest(signature, self._signature(uid)) else None

    def _signature(self, uid: str) -> str:
        signing = self._signing.copy()
        signing.update(uid.encode())
        return base64.urlsafe_b64encode(signing.digest()).rstrip(b"=").decode("ascii")
