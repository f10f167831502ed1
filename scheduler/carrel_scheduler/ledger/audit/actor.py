"""The actor of a request: set by whatever answers it, read by the writer of the ledger.

What the scheduler does by itself has no actor and no entry: decisions and transitions tell of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from carrel_scheduler.ledger.audit.differences import differences
from carrel_schema.governance.audit import AuditEntry


@dataclass(slots=True, eq=False)
class Actor:
    """The actor of a request; the fields are those of ``AuditEntry``.

    Attributes:
        service: it is no person: what belongs to somebody is done on that one's behalf.
        recorded: how many entries were written for it.
    """

    at: float
    user: str
    on_behalf_of: str = ""
    job: str = ""
    address: str = ""
    channel: str = ""
    agent: str = ""
    operation: str = ""
    service: bool = False
    recorded: int = 0

    def entry(self, verb: str) -> AuditEntry:
        """An entry with the actor and the origin of the request."""
        return AuditEntry(
            at=self.at,
            user=self.user,
            verb=verb,
            on_behalf_of=self.on_behalf_of,
            job=self.job,
            address=self.address,
            channel=self.channel,
            agent=self.agent,
            operation=self.operation,
        )

    def entry_of_change(
        self,
        verb: str,
        kind: str,
        *,
        scope: str,
        name: str,
        uid: str = "",
        owner: str = "",
        before: bytes | str | None = None,
        after: bytes | str | None = None,
    ) -> AuditEntry:
        """An entry of a change; documents are JSON, ``owner`` is whose object it is."""
        old, new = differences(before, after)
        entry = self.entry(verb)
        return replace(
            entry,
            on_behalf_of=owner if owner and self.service else entry.on_behalf_of,
            kind=kind,
            scope=scope,
            name=name,
            uid=uid,
            before=old,
            after=new,
        )


ACTOR: Final[ContextVar[Actor | None]] = ContextVar("actor", default=None)
"""The actor of the present task; ``None``: the scheduler itself."""


def begin(actor: Actor | None) -> None:
    """Make this the actor of the present task."""
    ACTOR.set(actor)


@contextmanager
def acting(actor: Actor | None) -> Iterator[None]:
    """The same for a while."""
    token = ACTOR.set(actor)
    try:
        yield
    finally:
        ACTOR.reset(token)
