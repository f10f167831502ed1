"""The contract of scoped records: small documents that admins and users write, each in a scope.

Access rules, policies, templates, assets and the like are few, are read together and change seldom.
A record is named by kind, scope and name; ``version`` counts its changes, so that nobody overwrites
what somebody else changed meanwhile. The ledger does not look into ``content``.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from carrel_scheduler.ledger.store import ObjectNotFound, ObjectStore
from carrel_schema.objects import Department, Project
from carrel_schema.scopes import Scope


class ScopedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a scope.

    Attributes:
        kind: which sort of document, as ``policy``.
        scope: what it holds for.
        name: unique among records of its kind in its scope.
        content: the document, as JSON.
        version: 1 when it was made, one more after each change.
        changed_at: epoch seconds of the last change; ``created_at`` of the first.
        changed_by: who made the last change; ``created_by`` the first.
    """

    kind: str
    scope: Scope
    name: str
    content: msgspec.Raw
    version: int = 0
    created_at: float = 0.0
    created_by: str = ""
    changed_at: float = 0.0
    changed_by: str = ""


class ScopedRecords(Protocol):
    """Reads and writes records. All calls raise ``StorageFull`` where nothing can be written."""

    async def put(
        self,
        record: ScopedRecord,
        *,
        actor: str,
        expected_version: int | None = None,
    ) -> ScopedRecord:
        """Create a record, or replace its content; returns the stored record.

        Args:
            record: version, times and people in it are ignored.
            actor: who changes it.
            expected_version: refused with ``VersionConflict`` unless this is the stored version; 0:
                there must be none (``ObjectExists``); ``None``: whatever is there is replaced.
        """
        ...

    async def get(self, kind: str, scope: Scope, name: str) -> ScopedRecord:
        """Read a record; raises ``ObjectNotFound``."""
        ...

    async def list(
        self, kind: str, *, scopes: Sequence[Scope] | None = None
    ) -> Sequence[ScopedRecord]:
        """The records of a kind, in these scopes or in all, by level, scope and name."""
        ...

    async def remove(
        self, kind: str, scope: Scope, name: str, *, expected_version: int | None = None
    ) -> ScopedRecord:
        """Remove and return a record. Raises ``ObjectNotFound``, ``VersionConflict``."""
        ...

    async def remove_scope(self, scope: Scope) -> Sequence[ScopedRecord]:
        """Remove all records of a deleted scope (department, project or user)."""
        ...


async def scope_exists(store: ObjectStore, scope: Scope) -> bool:
    """Whether a project or department is there; the platform and users always count as such."""
    try:
        if scope.level == "project":
            await store.get(Project, scope.name)
        elif scope.level == "department":
            await store.get(Department, scope.name)
    except ObjectNotFound:
        return False
    return True
