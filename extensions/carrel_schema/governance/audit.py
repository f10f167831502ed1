"""The audit log: who changed what, when and from where, as a chain that shows tampering.

Entries are numbered from 1. Each one names the hash of the entry before it and has a hash over all
of itself, that name included, so an entry that was changed, removed or moved breaks the chain from
there on. What the chain alone cannot show is that its newest entries were cut off: the store signs
the head, and whoever keeps an exported head can compare it.

The oldest entries are removed after the time of retention; the chain then begins at its anchor,
the last entry that was removed.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import MOST_EPOCH_SECONDS, NO_NUL, Constraint

Text255 = Annotated[str, Constraint(max_length=255, pattern=NO_NUL)]
Outcome = Literal["done", "refused"]
SETTING: Final = "audit"
"""Under which name the ledger keeps ``AuditSettings``."""
MOST_EVENTS: Final = 200
START: Final = "0" * 64
"""The hash that the first entry of all names."""


class AuditEntry(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of the audit log.

    Attributes:
        seq: its number.
        at: epoch seconds.
        user: who did it: a person, a service, ``task PROJECT/NAME``, ``node NAME`` or, of the
            Hub's machine, ``account NAME``; empty where nobody could be identified.
        on_behalf_of: the person whom a service acted for.
        job: uid of the job with whose token it was done.
        address: of the client, as the first proxy saw it.
        channel: ``console``, ``cli``, ``notebook``, ``api``, ``hub`` or ``kubernetes``: as the
            client says.
        agent: the client's program, as it says.
        operation: of the REST API, as in its reference.
        verb: ``create``, ``update``, ``delete``, ``sign-in``, ``open_terminal``, ...
        kind: of what was changed: ``Workload``, ``Project``, ``policy``, ...
        scope: where it is: ``platform``, ``department/NAME``, ``project/NAME`` or ``user/NAME``.
        name: of the object in its scope.
        uid: of the object.
        outcome: whether it was done.
        reason: why it was refused: the code of the problem.
        before: the fields that changed, by path, as they were; secrets are not shown.
        after: the same as they are now; of a new object all that is set.
        count: how many times the same was refused since the entry before that says so.
        previous: hash of the entry before.
        hash: of this entry.
    """

    at: float
    user: str
    verb: str
    seq: int = 0
    on_behalf_of: str = ""
    job: str = ""
    address: str = ""
    channel: str = ""
    agent: str = ""
    operation: str = ""
    kind: str = ""
    scope: str = "platform"
    name: str = ""
    uid: str = ""
    outcome: Outcome = "done"
    reason: str = ""
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}
    count: int = 1
    previous: str = ""
    hash: str = ""


class AuditHead(Answer, frozen=True, kw_only=True):
    """The ends of the audit chain, signed by the store.

    Attributes:
        seq: number of the newest entry; 0 when there is none.
        hash: of it.
        anchor_seq: number of the newest entry that was removed after the time of retention.
        anchor_hash: of it.
        signature: by the keys of the ledger, over the rest.
    """

    seq: int = 0
    hash: str = START
    anchor_seq: int = 0
    anchor_hash: str = START
    signature: str = ""


class AuditPage(Answer, frozen=True, kw_only=True):
    """Entries, the newest first, and how to go on: ``next`` is empty behind the last."""

    items: tuple[AuditEntry, ...] = ()
    next: str = ""


class AuditVerification(Answer, frozen=True, kw_only=True):
    """Whether the chain is whole.

    Attributes:
        ok: no entry was changed, removed, moved or cut off.
        entries: how many were checked.
        wrong_seq: number of the first entry that is wrong, or of the first that is missing.
        problem: what is wrong, in words; empty when nothing is.
        head: as stored.
    """

    ok: bool
    entries: int
    wrong_seq: int | None = None
    problem: str = ""
    head: AuditHead


class AuditSettings(Answer, frozen=True, kw_only=True):
    """Retention of audit entries, and where they are sent to.

    Attributes:
        retention_days: entries older than that are removed; ``None``: never.
        syslog: where each entry is sent as a message of RFC 5424, as ``udp://log.example:514``
            or ``tcp://log.example:601``; empty: nowhere.
    """

    retention_days: Annotated[int, Constraint(ge=1, le=36_600)] | None = None
    syslog: Annotated[
        str,
        Constraint(
            max_length=300,
            pattern=r"^((udp|tcp)://(\[[0-9a-fA-F:]+\]|[-A-Za-z0-9.]+):[0-9]{1,5})?$",
        ),
    ] = ""


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that the Hub reports; the fields are those of ``AuditEntry``."""

    at: Annotated[float, Constraint(ge=0, le=MOST_EPOCH_SECONDS)]
    verb: Annotated[str, Constraint(min_length=1, max_length=64, pattern="^[-a-z_]+$")]
    user: Text255 = ""
    kind: Text255 = "User"
    name: Text255 = ""
    outcome: Outcome = "done"
    reason: Annotated[str, Constraint(max_length=500, pattern=NO_NUL)] = ""
    address: Text255 = ""
    agent: Text255 = ""
    channel: Literal["hub", "cli"] = "hub"
    before: Annotated[dict[str, Any], Constraint(max_length=64)] = {}
    after: Annotated[dict[str, Any], Constraint(max_length=64)] = {}
    count: Annotated[int, Constraint(ge=1, le=10**9)] = 1


class AuditEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Events of the Hub, in their order."""

    items: Annotated[list[AuditEvent], Constraint(max_length=MOST_EVENTS)]


def head_text(head: AuditHead) -> bytes:
    """Make the text that the signature of a head covers."""
    return f"{head.seq}:{head.hash}:{head.anchor_seq}:{head.anchor_hash}".encode()


def canonical(entry: AuditEntry) -> bytes:
    """Encode an entry without its hash, as it is hashed and stored."""
    bare = msgspec.structs.replace(entry, hash="")
    return msgspec.json.encode(bare, order="deterministic")


def hash_of(text: bytes) -> str:
    """Compute the hash of an entry's canonical text."""
    return hashlib.sha256(text).hexdigest()


def linked(entry: AuditEntry, seq: int, previous: str) -> tuple[AuditEntry, bytes]:
    """Link an entry into the chain: set number and hashes, and return it with its text."""
    placed = msgspec.structs.replace(entry, seq=seq, previous=previous)
    text = canonical(placed)
    return msgspec.structs.replace(placed, hash=hash_of(text)), text


class ChainCheck:
    """Follows a chain from its anchor; ``problem`` says what is wrong first, empty for nothing."""

    def __init__(self, anchor_seq: int = 0, anchor_hash: str = START) -> None:
        self.seq, self.hash = anchor_seq, anchor_hash
        self.entries = 0
        self.wrong_seq: int | None = None
        self.problem = ""

    def take(self, entries: Iterable[AuditEntry]) -> bool:
        """Check further entries; false once something is wrong."""
        for entry in entries:
            if self.problem:
                return False
            if entry.seq != self.seq + 1:
                self.fail(self.seq + 1, f"entry {self.seq + 1} is missing or not in its place")
            elif entry.previous != self.hash:
                self.fail(entry.seq, f"entry {entry.seq} does not follow the entry before it")
            elif hash_of(canonical(entry)) != entry.hash:
                self.fail(entry.seq, f"entry {entry.seq} was changed")
            else:
                self.seq, self.hash = entry.seq, entry.hash
                self.entries += 1
        return not self.problem

    def end(self, seq: int, last_hash: str) -> bool:
        """Compare the end of the chain with the signed head; false when something is wrong."""
        if not self.problem and self.seq < seq:
            self.fail(self.seq + 1, f"entries from {self.seq + 1} to {seq} are missing at the end")
        elif not self.problem and (self.seq, self.hash) != (seq, last_hash):
            self.fail(self.seq, f"the chain ends at entry {self.seq}, not as its head says")
        return not self.problem

    def fail(self, seq: int, problem: str) -> None:
        """Record what is wrong."""
        self.wrong_seq, self.problem = seq, problem
