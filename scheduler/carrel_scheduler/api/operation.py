"""Operations of the API: parameters, body, required rights, response.

Operations are data. Routing, access control, the OpenAPI document and the role tests all read the
same table, so none of them can know an operation that the others do not.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import msgspec

from carrel_scheduler.api.models.queries import NoQuery
from carrel_scheduler.api.principals.access import AdmittedCallers, Visitor
from carrel_scheduler.api.services import Services
from carrel_schema.objects import Workload
from carrel_schema.scopes import PLATFORM, Scope

ROOT: Final = "/api/v1"
BYTES: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer; ``content`` is encoded as JSON unless it is bytes already."""

    content: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/json"


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """An answer that comes in pieces, each sent when the one before it has left.

    ``eager`` sends the head at once; otherwise the first piece may still be refused, within a
    moment, or for long where the answer ``ends`` by itself: nobody needs its head before. One that
    ``looks_up`` its listener ends when that may hear no more; others are broken off then.
    """

    pieces: AsyncGenerator[bytes, None]
    media: str
    eager: bool = False
    ends: bool = False
    looks_up: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Call:
    """An authorised, validated call of an operation."""

    services: Services
    visitor: Visitor
    token: str
    path: Mapping[str, str]
    query: Any
    body: Any
    header: Callable[[str], str]

    @property
    def workload(self) -> Workload:
        """The workload of the path, as it was when access was checked."""
        if self.visitor.workload is None:
            msg = "this operation has no workload in its path"
            raise TypeError(msg)
        return self.visitor.workload

    def address(self, *parts: str) -> str:
        """The path of an object of the API, for the header ``Location``."""
        return "/".join((self.services.deps.prefix + ROOT, *map(quote, parts)))


def _on_the_platform(_call: Call) -> Scope:
    return PLATFORM


Run = Callable[[Call], Awaitable[Response | StreamedResponse]]


@dataclass(frozen=True, slots=True)
class Operation:
    """See the module. As a decorator it takes id, summary and ``run`` from the function below it.

    Attributes:
        id: unique, in snake case; also the label in metrics.
        permission: that the caller needs in the project of the path, else in ``scope``; empty where
            whoever may call sees and changes what is theirs.
        others: the permission that opens it for work of somebody else.
        scope: what a call is about; left out: the platform; ``None``: any scope will do.
        path: template below the API's root, such as ``/projects/{project}``.
        project_in: where the project that ``member`` is about is named, beside the path.
        answers: what each success status carries: a msgspec type, or ``None`` for no content.
        problems: statuses it may be refused with, beside those that its access and input imply.
        body: the request; of a PATCH, what its changes are to.
        other_media: types of content that it answers with instead, as the caller asks.
        templated: templates fill what its body leaves open, before it is validated.
        raw_bytes: it takes bytes as they are, at most so many, instead of a ``body``.
        also_scope: a scope that opens it as well.
        for_jobs: jobs may call it with their token, for their user (see ``principals.jobs``).
        rooted: lies beside the versioned API, not below it.
        websocket: speaks websocket; ``run`` is not used.
        audited: whether the audit log tells of it; ``None``: as people's changes are.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    _: KW_ONLY
    access: AdmittedCallers
    answers: Mapping[int, Any]
    permission: str = ""
    others: str = "workloads:manage"
    scope: Callable[[Call], Scope | None] = _on_the_platform
    id: str = ""
    summary: str = ""
    run: Run | None = None
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    templated: bool = False
    raw_bytes: int = 0
    project_in: Literal["path", "body", "query"] = "path"
    problems: Sequence[int] = ()
    media: str = "application/json"
    other_media: Sequence[str] = ()
    headers: Sequence[str] = ()
    also_scope: str = ""
    for_jobs: bool = False
    rooted: bool = False
    websocket: bool = False
    audited: bool | None = None

    @property
    def in_audit_log(self) -> bool:
        """Whether it gets an entry; by default if it is no reading, nor what programs report."""
        if self.audited is not None:
            return self.audited
        reports = (AdmittedCallers.TASK, AdmittedCallers.GATEWAY, AdmittedCallers.NODE)
        return self.method != "GET" and self.access not in reports

    def __call__(self, run: Run) -> Self:
        """An operation carried out by ``run``: its name is the id, its docstring the summary."""
        summary = (inspect.getdoc(run) or "").rstrip(".")
        return replace(self, id=run.__name__, summary=summary, run=run)
