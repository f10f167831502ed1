"""The synchronous client: the asynchronous one, run in the process's background loop.

Works in scripts, in threads and inside notebooks. Interrupting a call leaves the client usable.
Streams are plain iterators; leaving the ``for`` loop early closes the connection.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, overload

from carrel.client.aio import AsyncClient
from carrel.client.calls import PlainCalls
from carrel.client.departments import PlainDepartments
from carrel.client.endpoints import PlainEndpoints
from carrel.client.experiments import PlainExperiments
from carrel.client.loop import BackgroundLoop, shared
from carrel.client.terminal import Terminal
from carrel.client.transport import Pauses
from carrel.client.waiting import PlainWaiting
from carrel.client.workloads import no_news
from carrel.models import (
    Event,
    Forecast,
    History,
    Identity,
    Limits,
    MetricPoint,
    Node,
    Project,
    ProjectImpact,
    QueueEntry,
    Submitted,
    Usage,
    Workload,
)


def _close(loop: BackgroundLoop, client: AsyncClient) -> None:
    loop.start(client.close())


class Client(PlainWaiting, PlainDepartments, PlainCalls, PlainExperiments, PlainEndpoints):
    """Talks to Carrel; see ``AsyncClient`` for arguments, methods and errors.

    Closes its connections when it is no longer used, or at the end of the process.

    Attributes:
        aio: the asynchronous client behind it; use it only inside ``loop``.
        loop: the event loop, in a thread of its own, where it lives.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        pauses: Pauses | None = None,
    ) -> None:
        self.aio = AsyncClient(url, token, timeout=timeout, pauses=pauses)
        self.settings = self.aio.settings
        self.loop: BackgroundLoop = shared()
        self._finalizer = weakref.finalize(self, _close, self.loop, self.aio)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._finalizer.detach()
        self.loop.run(self.aio.close())

    @overload
    def create_workload(
        self,
        body: Mapping[str, Any],
        *,
        dry_run: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> Workload: ...
    @overload
    def create_workload(
        self,
        body: Mapping[str, Any],
        *,
        dry_run: Literal[True],
        idempotency_key: str | None = None,
    ) -> Forecast: ...
    def create_workload(
        self,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> Workload | Forecast:
        """Submit a workload, or with ``dry_run`` ask what would happen."""
        if dry_run:
            return self.loop.run(self.aio.create_workload(body, dry_run=True))
        return self.loop.run(self.aio.create_workload(body, idempotency_key=idempotency_key))

    def submit_many(self, bodies: Iterable[Mapping[str, Any]]) -> list[Submitted]:
        """Submit many workloads; one answer for each, in their order."""
        return self.loop.run(self.aio.submit_many(bodies))

    def get_workload(self, project: str, name: str) -> Workload:
        """One workload."""
        return self.loop.run(self.aio.get_workload(project, name))

    def list_workloads(
        self,
        project: str | None = None,
        user: str | None = None,
        phases: Sequence[str] = (),
        kind: str | None = None,
        labels: Mapping[str, str] | None = None,
        *,
        parts: bool = False,
    ) -> list[Workload]:
        """All workloads that match; with ``parts`` also trials, replicas and runs."""
        return self.loop.run(
            self.aio.list_workloads(project, user, phases, kind, labels, parts=parts)
        )

    def delete_workload(self, project: str, name: str) -> Workload | None:
        """End and remove it."""
        return self.loop.run(self.aio.delete_workload(project, name))

    def suspend(self, project: str, name: str) -> Workload:
        """Stop it and keep its definition."""
        return self.loop.run(self.aio.suspend(project, name))

    def resume(self, project: str, name: str) -> Workload:
        """Queue it again."""
        return self.loop.run(self.aio.resume(project, name))

    def extend(self, project: str, name: str) -> Limits:
        """Keep a workspace for the time that its project allows."""
        return self.loop.run(self.aio.extend(project, name))

    def claim(
        self,
        project: str,
        name: str,
        *,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        secret_environment: Mapping[str, str] | None = None,
        working_dir: str = "",
        port: int | None = None,
        external: bool = False,
    ) -> Workload:
        """Give a workspace that got its turn its command (the spawner only)."""
        return self.loop.run(
            self.aio.claim(
                project,
                name,
                command=command,
                environment=environment,
                secret_environment=secret_environment,
                working_dir=working_dir,
                port=port,
                external=external,
            )
        )

    def report(self, project: str, name: str, report: Mapping[str, Any]) -> None:
        """Say how a job is going."""
        self.loop.run(self.aio.report(project, name, report))

    def logs(
        self,
        project: str,
        name: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
        attempt: int | None = None,
        index: int | Literal["all"] = 0,
    ) -> Iterator[str]:
        """The output of a task, or of ``all``, in pieces of text, as they come."""
        return self.loop.iterate(
            self.aio.logs(
                project,
                name,
                follow=follow,
                tail=tail,
                since=since,
                timestamps=timestamps,
                attempt=attempt,
                index=index,
            )
        )

    def history(self, project: str, name: str) -> History:
        """Its changes of state and the decisions about it."""
        return self.loop.run(self.aio.history(project, name))

    def metrics(
        self, project: str, name: str, *, names: Sequence[str] = (), max_points: int | None = None
    ) -> dict[str, list[MetricPoint]]:
        """The curves it reported."""
        return self.loop.run(self.aio.metrics(project, name, names=names, max_points=max_points))

    def events(
        self,
        project: str | None = None,
        name: str | None = None,
        *,
        kind: str | None = None,
        opened: Callable[[], object] = no_news,
    ) -> Iterator[Event]:
        """Events of one workload, or of all visible ones, for ever."""
        return self.loop.iterate(self.aio.events(project, name, kind=kind, opened=opened))

    def exec(
        self, project: str, name: str, command: Sequence[str] = (), *, index: int = 0
    ) -> Terminal:
        """Open a terminal beside a running task; its coroutines run in ``loop``."""
        return self.loop.run(self.aio.exec(project, name, command, index=index))

    def whoami(self) -> Identity:
        """Who the token belongs to, and which projects it may use."""
        return self.loop.run(self.aio.whoami())

    def list_projects(self) -> list[Project]:
        """The projects that the caller may see, with their use."""
        return self.loop.run(self.aio.list_projects())

    def get_project(self, project: str) -> Project:
        """One project."""
        return self.loop.run(self.aio.get_project(project))

    def create_project(self, body: Mapping[str, Any]) -> Project:
        """Create one (admins)."""
        return self.loop.run(self.aio.create_project(body))

    @overload
    def update_project(
        self, project: str, changes: Mapping[str, Any], *, dry_run: Literal[False] = False
    ) -> Project: ...
    @overload
    def update_project(
        self, project: str, changes: Mapping[str, Any], *, dry_run: Literal[True]
    ) -> ProjectImpact: ...
    def update_project(
        self, project: str, changes: Mapping[str, Any], *, dry_run: bool = False
    ) -> Project | ProjectImpact:
        """Change fields (admins), or with ``dry_run`` ask what that would do at once."""
        if dry_run:
            return self.loop.run(self.aio.update_project(project, changes, dry_run=True))
        return self.loop.run(self.aio.update_project(project, changes))

    def delete_project(self, project: str) -> None:
        """Remove an empty project (admins)."""
        self.loop.run(self.aio.delete_project(project))

    def members(self, project: str) -> list[str]:
        """The users of a project."""
        return self.loop.run(self.aio.members(project))

    def add_member(self, project: str, user: str) -> None:
        """Let a user into a project (admins)."""
        self.loop.run(self.aio.add_member(project, user))

    def remove_member(self, project: str, user: str) -> None:
        """Take a user out of a project (admins)."""
        self.loop.run(self.aio.remove_member(project, user))

    def nodes(self) -> list[Node]:
        """All nodes with their devices and who holds them."""
        return self.loop.run(self.aio.nodes())

    def node(self, name: str) -> Node:
        """One node."""
        return self.loop.run(self.aio.node(name))

    def queue(self) -> list[QueueEntry]:
        """What waits, in the order of service."""
        return self.loop.run(self.aio.queue())

    def usage(
        self, by: str = "project", *, since: float | None = None, until: float | None = None
    ) -> list[Usage]:
        """Use by ``project``, ``user`` or ``workload``."""
        return self.loop.run(self.aio.usage(by, since=since, until=until))

    def activity(self, server_name: str, activity: Mapping[str, Any]) -> Limits:
        """Give the sign of life of the caller's own workspace."""
        return self.loop.run(self.aio.activity(server_name, activity))
