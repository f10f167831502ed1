"""The part of ``Ledger`` that is about rows alone, done by the database of rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from carrel_scheduler.ledger.records import Decision, MetricPoint, Transition, Usage
from carrel_scheduler.ledger.resources.rows import Rows


class Past:
    """See ``Ledger`` for each."""

    rows: Rows

    @property
    def trouble(self) -> str:
        """See ``Ledger``."""
        return self.rows.trouble

    async def set_secrets(self, workload_uid: str, secrets: Mapping[str, str]) -> None:
        """See ``Ledger``."""
        await self.rows.set_secrets(workload_uid, secrets)

    async def secrets(self, workload_uid: str) -> Mapping[str, str]:
        """See ``Ledger``."""
        return await self.rows.secrets(workload_uid)

    async def secrets_of(self, workload_uids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """See ``Ledger``."""
        return await self.rows.secrets_of(workload_uids)

    async def claim_idempotency_key(
        self, scope: str, key: str, digest: str, workload_uid: str, now: float
    ) -> tuple[str, str]:
        """See ``Ledger``."""
        return await self.rows.claim_idempotency_key(scope, key, digest, workload_uid, now)

    async def transitions(
        self,
        *,
        workload_uid: str | None = None,
        projects: Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 1000,
    ) -> Sequence[Transition]:
        """See ``Ledger``."""
        return await self.rows.transitions(
            workload_uid=workload_uid, projects=projects, since=since, until=until, limit=limit
        )

    async def decisions(
        self, *, workload_uid: str | None = None, limit: int = 1000
    ) -> Sequence[Decision]:
        """See ``Ledger``."""
        return await self.rows.decisions(workload_uid=workload_uid, limit=limit)

    async def add_metrics(self, workload_uid: str, points: Sequence[MetricPoint]) -> None:
        """See ``Ledger``."""
        await self.rows.add_metrics(workload_uid, points)

    async def metrics(
        self, workload_uid: str, *, names: Sequence[str] | None = None, max_points: int = 500
    ) -> Mapping[str, Sequence[MetricPoint]]:
        """See ``Ledger``."""
        return await self.rows.metrics(workload_uid, names=names, max_points=max_points)

    async def append_study(
        self, workload_uid: str, entries: Sequence[str], *, first: int, epoch: int
    ) -> None:
        """See ``Ledger``."""
        await self.rows.append_study(workload_uid, entries, first=first, epoch=epoch)

    async def study(
        self, workload_uid: str, *, first: int = 0, limit: int | None = None
    ) -> Sequence[str]:
        """See ``Ledger``."""
        return await self.rows.study(workload_uid, first=first, limit=limit)

    async def usage(
        self, *, by: str, since: float, until: float, projects: Sequence[str] | None = None
    ) -> Sequence[Usage]:
        """See ``Ledger``."""
        return await self.rows.usage(by=by, since=since, until=until, projects=projects)

    async def settings(self) -> Mapping[str, Any]:
        """See ``Ledger``."""
        return await self.rows.settings()

    async def put_setting(self, key: str, value: Any) -> None:
        """See ``Ledger``."""
        await self.rows.put_setting(key, value)
