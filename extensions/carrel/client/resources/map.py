"""``map``: a function over many items, each call a small job of its own.

Function and item travel as files of the job, packed by cloudpickle; ``carrel.job.call`` runs them.
"""

import asyncio
import base64
import os
import secrets
import sys
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeVar

from carrel.client.config import Settings
from carrel.client.resources.projects import ProjectMethods
from carrel.client.resources.waiting import WaitMethods
from carrel.errors import ApiError, BadSetting, CarrelError
from carrel.models import Submitted, Workload
from carrel.results import NoResult
from carrel.volumes import in_workspace, mount_folder

MOST_FILE_BYTES: Final = 2**20
LABEL: Final = "carrel.dev/map"
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended: with a value, or with an error."""

    index: int
    name: str
    value: Any = None
    error: BaseException | None = None


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
    packed = _packed("The function", function)
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
            "files": {"function.b85": packed, "item.b85": _packed(f"Item {number}", item)},
        }
        for number, item in enumerate(items, 1)
    ]


def in_order(outcomes: Iterable[Outcome], *, return_exceptions: bool) -> list[Any]:
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


def _packed(what: str, value: object) -> str:
    cloudpickle: Any = import_module("cloudpickle")  # heavy, and it has no types
    try:
        packed = cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        # Objects decide themselves how they are pickled, and raise what they like.
        raise BadSetting(f"{what} cannot be packed: {error}.", code="not_picklable") from error
    text = base64.b85encode(zlib.compress(packed)).decode("ascii")
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


class MapMethods(WaitMethods, ProjectMethods):
    """Call a function for many items."""

    settings: Settings

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
        **fields: Any,
    ) -> list[ResultT]:
        """Call a function for each item in a job of its own; the results in the order of the items.

        Args:
            function: and the items: packed by cloudpickle, at most half a MiB each.
            items: one job each.
            project: where the jobs belong; by default the configured one, or the only one.
            name: of the jobs: ``NAME-1``, ...; by default one of its own for each call of ``map``.
            gpus: of each job.
            progress: show a bar (tqdm).
            return_exceptions: put what calls raised among the results; otherwise the first one, in
                the order of the items, is raised when all calls have ended.
            keep: leave the jobs listed; otherwise those that succeeded are removed.
            fields: further fields of the API's workload (docs/api.md), such as ``memory_bytes``.

        Raises:
            BadSetting: for what cannot be packed.
            CarrelError: when refused or unreachable. Calls that were submitted are cancelled then,
                as they are by an interrupt.
        """
        bodies = await bodies_of(self, function, list(items), project, name, gpus, fields)
        outcomes: list[Outcome] = []
        with bar(len(bodies), show=progress) as shown:
            async with aclosing(self.outcomes(bodies, keep=keep)) as found:
                async for outcome in found:
                    outcomes.append(outcome)
                    shown.update()
        return in_order(outcomes, return_exceptions=return_exceptions)

    async def outcomes(
        self, bodies: Sequence[Mapping[str, Any]], *, keep: bool = False
    ) -> AsyncGenerator[Outcome, None]:
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
                    yield Outcome(places[answer.name], answer.name, error=_refusal(answer))
            waited = self.as_completed([(project, one) for one, project in left.items()])
            async with aclosing(waited) as found:
                async for workload in found:
                    del left[workload.name]
                    outcome = await _outcome(self, workload, places[workload.name])
                    if outcome.error is None and not keep:
                        await _remove(self, workload.project, workload.name)
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
    where = project or client.settings.project or (await client.whoami()).default_project
    if not where:
        raise BadSetting("Which project? Name one: carrel.map(function, items, project=...).")
    called = name or f"map-{secrets.token_hex(3)}"
    return call_bodies(function, items, project=where, name=called, gpus=gpus, fields=fields)


async def _outcome(client: MapMethods, workload: Workload, index: int) -> Outcome:
    """The outcome of a call whose job has ended."""
    try:
        value = await client.result(workload.project, workload.name)
    except NoResult as error:
        reason = workload.status.reason
        why = reason.sentence if reason and reason.sentence else str(error)
        missing = NoResult(f"`{workload.name}` {workload.status.phase} without a result: {why}")
        return Outcome(index, workload.name, error=missing)
    except ApiError as error:
        if error.status != 404:
            raise
        return Outcome(index, workload.name, error=NoResult(f"`{workload.name}` was removed."))
    except Exception as error:  # noqa: BLE001 - whatever the function raised
        return Outcome(index, workload.name, error=error)
    return Outcome(index, workload.name, value)


def _refusal(answer: Submitted) -> CarrelError:
    problem = answer.problem
    if problem is None:
        return CarrelError(f"`{answer.name}` was not taken ({answer.status}).")
    return ApiError(answer.status, problem.code, detail=problem.detail)


async def _remove(client: MapMethods, project: str, name: str) -> None:
    try:
        await client.delete_workload(project, name)
    except ApiError as error:
        if error.status not in (404, 409):
            raise


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
            await _remove(client, project, name)

    await asyncio.gather(*(one(project, name) for name, project in left.items()))
