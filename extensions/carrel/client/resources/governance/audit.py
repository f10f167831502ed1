"""The audit log, and how long it and the rest of the past are kept (administrators)."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from carrel.client.transport import Parameter, Transport
from carrel_schema.governance.audit import (
    AuditEntry,
    AuditPage,
    AuditSettings,
    AuditVerification,
)
from carrel_schema.governance.retention import RetentionReport

PAGE_ENTRIES: Final = 500
Filters = Mapping[str, Parameter]


class AuditMethods:
    """Read, verify and set up the audit log; say how long what is kept."""

    _transport: Transport

    async def audit_entries(
        self, filters: Filters | None = None, *, limit: int = 100, after: str = ""
    ) -> AuditPage:
        """A page of entries, the newest first unless ``order`` is ``oldest``.

        Filters: ``user``, ``kind``, ``verb``, ``name``, ``project``, ``department``, ``scope``,
        ``outcome``, ``since``, ``until`` (epoch seconds).
        """
        parameters: dict[str, Parameter] = {"limit": limit, "after": after or None}
        parameters |= filters or {}
        return await self._transport.ask("GET", "/audit", AuditPage, parameters=parameters)

    async def all_audit_entries(
        self, filters: Filters | None = None
    ) -> AsyncGenerator[AuditEntry, None]:
        """Yield all entries that the filters of ``audit_entries`` leave, page by page."""
        after = ""
        while True:
            page = await self.audit_entries(filters, limit=PAGE_ENTRIES, after=after)
            for entry in page.items:
                yield entry
            after = page.next
            if not after:
                return

    async def verify_audit_log(self) -> AuditVerification:
        """Whether no entry was changed, removed, moved or cut off."""
        return await self._transport.ask("GET", "/audit/verification", AuditVerification)

    async def retention(self) -> RetentionReport:
        """The retention of records, and their stored amounts (administrators)."""
        return await self._transport.ask("GET", "/retention", RetentionReport)

    async def put_retention(
        self, settings: Mapping[str, Any], *, dry_run: bool = False
    ) -> RetentionReport:
        """Set how long the ledger keeps records, in days; a dry run says what that frees."""
        parameters = {"dry_run": "true"} if dry_run else {}
        return await self._transport.ask(
            "PUT", "/retention", RetentionReport, parameters=parameters, body=dict(settings)
        )

    async def audit_settings(self) -> AuditSettings:
        """The retention of entries, and where they are sent."""
        return await self._transport.ask("GET", "/audit/settings", AuditSettings)

    async def put_audit_settings(self, settings: Mapping[str, Any]) -> AuditSettings:
        """Set ``retention_days`` and ``syslog``."""
        return await self._transport.ask("PUT", "/audit/settings", AuditSettings, body=settings)

    async def add_audit_events(self, items: list[dict[str, Any]]) -> None:
        """Report sign-ins and changes of accounts (the Hub alone)."""
        await self._transport.send("POST", "/audit/events", body={"items": items})
