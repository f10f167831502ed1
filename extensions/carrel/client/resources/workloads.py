"""Workloads: submit, list, steer, read their output, history and events."""

import codecs
import uuid
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import Any, Final, Literal, TypeVar, overload

import msgspec

from carrel.client import stream
from carrel.client.terminal import PipedCommand, Terminal
from carrel.client.transport import Transport, segment
from carrel.models import (
    BatchAnswer,
    Event,
    Forecast,
    History,
    Limits,
    MetricPoint,
    Remedy,
    Submitted,
    Workload,
    WorkloadPage,
)
from carrel_schema.kinds import COMPOSITES
from carrel_schema.wire import RemedyList

AnswerT = TypeVar("AnswerT")
PAGE = 500
PARENT_LABEL: Final = "carrel.dev/parent"
"""The label of submitted jobs with the name of the job that submitted them."""


def workload_path(project: str, name: str, part: str = "") -> str:
    """The API path of a workload, or of a part of it."""
    base = f"/workloads/{segment(project)}/{segment(name)}"
    return f"{base}/{part}" if part else base


def ignore() -> None:
    """The default of ``opened``: nothing to do."""


def all_or(index: int | None, workload: Workload) -> int | Literal["all"]:
    """The task whose output to show: ``index``, or by default all of a gang, or of all parts."""
    if index is not None:
        return index
    return "all" if workload.spec.tasks > 1 or workload.spec.kind in COMPOSITES else 0


class WorkloadMethods:
    """Create, read and steer workloads."""

    _transport: Transport

    @overload
    async def create_workload(
        self,
        body: Mapping[str, Any],
        *,
        dry_run: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> Workload: ...
    @overload
    async def create_workload(
        self,
        body: Mapping[str, Any],
        *,
        dry_run: Literal[True],
        idempotency_key: str | None = None,
    ) -> Forecast: ...
    async def create_workload(
        self,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> Workload | Forecast:
        """Submit a workload; ``body`` is the API's (docs/api.md).

        A key made here lets the request be sent again after a lost answer without submitting
        twice. With ``dry_run`` nothing is written and the answer says what would happen.
        """
        if dry_run:
            return await self._transport.ask(
                "POST",
                "/workloads",
                Forecast,
                parameters={"dry_run": True},
                body=body,
                repeatable=True,
            )
        key = idempotency_key or uuid.uuid4().hex
        return await self._transport.ask(
            "POST",
            "/workloads",
            Workload,
            body=body,
            headers={"Idempotency-Key": key},
            repeatable=True,
        )

    async def submit_many(self, bodies: Iterable[Mapping[str, Any]]) -> list[Submitted]:
        """Submit many workloads in as few requests as possible; one answer for each, in order.

        Each body is that of ``create_workload`` with a ``name``. Each is created or refused for
        itself, so look at ``accepted``. Calling again with the same bodies is safe: what is there
        is not created again.

        Raises ``ApiError`` when a request is refused as a whole: a body that is not understood, or
        a project that the caller is not in. What went before it is submitted then.
        """
        answers: list[Submitted] = []
        for batch in split_batches(bodies):
            answer = await self._transport.ask(
                "POST", "/workloads:batch", BatchAnswer, body={"items": batch}, repeatable=True
            )
            answers += answer.items
        return answers

    async def get_workload(self, project: str, name: str) -> Workload:
        """Read a workload."""
        return await self._transport.ask("GET", workload_path(project, name), Workload)

    async def list_workloads(
        self,
        project: str | None = None,
        user: str | None = None,
        phases: Sequence[str] = (),
        kind: str | None = None,
        labels: Mapping[str, str] | None = None,
        *,
        parts: bool = False,
    ) -> list[Workload]:
        """List the workloads that match, over as many pages as it takes.

        With ``parts`` also what the service made for other work: trials, replicas, runs.
        """
        found: list[Workload] = []
        after: str | None = None
        while True:
            page = await self.workload_page(
                project, user, phases, kind, labels, parts=parts, after=after, limit=PAGE
            )
            found += page.items
            after = page.next
            if after is None:
                return found

    async def workload_page(
        self,
        project: str | None = None,
        user: str | None = None,
        phases: Sequence[str] = (),
        kind: str | None = None,
        labels: Mapping[str, str] | None = None,
        *,
        parts: bool = False,
        search: str = "",
        newest_first: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> WorkloadPage:
        """Read a page of the workloads that match, in the order of creation or reversed.

        ``search`` stands in the name or in the user's; ``after``: the ``next`` of the page before.
        """
        return await self._transport.ask(
            "GET",
            "/workloads",
            WorkloadPage,
            parameters={
                "project": project,
                "user": user,
                "phase": list(phases),
                "kind": kind,
                "parts": parts or None,
                "label": [f"{key}={value}" for key, value in (labels or {}).items()],
                "search": search or None,
                "order": "newest" if newest_first else None,
                "limit": limit,
                "after": after or None,
            },
        )

    async def delete_workload(
        self, project: str, name: str, *, children: bool = False
    ) -> Workload | None:
        """End and remove a workload; ``None`` when the answer is empty.

        With ``children`` also all live work that it submitted, and that those did.
        """
        content = await self._transport.send(
            "DELETE", workload_path(project, name), parameters={"children": children or None}
        )
        return self._transport.read(content, Workload) if content else None

    async def children(self, workload: Workload) -> list[Workload]:
        """The workloads that a job submitted itself, in the order of creation."""
        found = await self.list_workloads(workload.project, labels={PARENT_LABEL: workload.name})
        above = [*workload.spec.ancestors, workload.uid]
        return [one for one in found if one.spec.ancestors == above and not one.spec.owner]

    async def dependents(self, workload: Workload) -> list[Workload]:
        """The workloads of the project that wait for this one (`--after`), the newest only."""
        page = await self.workload_page(
            workload.project, phases=("pending",), newest_first=True, limit=PAGE
        )
        return [one for one in page.items if any(way.uid == workload.uid for way in one.spec.after)]

    async def update(self, project: str, name: str, changes: Mapping[str, Any]) -> Workload:
        """Change a workload; ``changes`` is the API's merge patch (docs/api.md).

        Raises ``ApiError`` with the code ``cannot_change`` for what cannot change now.
        """
        path = workload_path(project, name)
        return await self._transport.ask("PATCH", path, Workload, body=dict(changes))

    async def suspend(self, project: str, name: str) -> Workload:
        """Stop a workload and keep its definition."""
        return await self._post(project, name, "suspend", Workload, repeatable=True)

    async def resume(self, project: str, name: str) -> Workload:
        """Queue a suspended workload again."""
        return await self._post(project, name, "resume", Workload, repeatable=True)

    @overload
    async def rerun(
        self,
        project: str,
        name: str,
        changes: Mapping[str, Any] | None = None,
        *,
        dry_run: Literal[False] = False,
    ) -> Workload: ...
    @overload
    async def rerun(
        self,
        project: str,
        name: str,
        changes: Mapping[str, Any] | None = None,
        *,
        dry_run: Literal[True],
    ) -> Forecast: ...
    async def rerun(
        self,
        project: str,
        name: str,
        changes: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> Workload | Forecast:
        """Submit a workload's request again, with its files and secrets.

        ``changes`` are fields of the API's workload that are to be otherwise (``None``: their
        default); without a ``name`` the new one is numbered.
        """
        path, body = workload_path(project, name, "rerun"), {"changes": dict(changes or {})}
        if dry_run:
            return await self._transport.ask(
                "POST", path, Forecast, parameters={"dry_run": True}, body=body, repeatable=True
            )
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return await self._transport.ask(
            "POST", path, Workload, body=body, headers=headers, repeatable=True
        )

    async def extend(self, project: str, name: str) -> Limits:
        """Keep a workspace for the time that its project allows; returns the limits then."""
        return await self._post(project, name, "extend", Limits)

    async def claim(
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
        """Claim an allocated workspace, with its command (for the spawner only).

        ``external``: the caller runs the server itself at the workload's place.
        """
        body: dict[str, Any] = {
            "command": list(command),
            "environment": dict(environment or {}),
            "secret_environment": dict(secret_environment or {}),
            "working_dir": working_dir,
            "port": port,
        }
        if external:
            body["external"] = True
        return await self._post(project, name, "claim", Workload, body=body)

    async def report(self, project: str, name: str, report: Mapping[str, Any]) -> None:
        """Report progress and metrics of a job (docs/api.md, Reports)."""
        path = workload_path(project, name, "reports")
        await self._transport.send("POST", path, body=report)

    async def logs(
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
    ) -> AsyncGenerator[str, None]:
        """The output of a task in pieces of text, as they come.

        Args:
            project: the workload's project.
            name: the workload's name.
            follow: go on until the task ends.
            tail: only the last so many lines.
            since: only what was written after this time (epoch seconds).
            timestamps: put the time before each line.
            attempt: which run, the latest by default.
            index: which task; ``all``: of every task, and of an experiment, an endpoint or a
                schedule that of its parts, each line behind the name of what wrote it.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parameters = {
            "follow": follow or None,
            "tail": tail,
            "since": since,
            "timestamps": timestamps or None,
            "attempt": attempt,
            "index": index or None,
        }
        path = workload_path(project, name, "logs")
        async with self._transport.stream(path, parameters=parameters) as response:
            async for piece in response.content.iter_any():
                if text := decoder.decode(piece):
                    yield text
        if rest := decoder.decode(b"", final=True):
            yield rest

    async def history(self, project: str, name: str) -> History:
        """The changes of a workload's phase and the decisions about it."""
        return await self._transport.ask("GET", workload_path(project, name, "history"), History)

    async def remedies(self, project: str, name: str) -> list[Remedy]:
        """The changes that would unblock a waiting workload, each one tried; not asked for again.

        Raises ``ApiError``: 409 for work that does not wait, 429 for too many questions.
        """
        path = workload_path(project, name, "remedies")
        found = await self._transport.ask("GET", path, RemedyList, repeatable=False)
        return list(found.items)

    async def metrics(
        self, project: str, name: str, *, names: Sequence[str] = (), max_points: int | None = None
    ) -> dict[str, list[MetricPoint]]:
        """The metrics that a workload reported, by name."""
        return await self._transport.ask(
            "GET",
            workload_path(project, name, "metrics"),
            dict[str, list[MetricPoint]],
            parameters={"name": list(names), "max_points": max_points},
        )

    async def events(
        self,
        project: str | None = None,
        name: str | None = None,
        *,
        kind: str | None = None,
        opened: Callable[[], object] = ignore,
    ) -> AsyncGenerator[Event, None]:
        """Events of one workload, or of all visible ones, without an end; reconnects by itself.

        ``opened`` is called for each connection: later changes are among the events.
        Raises ``ApiError`` and ``NotSignedIn`` when refused, ``Unreachable`` when the server was
        never there.
        """
        if project is not None and name is not None:
            path, parameters = workload_path(project, name, "events"), {}
        else:
            path, parameters = "/events", {"project": project, "kind": kind}
        async with aclosing(stream.events(self._transport, path, parameters, opened)) as found:
            async for event in found:
                yield event

    async def exec(
        self, project: str, name: str, command: Sequence[str] = (), *, index: int = 0
    ) -> Terminal:
        """Open a terminal in a running task, with a shell or the command."""
        path = workload_path(project, name, "exec")
        parameters = {"command": list(command), "index": index or None}
        socket = await self._transport.websocket(path, parameters=parameters)
        return Terminal(socket)

    async def run_command(
        self, project: str, name: str, command: Sequence[str], *, index: int = 0
    ) -> PipedCommand:
        """Run a command beside a running task, with pipes in place of a terminal."""
        path = workload_path(project, name, "run")
        parameters = {"command": list(command), "index": index or None}
        return PipedCommand(await self._transport.websocket(path, parameters=parameters))

    async def _post(
        self,
        project: str,
        name: str,
        verb: str,
        answer: type[AnswerT],
        *,
        body: Any = None,
        repeatable: bool = False,
    ) -> AnswerT:
        path = workload_path(project, name, verb)
        return await self._transport.ask("POST", path, answer, body=body, repeatable=repeatable)


ACTIONS: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "delete": WorkloadMethods.delete_workload,
    "suspend": WorkloadMethods.suspend,
    "resume": WorkloadMethods.resume,
}
"""The client's method for each button, by verb."""


MOST_ITEMS = 1000
# The API takes 4 MiB; brackets and commas come on top of the items.
MOST_BYTES = 4 * 2**20 - 4096


def split_batches(bodies: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Split bodies into lists, each of which fits one request."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for body in bodies:
        length = len(msgspec.json.encode(body)) + 1
        if batch and (len(batch) == MOST_ITEMS or size + length > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += length
    if batch:
        yield batch
