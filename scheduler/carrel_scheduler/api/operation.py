"""One operation of the API: what it takes, who may call it, what it answers.

Operations are data. Routing, access control, the OpenAPI document and the role tests all read the
same table, so none of them can know an operation that the others do not.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from carrel_scheduler.api.access import Access, Visitor
from carrel_scheduler.api.models.fields import Query, Request
from carrel_scheduler.api.models.queries import NoQuery
from carrel_scheduler.api.services import Services
from carrel_scheduler.ledger.objects import Workload


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer; ``content`` is encoded as JSON unless it is bytes already."""

    content: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/json"


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that comes in pieces, each sent when the one before it has left.

    ``eager`` sends the head at once; otherwise the first piece may still be refused.
    """

    pieces: AsyncGenerator[bytes, None]
    media: str
    eager: bool = False


@dataclass(slots=True)
class Call:
    """One authorised, validated call of an operation."""

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


Run = Callable[[Call], Awaitable[Answer | Stream]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """See the module.

    Attributes:
        id: unique, in snake case; also the label in metrics.
        path: template below the API's root, such as ``/projects/{project}``.
        project_in: where the project that ``member`` is about is named, beside the path.
        answers: what each success status carries: a msgspec type, or ``None`` for no content.
        problems: statuses it may be refused with, beside those that its access and input imply.
        also_scope: a scope that opens it as well.
        rooted: lies beside the versioned API, not below it.
        websocket: speaks websocket; ``run`` is not used.
    """

    id: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    access: Access
    summary: str
    answers: Mapping[int, Any]
    run: Run | None = None
    query: type[Query] = NoQuery
    body: type[Request] | None = None
    project_in: Literal["path", "body", "query"] = "path"
    problems: Sequence[int] = ()
    media: str = "application/json"
    headers: Sequence[str] = ()
    also_scope: str = ""
    rooted: bool = False
    websocket: bool = False
