"""Requests of command lines that wait for their person, in memory.

A code is short, since people type it: it counts for ten minutes, only somebody who is signed in can
try one, and of wrong ones a person has few. The secret, with which the token is collected, is never
shown. Requests are bounded for each source and in number, so nobody who may not sign in fills the
memory, or keeps others from signing in.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cachetools import TTLCache

SECONDS: Final = 600.0
ALPHABET: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that no code is a word, and nothing that is taken for a digit."""

LENGTH: Final = 8
MOST_REQUESTS: Final = 1_000
MOST_OF_A_SOURCE: Final = 20
MOST_WRONG_CODES: Final = 10


class CodeState(StrEnum):
    """The states of a sign-in request."""

    WAITING = "waiting"
    ALLOWED = "allowed"
    REFUSED = "refused"


class TooManyCodes(Exception):  # noqa: N818 - an outcome to handle
    """Too many sign-in requests are open, or too many wrong codes were typed; try again later."""


@dataclass(slots=True)
class PendingCode:
    """A sign-in by code that waits for its confirmation.

    Attributes:
        code: what is typed.
        source: the address that asked.
        host: how the asking machine calls itself; anybody can say anything here.
        begun_at: when it asked, on the clock of the collection.
        token: what the command line gets, once somebody has allowed it.
    """

    code: str
    source: str
    host: str
    begun_at: float
    state: CodeState = CodeState.WAITING
    token: str = field(default="", repr=False)


class SignIns:
    """Requests of the last ten minutes; ``clock`` in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_secret: TTLCache[str, PendingCode] = TTLCache(MOST_REQUESTS, SECONDS, timer=clock)
        self._wrong: TTLCache[str, int] = TTLCache(MOST_REQUESTS, SECONDS, timer=clock)

    def begin(self, source: str, host: str) -> tuple[str, PendingCode]:
        """Begin one; returns its secret, too. Raises ``TooManyCodes``."""
        requests = list(self._by_secret.values())
        of_source = sum(one.source == source for one in requests)
        if len(requests) >= MOST_REQUESTS or of_source >= MOST_OF_A_SOURCE:
            raise TooManyCodes(
                "Too many command lines wait for their sign-in; try again in 10 minutes."
            )
        taken = {one.code for one in requests}
        code = _new_code()
        while code in taken:
            code = _new_code()
        secret = secrets.token_urlsafe(32)
        made = PendingCode(code=code, source=source, host=host, begun_at=self._clock())
        self._by_secret[_digest(secret)] = made
        return secret, made

    def find(self, typed: str, person: str) -> PendingCode | None:
        """The request with this code. Raises ``TooManyCodes`` after too many wrong ones."""
        tried = self._wrong.get(person, 0)
        if tried >= MOST_WRONG_CODES:
            raise TooManyCodes("Too many wrong codes; try again in 10 minutes.")
        code = "".join(letter for letter in typed.upper() if letter.isalpha())
        for one in list(self._by_secret.values()):
            if one.code == code and one.state is CodeState.WAITING:
                return one
        self._wrong[person] = tried + 1
        return None

    def collect(self, secret: str) -> PendingCode | None:
        """The request of a secret; what was decided is told once. ``None``: it counts no more."""
        digest = _digest(secret)
        found = self._by_secret.get(digest)
        if found is not None and found.state is not CodeState.WAITING:
            del self._by_secret[digest]
        return found


def spaced(code: str) -> str:
    """A code as it is shown."""
    return f"{code[: LENGTH // 2]}-{code[LENGTH // 2 :]}"


def _new_code() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
