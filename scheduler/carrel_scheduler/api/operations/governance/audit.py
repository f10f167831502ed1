"""The audit log: read, verified and set up by administrators; sign-ins are reported by the Hub."""

from typing import Annotated, Final, Literal

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.governance.scoped import anywhere, scope_of
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.audit.contract import AuditFilter
from carrel_scheduler.ledger.audit.differences import shown
from carrel_schema.constraints import NO_NUL, Constraint, Number
from carrel_schema.governance.audit import (
    SETTING,
    AuditEntry,
    AuditEvents,
    AuditPage,
    AuditSettings,
    AuditVerification,
)
from carrel_schema.objects import Project
from carrel_schema.scopes import PLATFORM, Scope

AUDIT: Final = "/audit"
MOST_ENTRIES: Final = 1000
OF_USERS: Final = frozenset({"User", "Token"})
FilterText = Annotated[str, Constraint(max_length=255, pattern=NO_NUL)]


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of audit entries, all of which hold; ``after`` is the cursor of a page.

    ``project`` and ``department`` are those whose objects were changed, a department with all its
    projects; ``order`` ``oldest`` begins with the oldest.
    """

    user: FilterText = ""
    kind: FilterText = ""
    verb: FilterText = ""
    name: FilterText = ""
    project: FilterText = ""
    department: FilterText = ""
    scope: FilterText = ""
    outcome: Literal["", "done", "refused"] = ""
    since: Number | None = None
    until: Number | None = None
    order: Literal["newest", "oldest"] = "newest"
    limit: Annotated[int, Constraint(ge=1, le=MOST_ENTRIES)] = 100
    after: Annotated[str, Constraint(pattern="^[0-9]{0,18}$")] = ""


@Operation(
    "GET",
    AUDIT,
    access=AdmittedCallers.ADMIN,
    permission="audit:read",
    scope=anywhere,
    query=AuditQuery,
    answers={200: AuditPage},
)
async def list_audit_entries(call: Call) -> Response:
    """List entries of the audit log, page by page."""
    query: AuditQuery = call.query
    audit = call.services.deps.ledger.audit
    where = AuditFilter(
        user=query.user,
        kind=query.kind,
        verb=query.verb,
        name=query.name,
        scopes=await _scopes(call, query),
        outcome=query.outcome,
        since=query.since,
        until=query.until,
    )
    cursor = int(query.after) if query.after else None
    if query.order == "oldest":
        found = await audit.read(where, after=cursor or 0, limit=query.limit + 1)
    else:
        found = await audit.read(where, before=cursor, limit=query.limit + 1)
    items = tuple(found[: query.limit])
    more = len(found) > query.limit
    return Response(AuditPage(items=items, next=str(items[-1].seq) if more else ""))


async def _scopes(call: Call, query: AuditQuery) -> tuple[str, ...] | None:
    """The scopes that the query names; ``None``: all."""
    wanted: set[str] | None = None
    for named in (
        _readable(call.visitor.person),
        {str(scope_of(query.scope))} if query.scope else None,
        {f"project/{query.project}"} if query.project else None,
        await _in_department(call, query.department) if query.department else None,
    ):
        if named is not None:
            wanted = named if wanted is None else wanted & named
    return None if wanted is None else tuple(sorted(wanted))


def _readable(person: Principal) -> set[str] | None:
    """The scopes whose entries the caller may read; ``None``: all."""
    if person.may("audit:read", PLATFORM):
        return None
    rights = person.rights
    found = [Scope("department", name) for name in rights.departments]
    found += [Scope("project", name) for name in rights.projects]
    return {str(one) for one in found if person.may("audit:read", one)}


async def _in_department(call: Call, department: str) -> set[str]:
    projects = (await call.services.deps.ledger.list(Project)).items
    inside = {f"project/{p.meta.name}" for p in projects if p.spec.department == department}
    return {f"department/{department}", *inside}


@Operation(
    "GET",
    f"{AUDIT}/verification",
    access=AdmittedCallers.ADMIN,
    permission="audit:read",
    answers={200: AuditVerification},
)
async def verify_audit_log(call: Call) -> Response:
    """Check every entry of the audit log, and its signed head."""
    return Response(await call.services.deps.ledger.audit.verify())


@Operation(
    "GET",
    f"{AUDIT}/settings",
    access=AdmittedCallers.ADMIN,
    permission="audit:read",
    answers={200: AuditSettings},
)
async def read_audit_settings(call: Call) -> Response:
    """Read how long entries are kept, and where they are sent."""
    stored = (await call.services.deps.ledger.settings()).get(SETTING)
    return Response(AuditSettings() if stored is None else msgspec.convert(stored, AuditSettings))


@Operation(
    "PUT",
    f"{AUDIT}/settings",
    access=AdmittedCallers.ADMIN,
    permission="audit:update",
    body=AuditSettings,
    answers={200: AuditSettings},
)
async def put_audit_settings(call: Call) -> Response:
    """Set how long entries are kept, and where they are sent."""
    body: AuditSettings = call.body
    if body.syslog and not 0 < int(body.syslog.rpartition(":")[2]) < 65_536:
        raise problems.invalid_field(
            "syslog", Code.WRONG_FORM, body.syslog, "a port from 1 to 65535, as in udp://log:514"
        )
    await call.services.deps.ledger.put_setting(SETTING, msgspec.to_builtins(body))
    return Response(body)


@Operation(
    "POST",
    f"{AUDIT}/events",
    access=AdmittedCallers.HUB,
    body=AuditEvents,
    answers={204: None},
    audited=False,
)
async def add_audit_events(call: Call) -> Response:
    """Record sign-ins, failed ones, and changes of accounts; only the Hub calls it."""
    body: AuditEvents = call.body
    now = call.services.deps.clock()
    entries = [
        AuditEntry(
            at=min(event.at, now),
            user=event.user,
            verb=event.verb,
            kind=event.kind,
            scope=f"user/{event.name}" if event.name and event.kind in OF_USERS else "platform",
            name=event.name,
            outcome=event.outcome,
            reason=event.reason,
            address=event.address,
            agent=event.agent,
            channel=event.channel,
            before=shown(event.before),
            after=shown(event.after),
            count=event.count,
        )
        for event in body.items
    ]
    await call.services.deps.ledger.audit.add(entries)
    return Response(status=204)


OPERATIONS: Final = (
    list_audit_entries,
    verify_audit_log,
    read_audit_settings,
    put_audit_settings,
    add_audit_events,
)
