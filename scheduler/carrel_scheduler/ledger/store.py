"""The ``ObjectStore`` contract: objects with optimistic concurrency and a resumable watch.

One test suite holds for every implementation (``tests/contract/object_store.py``). The rules:

* every successful write gives the object a new, larger ``resource_version``, unique in the store;
* ``update`` changes the specification and labels, ``update_status`` the status, nothing else; both
  are refused with ``VersionConflict`` unless they carry the stored ``resource_version``;
* a returned or delivered object is the caller's own copy;
* a write that returned is durable (on disk) and seen by every later read;
* ``watch(kind, version)`` delivers each change after ``version`` exactly once, in order, and then
  goes on live; ``Expired`` if that version's changes are no longer kept (list again then).
"""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Generic, Protocol

import msgspec

from carrel_schema.objects import ObjectT


class ChangeType(StrEnum):
    """The kind of a change."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class Change(msgspec.Struct, Generic[ObjectT], frozen=True):
    """A delivered change; ``version`` is the store's version after it."""

    type: ChangeType
    version: int
    object: ObjectT


class Page(msgspec.Struct, Generic[ObjectT], frozen=True):
    """A listing: ``version`` is where a watch may begin, ``next`` continues it (empty: done)."""

    items: Sequence[ObjectT]
    version: int
    next: str = ""


class StoreError(Exception):
    """The base of the errors with which a store refuses a call."""


class ObjectNotFound(StoreError):  # noqa: N818
    """The object does not exist."""


class ObjectExists(StoreError):  # noqa: N818
    """An object of that kind, project and name exists."""


class VersionConflict(StoreError):  # noqa: N818
    """The object has changed since it was read: it has to be read again."""


class Expired(StoreError):  # noqa: N818
    """The watch begins before the oldest kept change: list again."""


class ObjectStore(Protocol):
    """See the module. ``kind`` is given by the class: ``Project`` or ``Workload``."""

    async def create(self, obj: ObjectT) -> ObjectT:
        """Store a new object; sets uid if empty, resource_version and generation 1.

        Raises ``ObjectExists`` when (kind, project, name) is taken.
        """
        ...

    async def get(self, kind: type[ObjectT], name: str, project: str = "") -> ObjectT:
        """Read one; raises ``ObjectNotFound``."""
        ...

    async def get_by_uid(self, kind: type[ObjectT], uid: str) -> ObjectT:
        """Read one by uid; raises ``ObjectNotFound``."""
        ...

    async def list(
        self,
        kind: type[ObjectT],
        *,
        projects: Sequence[str] | None = None,
        phases: Sequence[str] | None = None,
        user: str | None = None,
        workload_kind: str | None = None,
        without_kinds: Sequence[str] = (),
        labels: dict[str, str] | None = None,
        search: str = "",
        newest_first: bool = False,
        limit: int | None = None,
        after: str = "",
    ) -> Page[ObjectT]:
        """Objects in creation order, filtered; ``after`` is the ``next`` of the page before.

        ``search`` stands in the name or in the user's name; with ``newest_first`` the order is
        turned round.
        """
        ...

    async def update(self, obj: ObjectT) -> ObjectT:
        """Write specification and labels; raises ``VersionConflict``, ``ObjectNotFound``."""
        ...

    async def update_status(self, obj: ObjectT) -> ObjectT:
        """Write the status; raises ``VersionConflict``, ``ObjectNotFound``."""
        ...

    async def delete(
        self,
        kind: type[ObjectT],
        name: str,
        project: str = "",
        *,
        resource_version: int | None = None,
    ) -> ObjectT:
        """Remove; returns the last state. Raises ``ObjectNotFound``, ``VersionConflict``."""
        ...

    def watch(
        self, kind: type[ObjectT], version: int, *, statuses: bool = True
    ) -> AsyncIterator[Change[ObjectT]]:
        """Changes after ``version``; see the module.

        Without ``statuses``, changes of a status alone may be left out.
        """
        ...
