"""What every command needs: the client, the clock, the words behind ``--``, the project."""

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carrel.client import Client


@dataclass(slots=True)
class Invocation:
    """One run of the tool. ``rest`` is what stood behind ``--``; ``None``: there was no ``--``."""

    rest: list[str] | None = field(default=None)


@contextmanager
def connected(timeout: float = 30.0) -> "Iterator[Client]":
    """A client, closed afterwards. Raises ``NotSignedIn``, ``BadSetting``."""
    from carrel.client import Client

    with Client(timeout=timeout) as client:
        yield client


def project_of(client: "Client", named: str | None) -> str:
    """The project that a command is about. Raises ``BadSetting`` when it is not clear."""
    from carrel.client.submit import default_project

    return named or default_project(client)


def now() -> float:
    """The time, in epoch seconds; ages are counted from here."""
    return time.time()
