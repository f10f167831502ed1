"""The live view of an endpoint: its replicas, how much is asked of it, and a box to try it."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec
import traitlets
from typing_extensions import override

from carrel.client import AsyncClient, Client
from carrel.errors import ApiError
from carrel.models import Event, Workload
from carrel.notebook import words
from carrel.widgets import bundle, page
from carrel.widgets.feed import listening
from carrel.widgets.replicas import Endpoint
from carrel.widgets.work import WorkView

MIME = "application/vnd.carrel.endpoint+json"


class EndpointView(WorkView):
    """State, replicas, requests a second, and a request of one's own.

    Attributes:
        endpoint: the endpoint's own part of the status.
        replicas: one mapping for each replica.
        samples: requests a second, requests in flight and ready replicas over time.
    """

    _esm = bundle.module(*bundle.WORK, "curve.js", "tryit.js", "endpoint.js")
    _css = bundle.text("views.css")

    endpoint = traitlets.Dict().tag(sync=True)
    replicas: Any = traitlets.List().tag(sync=True)
    samples: Any = traitlets.List().tag(sync=True)

    def __init__(self, client: Client, workload: Workload) -> None:
        self._known = Endpoint(workload)
        super().__init__(client, **self._known.traits())

    @property
    @override
    def workload(self) -> Workload:
        return self._known.workload

    @property
    @override
    def settled(self) -> bool:
        return self._known.phase in ("failed", "deleted")

    @override
    def present(self) -> Mapping[str, Any]:
        return self._known.traits()

    @override
    async def follow(self) -> None:
        known, client = self._known, self._client.aio
        try:
            async with listening(client, known.workload.project) as events:
                async for event in events:
                    if event is None:
                        await self._ask(client)
                    else:
                        known.take(event, time.time())
                    self.touch()
                    if self.settled:
                        return
        except ApiError as error:
            if error.status != 404:
                raise
            known.gone = True

    async def _ask(self, client: AsyncClient) -> None:
        project, name = self._known.workload.project, self._known.workload.name
        found = await client.get_workload(project, name)
        parts = await client.list_workloads(project=project, kind="replica")
        self._known.take_replicas(parts)
        self._known.take(Event(type="workload", workload=found), time.time())

    @override
    def fallback(self) -> dict[str, Any]:
        traits, status = self._known.traits(), self._known.status
        said = f"{status.ready} of {status.wanted} replicas ready"
        columns = ("Replica", "State", "Where")
        rows = [
            [
                page.escape(one["name"]),
                page.state(one["phase"], one["icon"], one["word"]),
                page.escape(one["where"]),
            ]
            for one in traits["replicas"]
        ]
        body = page.job_card(traits["job"], ()) + f"<div>{page.escape(said)}</div>"
        return {
            "text/plain": f"{words.summary(self.workload, time.time())} {said}".strip(),
            "text/html": f"<div>{body}{page.table('Replicas', columns, rows)}</div>",
            MIME: {"endpoint": msgspec.to_builtins(self.workload)},
        }
