"""Numbers of users' accounts by the directory, as the Hub reports them; read when tasks start."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_schema.governance.people import PosixIdentity
from carrel_schema.scopes import Scope

KIND: Final = "posix-identity"
NAME: Final = "directory"


def scope_of(user: str) -> Scope | None:
    """The directory's scope of a user; ``None`` for a name that cannot be a user's."""
    try:
        return Scope("user", user)
    except ValueError:
        return None


async def of_users(ledger: Ledger, users: Iterable[str]) -> Mapping[str, PosixIdentity]:
    """The POSIX identities of those users that have one in the directory."""
    scopes = {scope for user in set(users) if (scope := scope_of(user)) is not None}
    if not scopes:
        return {}
    return {one.scope.name: read(one) for one in await ledger.scoped.list(KIND, scopes=[*scopes])}


def read(record: ScopedRecord) -> PosixIdentity:
    """The numbers of a record."""
    return msgspec.json.decode(record.content, type=PosixIdentity)


def refusal(entry: CachedWorkload, numbers: PosixIdentity) -> str:
    """The reason why work of a user with these numbers cannot start."""
    user = entry.workload.spec.user
    return f"work of {user} runs under the directory's numbers, and {numbers.problem}"
