"""``map``: a function over many items, each call a small job of its own."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from carrel.client.call_parts import LABEL, Body, Outcome, bar, call_bodies, in_order
from carrel.client.loop import BackgroundLoop
from carrel.errors import ApiError, BadSetting, CarrelError
from carrel.models import Submitted, Workload
from carrel.results import NoResult

if TYPE_CHECKING:
    from carrel.client.aio import AsyncClient

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AT_ONCE: Final = 16


class Calls:
    """Calls a function for many items."""

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
        """Call it for each item in a job of its own; the results, in the order of the items.

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
        bodies = await _bodies(self, function, list(items), project, name, gpus, fields)
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
        """Submit calls (see ``call_bodies``); each outcome as it comes. Cancels what is left."""
        client = cast("AsyncClient", self)
        places = {body["name"]: index for index, body in enumerate(bodies)}
        left: dict[str, str] | None = None
        try:
            answers = await client.submit_many(bodies)
            left = {}
            for answer in answers:
                if answer.accepted:
                    left[answer.name] = answer.project
                else:
                    yield Outcome(places[answer.name], answer.name, error=_refusal(answer))
            waited = client.as_completed([(project, one) for one, project in left.items()])
            async with aclosing(waited) as found:
                async for workload in found:
                    del left[workload.name]
                    outcome = await _outcome(client, workload, places[workload.name])
                    if outcome.error is None and not keep:
                        await _remove(client, workload.project, workload.name)
                    yield outcome
        finally:
            await _cancel(client, await _submitted(client, bodies) if left is None else left)


class PlainCalls:
    """``Calls`` for plain code; see there."""

    aio: "AsyncClient"
    loop: BackgroundLoop

    def map(
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
        """Call it for each item in a job of its own; the results, in the order of the items."""
        bodies = self.loop.run(
            _bodies(self.aio, function, list(items), project, name, gpus, fields)
        )
        outcomes: list[Outcome] = []
        found = self.outcomes(bodies, keep=keep)
        with bar(len(bodies), show=progress) as shown, closing(found):
            for outcome in found:
                outcomes.append(outcome)
                shown.update()
        return in_order(outcomes, return_exceptions=return_exceptions)

    def outcomes(
        self, bodies: Sequence[Mapping[str, Any]], *, keep: bool = False
    ) -> Generator[Outcome, None, None]:
        """Submit calls; each outcome as it comes."""
        return self.loop.iterate(self.aio.outcomes(bodies, keep=keep))


async def _bodies(
    client: Any,
    function: Callable[[Any], Any],
    items: Sequence[Any],
    project: str | None,
    name: str | None,
    gpus: float,
    fields: Mapping[str, Any],
) -> list[Body]:
    where = project or client.settings.project or (await client.whoami()).default_project
    if not where:
        raise BadSetting("Which project? Name one: carrel.map(function, items, project=...).")
    called = name or f"map-{secrets.token_hex(3)}"
    return call_bodies(function, items, project=where, name=called, gpus=gpus, fields=fields)


async def _outcome(client: "AsyncClient", workload: Workload, index: int) -> Outcome:
    """What a call that ended handed back."""
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


async def _remove(client: "AsyncClient", project: str, name: str) -> None:
    try:
        await client.delete_workload(project, name)
    except ApiError as error:
        if error.status not in (404, 409):
            raise


async def _submitted(client: "AsyncClient", bodies: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What arrived of a submission whose answer did not; known by the label of this very call."""
    if not bodies:
        return {}
    found = await client.list_workloads(
        bodies[0]["project"], labels={LABEL: bodies[0]["labels"][LABEL]}
    )
    return {workload.name: workload.project for workload in found}


async def _cancel(client: "AsyncClient", left: Mapping[str, str]) -> None:
    """Remove jobs that nobody waits for any more, some at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(project: str, name: str) -> None:
        async with gate:
            await _remove(client, project, name)

    await asyncio.gather(*(one(project, name) for name, project in left.items()))
