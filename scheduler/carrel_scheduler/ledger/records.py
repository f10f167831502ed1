"""The rows of the past: decisions, state changes, reports. Written once, never changed.

``Ledger`` is the contract of the whole store: objects (``ObjectStore``) and these rows in one
database, so that a state change and its reason are one transaction.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol

import msgspec

from carrel_scheduler.ledger.audit.contract import AuditStore
from carrel_scheduler.ledger.named_secrets import NamedSecrets
from carrel_scheduler.ledger.samples import SampleStore
from carrel_scheduler.ledger.scoped_records import ScopedRecords
from carrel_scheduler.ledger.store import ObjectStore
from carrel_schema.files import StoredCopy
from carrel_schema.governance.costs import PricePeriod
from carrel_schema.governance.retention import RetainedKind
from carrel_schema.history import Decision, Transition, Usage
from carrel_schema.objects import Meta, Workload

__all__ = [
    "CopyKind",
    "CopyRecord",
    "Creation",
    "Decision",
    "Fenced",
    "GpuUse",
    "Ledger",
    "MetricPoint",
    "NewWorkload",
    "StoredAmount",
    "Transition",
    "Usage",
]


class MetricPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A reported value."""

    at: float
    step: int
    name: str
    value: float


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's use of its GPUs for some minutes, as far as it was measured.

    ``used_gpu_seconds`` is utilisation times seconds, summed over its GPUs; ``idle_gpu_seconds``
    are those of GPUs that it held while none of them worked. ``gpu_type`` and ``node_group`` are
    those of the node, empty where nobody tells, or it is in no group.
    """

    workload_uid: str
    workload: str
    project: str
    user: str
    since: float
    until: float
    used_gpu_seconds: float
    idle_gpu_seconds: float
    kind: str = ""
    gpu_type: str = ""
    node_group: str = ""


class StoredAmount(msgspec.Struct, frozen=True, kw_only=True):
    """The stored amount of one kind of rows, and the part that is older than a time.

    ``size_bytes`` and ``old_bytes`` are of the content; ``oldest_at`` is ``None`` without rows.
    """

    rows: int
    size_bytes: int
    oldest_at: float | None
    old_rows: int
    old_bytes: int


CopyKind = Literal["model", "checkpoint"]


class CopyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a model, or a kept checkpoint; ``uid`` names the folder of its files."""

    uid: str
    kind: CopyKind
    copy: StoredCopy


class NewWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload to create with its secrets and its first row (to ``pending``)."""

    workload: Workload
    secrets: Mapping[str, str]
    transition: Transition


class Creation(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one ``NewWorkload``.

    Attributes:
        meta: of the workload that has the name now.
        found: the workload that had the name before; ``None`` when the new one was created.
    """

    meta: Meta
    found: Workload | None = None


class Fenced(Exception):  # noqa: N818
    """A scheduler with a higher epoch took over: this one has to stop writing at once."""


class Ledger(ObjectStore, Protocol):
    """Objects and rows of the past in one database.

    While the storage is full, ``begin_epoch``, ``record``, ``add_metrics`` and ``append_study``
    wait; all other writes raise ``StorageFull``.
    """

    @property
    def trouble(self) -> str:
        """The reason why nothing can be written now, in words; empty if none is known."""
        ...

    @property
    def scoped(self) -> ScopedRecords:
        """Access rules, policies, templates, assets: the configuration by admins and users."""
        ...

    @property
    def named_secrets(self) -> NamedSecrets:
        """Named secrets of scopes, to which work refers."""
        ...

    @property
    def samples(self) -> SampleStore:
        """Samples of the cluster and its projects over time."""
        ...

    @property
    def audit(self) -> AuditStore:
        """The audit log, which is written in the transactions of the changes."""
        ...

    async def begin_epoch(self) -> int:
        """Begin a new, larger epoch; writes of older ones are ``Fenced``."""
        ...

    async def record(
        self,
        *,
        epoch: int,
        statuses: Sequence[Workload] = (),
        transitions: Sequence[Transition] = (),
        decisions: Sequence[Decision] = (),
        removed: Sequence[Workload] = (),
    ) -> Sequence[Meta]:
        """Write status changes, removals and their rows in one durable transaction, or nothing.

        Returns the identities of the stored workloads (new resource versions), in the order of
        ``statuses``. Raises ``Fenced``, ``VersionConflict``, ``ObjectNotFound``; nothing is written
        then.
        """
        ...

    async def create_workload(
        self, workload: Workload, *, secrets: Mapping[str, str], transition: Transition
    ) -> Workload:
        """Create with its first row (to ``pending``) and its secrets, in one transaction.

        The transition gets the uid of the workload. Many concurrent calls share one commit (group
        commit).
        """
        ...

    async def create_workloads(self, items: Sequence[NewWorkload]) -> Sequence[Creation]:
        """Create many in one transaction, each as ``create_workload`` does, in their order.

        One whose name is taken is left out, and what has the name is returned in its stead.
        """
        ...

    async def set_secrets(self, workload_uid: str, secrets: Mapping[str, str]) -> None:
        """Replace the secret environment of a workload."""
        ...

    async def secrets(self, workload_uid: str) -> Mapping[str, str]:
        """The secret environment of a workload (empty when none)."""
        ...

    async def secrets_of(self, workload_uids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """The secret environments of many workloads, without empty ones."""
        ...

    async def claim_idempotency_key(
        self, scope: str, key: str, digest: str, workload_uid: str, now: float
    ) -> tuple[str, str]:
        """Remember a key; returns (digest, uid) of the first use, which may be this one."""
        ...

    async def transitions(
        self,
        *,
        workload_uid: str | None = None,
        projects: Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 1000,
    ) -> Sequence[Transition]:
        """Rows with ``since <= at < until``: the newest ``limit`` of them, in order of id."""
        ...

    async def decisions(
        self, *, workload_uid: str | None = None, limit: int = 1000
    ) -> Sequence[Decision]:
        """Rows, newest last."""
        ...

    async def add_gpu_use(self, pieces: Sequence[GpuUse]) -> None:
        """Append measured GPU use. Raises ``StorageFull``."""
        ...

    async def add_metrics(self, workload_uid: str, points: Sequence[MetricPoint]) -> None:
        """Append reported values; old points are thinned beyond 2,000 per name."""
        ...

    async def remove_orphaned_metrics(self, most: int) -> int:
        """Remove what at most so many deleted workloads reported; returns of how many it was."""
        ...

    async def metrics(
        self, workload_uid: str, *, names: Sequence[str] | None = None, max_points: int = 500
    ) -> Mapping[str, Sequence[MetricPoint]]:
        """Curves by name, evenly thinned to ``max_points``, first and last kept."""
        ...

    async def append_study(
        self, workload_uid: str, entries: Sequence[str], *, first: int, epoch: int
    ) -> None:
        """Append to the log of an experiment's study, as entries ``first``, ``first + 1``, ...

        Raises ``Fenced``; ``VersionConflict`` when the log has not ``first`` entries;
        ``ObjectNotFound``.
        """
        ...

    async def study(
        self, workload_uid: str, *, first: int = 0, limit: int | None = None
    ) -> Sequence[str]:
        """Entries of a study's log from ``first`` on, at most ``limit``; empty when none."""
        ...

    async def usage(
        self,
        *,
        by: str,
        since: float,
        until: float,
        projects: Sequence[str] | None = None,
        departments: Mapping[str, str] = MappingProxyType({}),
        prices: Sequence[PricePeriod] = (),
    ) -> Sequence[Usage]:
        """Use in [since, until) by one of ``usage.GROUPINGS``; see ``usage.account``."""
        ...

    async def usage_series(
        self,
        *,
        by: str,
        since: float,
        until: float,
        buckets: int,
        projects: Sequence[str] | None = None,
        departments: Mapping[str, str] = MappingProxyType({}),
        largest: int | None = None,
    ) -> Mapping[str, Sequence[float]]:
        """GPU-seconds in equal parts of [since, until); see ``usage.series``.

        ``largest``: only of so many that hold most.
        """
        ...

    async def aggregate_usage(self, most: int) -> int:
        """Sum up at most so many further transitions, so that ``usage`` is fast; 0: all are.

        Changes no answer.
        """
        ...

    async def add_copy(self, kind: CopyKind, uid: str, copy: StoredCopy) -> CopyRecord:
        """Record a copy, of a model as its next version.

        Raises ``ObjectExists`` for a checkpoint whose name is or was taken, ``StorageFull``.
        """
        ...

    async def copies(
        self, kind: CopyKind | None = None, project: str | None = None, name: str | None = None
    ) -> Sequence[CopyRecord]:
        """The existing copies, by project, name and version."""
        ...

    async def remove_copy(self, uid: str) -> None:
        """Remove a copy; its name and version are never used again. Raises ``ObjectNotFound``."""
        ...

    async def size_bytes(self) -> int:
        """The size of the database, in bytes."""
        ...

    async def stored_amount(self, kind: RetainedKind, before: float) -> StoredAmount:
        """The stored amount of a kind of rows, and the part that is older."""
        ...

    async def remove_decisions(self, before: float, most: int) -> int:
        """Remove the oldest decisions that are older, at most so many; returns how many."""
        ...

    async def settings(self) -> Mapping[str, Any]:
        """Small key-value facts (default project, signing key id)."""
        ...

    async def put_setting(self, key: str, value: Any) -> None:
        """Set one."""
        ...

    async def close(self) -> None:
        """Finish writes and close."""
        ...
