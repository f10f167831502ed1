"""``map``: a function over many items, run by workers that stay (``warm_map``).

Where each call is to be a job of its own (``warm=False``), function and item travel as files of the
job, packed by cloudpickle; ``carrel.job.call`` runs them.
"""

import asyncio
import base64
import os
import secrets
import sys
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from carrel.client.config import ClientSettings
from carrel.client.resources.projects import ProjectMethods
from carrel.client.resources.warm_map import (
    LABEL,
    CallOutcome,
    MapOrder,
    WarmMapMethods,
    files_of,
    map_body,
    packed,
    remove,
)
from carrel.errors import ApiError, BadSetting, CarrelError
from carrel.models import Submitted, Workload
from carrel.results import NoResult
from carrel.volumes import in_workspace, mount_folder

MOST_FILE_BYTES: Final = 2**20
DEFAULT_WORKERS: Final = 8
MOST_WORKERS: Final = 1000
Body = dict[str, Any]


def call_bodies(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    project: str,
    name: str,
    gpus: float = 0,
    fields: Mapping[str, Any] | None = None,
) -> list[Body]:
    """The requests of calls. Raises ``BadSetting`` for what cannot be packed."""
    packed = _file("The function", function)
    given = dict(fields or {})
    environment = {"PYTHONUNBUFFERED": "1", **given.pop("environment", {})}
    labels = {**given.pop("labels", {}), LABEL: secrets.token_hex(8)}
    common: Body = {
        "kind": "training",
        "project": project,
        "command": [sys.executable, "-m", "carrel.job.call", os.getcwd()],  # noqa: PTH109 - a string
        "environment": environment,
        "labels": labels,
        "gpus": gpus,
        "backoff_limit": 0,
        **given,
    }
    if in_workspace():
        mount_folder(common, os.getcwd())  # noqa: PTH109 - as in the command
    return [
        {
            **common,
            "name": f"{name}-{number}",
            "files": {"function.b85": packed, "item.b85": _file(f"Item {number}", item)},
        }
        for number, item in enumerate(items, 1)
    ]


def in_order(outcomes: Iterable[CallOutcome], *, return_exceptions: bool) -> list[Any]:
    """Values in the order of the items; raises the first error unless errors are wanted, too."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.index)
    if not return_exceptions:
        for outcome in ordered:
            if outcome.error is not None:
                outcome.error.add_note(f"Item {outcome.index + 1} of carrel.map: {outcome.name}.")
                raise outcome.error
    return [outcome.value if outcome.error is None else outcome.error for outcome in ordered]


def bar(total: int, *, show: bool) -> Any:
    """A progress bar: a widget in a notebook, text elsewhere, silent without ``show``."""
    from tqdm.auto import tqdm

    return tqdm(total=total, unit="job", disable=not show)


def _file(what: str, value: object) -> str:
    """A value as a file of a job. Raises ``BadSetting``."""
    text = base64.b85encode(zlib.compress(packed(what, value))).decode("ascii")
    if len(text) > MOST_FILE_BYTES // 2:
        size = len(text) / MOST_FILE_BYTES
        raise BadSetting(
            f"{what} takes {size:.1f} MiB, more than half a MiB; save large data to a file and "
            "hand over its path.",
            code="too_large",
        )
    return text


ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AT_ONCE: Final = 16


class MapMethods(WarmMapMethods, ProjectMethods):
    """Call a function for many items."""

    settings: ClientSettings

    async def map(
        self,
        function: Callable[[ItemT], ResultT],
        items: Iterable[ItemT],
        *,
        project: str | None = None,
        name: str | None = None,
        gpus: float = 0,
        progress: bool = True,
        return_exceptions: bool = False,
        keep: bool = False,
        warm: bool = True,
        workers: int = DEFAULT_WORKERS,
        **fields: Any,
    ) -> list[ResultT]:
        """Call a function for each item; the results in the order of the items.

        Workers that stay call it for one item after the other: one process start each, and as many
        at once as the project has room for. One call that raises, or whose process dies, is the
        failure of that item alone. What a preempted worker had begun is begun again.

        Args:
            function: and the items: packed by cloudpickle; with ``warm=False`` half a MiB each.
            items: what it is called for.
            project: where the work belongs; by default the configured one, or the only one.
            name: of the map; its workers are ``NAME-w0``, ...; by default one of its own for each
                call of ``map``. With ``warm=False`` the jobs are ``NAME-1``, ...
            gpus: of each worker.
            progress: show a bar (tqdm).
            return_exceptions: put what calls raised among the results; otherwise the first one, in
                the order of the items, is raised when all calls have ended.
            keep: leave the map listed, with the record and log of each item; otherwise it is
                removed when all succeeded.
            warm: ``False``: each call is a job of its own, in a process of its own.
            workers: how many calls at once, at most; of no effect with ``warm=False``.
            fields: further fields of the API's workload (docs/api.md), such as ``memory_bytes``.

        Raises:
            BadSetting: for what cannot be packed.
            CarrelError: when refused or unreachable. Calls that were submitted are cancelled then,
                as they are by an interrupt.
        """
        calls = list(items)
        if warm:
            order = await order_of(self, function, calls, project, name, gpus, workers, fields)
            made = self.warm_outcomes(order, keep=keep)
        else:
            bodies = await bodies_of(self, function, calls, project, name, gpus, fields)
            made = self.outcomes(bodies, keep=keep)
        outcomes: list[CallOutcome] = []
        with bar(len(calls), show=progress) as shown:
            async with aclosing(made) as found:
                async for outcome in found:
                    outcomes.append(outcome)
                    shown.update()
        return in_order(outcomes, return_exceptions=return_exceptions)

    async def outcomes(
        self, bodies: Sequence[Mapping[str, Any]], *, keep: bool = False
    ) -> AsyncGenerator[CallOutcome, None]:
        """Submit calls and yield outcomes as jobs end; cancels the rest when closed."""
        places = {body["name"]: index for index, body in enumerate(bodies)}
        left: dict[str, str] | None = None
        try:
            answers = await self.submit_many(bodies)
            left = {}
            for answer in answers:
                if answer.accepted:
                    left[answer.name] = answer.project
                else:
                    yield CallOutcome(places[answer.name], answer.name, error=_refusal(answer))
            waited = self.as_completed([(project, one) for one, project in left.items()])
            async with aclosing(waited) as found:
                async for workload in found:
                    del left[workload.name]
                    outcome = await _outcome(self, workload, places[workload.name])
                    if outcome.error is None and not keep:
                        await remove(self, workload.project, workload.name)
                    yield outcome
        finally:
            await _cancel(self, await _submitted(self, bodies) if left is None else left)


async def bodies_of(
    client: MapMethods,
    function: Callable[[Any], Any],
    items: Sequence[Any],
    project: str | None,
    name: str | None,
    gpus: float,
    fields: Mapping[str, Any],
) -> list[Body]:
    """The requests of a ``map`` call. Raises ``BadSetting`` without a project."""
    where, called = await _place_of(client, project), name or _new_name()
    return call_bodies(function, items, project=where, name=called, gpus=gpus, fields=fields)


async def order_of(
    client: MapMethods,
    function: Callable[[Any], Any],
    items: Sequence[Any],
    project: str | None,
    name: str | None,
    gpus: float,
    workers: int,
    fields: Mapping[str, Any],
) -> MapOrder:
    """A ``map`` call for workers. Raises ``BadSetting``."""
    if not 1 <= workers <= MOST_WORKERS:
        raise BadSetting(f"`workers` is {workers}; a number from 1 to {MOST_WORKERS} is right.")
    where, called = await _place_of(client, project), name or _new_name()
    body = map_body(len(items), where, called, gpus, workers, fields)
    return MapOrder(body, files_of(function, items))


async def _place_of(client: MapMethods, project: str | None) -> str:
    where = project or client.settings.project or (await client.whoami()).default_project
    if not where:
        raise BadSetting("Which project? Name one: carrel.map(function, items, project=...).")
    return where


def _new_name() -> str:
    return f"map-{secrets.token_hex(3)}"


async def _outcome(client: MapMethods, workload: Workload, index: int) -> CallOutcome:
    """The outcome of a call whose job has ended."""
    try:
        value = await client.result(workload.project, workload.name)
    except NoResult as error:
        reason = workload.status.reason
        why = reason.sentence if reason and reason.sentence else str(error)
        missing = NoResult(f"`{workload.name}` {workload.status.phase} without a result: {why}")
        return CallOutcome(index, workload.name, error=missing)
    except ApiError as error:
        if error.status != 404:
            raise
        return CallOutcome(index, workload.name, error=NoResult(f"`{workload.name}` was removed."))
    except Exception as error:  # noqa: BLE001 - whatever the function raised
        return CallOutcome(index, workload.name, error=error)
    return CallOutcome(index, workload.name, value)


def _refusal(answer: Submitted) -> CarrelError:
    problem = answer.problem
    if problem is None:
        return CarrelError(f"`{answer.name}` was not taken ({answer.status}).")
    return ApiError(answer.status, problem.code, detail=problem.detail)


async def _submitted(client: MapMethods, bodies: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The jobs of a submission whose answer was lost, found by the label of this call."""
    if not bodies:
        return {}
    found = await client.list_workloads(
        bodies[0]["project"], labels={LABEL: bodies[0]["labels"][LABEL]}
    )
    return {workload.name: workload.project for workload in found}


async def _cancel(client: MapMethods, left: Mapping[str, str]) -> None:
    """Remove jobs that are no longer waited for, ``AT_ONCE`` at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(project: str, name: str) -> None:
        async with gate:
            await remove(client, project, name)

    await asyncio.gather(*(one(project, name) for name, project in left.items()))
