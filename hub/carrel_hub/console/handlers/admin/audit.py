"""The audit log: filters, pages, a table to download, and whether the chain is whole."""

import csv
import io
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from tornado.web import HTTPError
from typing_extensions import override

from carrel.errors import ApiError
from carrel_hub.console.forms import Form
from carrel_hub.console.handlers.base import PageParameters, SignedInPage
from carrel_schema.governance.audit import AuditEntry
from carrel_schema.text.csv_cells import csv_cell

PAGE: Final = 50
MOST_ROWS: Final = 20_000
DAYS: Final = {"": "At any time", "1": "Last day", "7": "Last 7 days", "30": "Last 30 days"}
DAY_SECONDS: Final = 86_400.0
COLUMNS: Final = ("seq", "at", "user", "on_behalf_of", "verb", "kind", "scope", "name", "uid",
                  "outcome", "reason", "count", "address", "channel", "agent", "hash")  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuditFilters(PageParameters):
    """The filters of the log: the parameters of the address."""

    user: str = ""
    verb: str = ""
    kind: str = ""
    project: str = ""
    department: str = ""
    outcome: str = ""
    days: str = ""

    def filters(self, now: float) -> dict[str, Any]:
        """The same as the API's filters."""
        names = ("user", "verb", "kind", "project", "department", "outcome")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.days:
            found["since"] = now - int(self.days) * DAY_SECONDS
        return {name: value for name, value in found.items() if value}


class _AuditHandler(SignedInPage):
    """The base of the page and the table."""

    def choice(self) -> AuditFilters:
        """The filters of the address; raises 400 for those that there cannot be."""
        asked = {
            one.name: self.get_query_argument(one.name, "").strip() for one in fields(AuditFilters)
        }
        if asked["days"] not in DAYS or asked["outcome"] not in ("", "done", "refused"):
            raise HTTPError(400)
        return AuditFilters(**asked)


class AuditLogPage(_AuditHandler):
    """Entries, the newest first."""

    @override
    async def get(self) -> None:
        """Show the entries; with ``verify`` also whether the chain is intact."""
        await self._show(Form({}))

    @override
    async def post(self) -> None:
        """Save how long entries are kept, and where they are sent."""
        form = Form(self.typed())
        days = form.value("retention_days")
        if days and not days.isdecimal():
            form.errors["retention_days"] = "Type a number of days, or nothing."
        if not form.refused:
            body = {"retention_days": int(days) if days else None, "syslog": form.value("syslog")}
            try:
                await self.client.put_audit_settings(body)
            except ApiError as error:
                if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                    raise
                form.general = str(error)
        if not form.refused:
            self.see_other(self.console.urls.page("audit"))
            return
        self.set_status(HTTPStatus.UNPROCESSABLE_ENTITY)
        await self._show(form)

    async def _show(self, form: Form) -> None:
        choice, after = self.choice(), self.get_query_argument("after", "")
        page = await self.client.audit_entries(
            choice.filters(self.console.clock()), limit=PAGE, after=after
        )
        verify = bool(self.get_query_argument("verify", ""))
        identity = await self.client.whoami()
        governs = "audit:update" in identity.permissions
        self.show(
            "admin/audit.html",
            section="audit",
            choice=choice,
            days=DAYS,
            entries=page.items,
            next=page.next,
            after=after,
            checked=await self.client.verify_audit_log() if verify and governs else None,
            settings=await self.client.audit_settings() if governs else None,
            permissions=identity.permissions,
            form=form,
        )


class AuditTable(_AuditHandler):
    """The same as CSV, at most ``MOST_ROWS``."""

    @override
    async def get(self) -> None:
        """Send the table page by page."""
        filters = self.choice().filters(self.console.clock())
        after, rows = "", 0
        page = await self.client.audit_entries(filters, limit=500)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="audit.csv"')
        self.write(_lines([list(COLUMNS)]))
        while page.items and rows < MOST_ROWS:
            self.write(_lines([_row(one) for one in page.items]))
            await self.flush()
            rows, after = rows + len(page.items), page.next
            if not after:
                break
            page = await self.client.audit_entries(filters, limit=500, after=after)
        await self.finish()


def _row(entry: AuditEntry) -> list[Any]:
    at = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
    values = [at if name == "at" else getattr(entry, name) for name in COLUMNS]
    return [csv_cell(value) for value in values]


def _lines(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
