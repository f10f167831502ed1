"""The live view of an endpoint: its replicas, its requests, and a box for a test request.

``EndpointState`` is pure: workloads in, plain data for the page out.
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import traitlets
from typing_extensions import override

from carrel import wording
from carrel.client import AsyncClient, Client
from carrel.client.shared_events import listening
from carrel.errors import ApiError
from carrel.models import Event, Workload
from carrel.widgets import bundle, static_html
from carrel.widgets.job_state import describe, where
from carrel.widgets.live import WorkView
from carrel_schema.sections import EndpointStatus

SAMPLES: Final = 240


@dataclass(slots=True)
class EndpointState:
    """The endpoint, its replicas and samples over time.

    Attributes:
        samples: time, requests a second, requests in flight and ready replicas, whenever one of
            them changed while somebody looked; oldest first.
    """

    workload: Workload
    gone: bool = False
    replicas: dict[str, Workload] = field(default_factory=dict)
    samples: deque[list[float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    @property
    def phase(self) -> str:
        """The phase that people see; ``deleted`` once it is removed."""
        return "deleted" if self.gone else self.workload.status.phase

    @property
    def status(self) -> EndpointStatus:
        """The endpoint's own part of the status."""
        return self.workload.status.endpoint or EndpointStatus()

    def take(self, event: Event, now: float) -> None:
        """Apply an event of the endpoint or of one of its replicas; ignore others."""
        found = event.workload
        if found.uid == self.workload.uid:
            self.workload, self.gone = found, event.type == "deleted"
            self._sample(now)
        elif found.spec.owner == self.workload.uid:
            if event.type == "deleted":
                self.replicas.pop(found.uid, None)
            else:
                self.replicas[found.uid] = found

    def take_replicas(self, parts: Iterable[Workload]) -> None:
        """Replace the replicas."""
        self.replicas = {part.uid: part for part in parts if part.spec.owner == self.workload.uid}

    def traits(self) -> dict[str, Any]:
        """Plain data for the page; equal while nothing changed."""
        ordered = sorted(self.replicas.values(), key=lambda part: (part.spec.part, part.name))
        return {
            "job": describe(self.workload, self.phase),
            "endpoint": msgspec.to_builtins(self.status),
            "replicas": [_replica(part) for part in ordered],
            "samples": [list(sample) for sample in self.samples],
        }

    def _sample(self, now: float) -> None:
        status = self.status
        values = [status.requests_per_second, float(status.in_flight), float(status.ready)]
        if not self.samples or self.samples[-1][1:] != values:
            self.samples.append([now, *values])


def _replica(part: Workload) -> dict[str, Any]:
    phase = part.status.phase
    return {
        "name": part.name,
        "phase": phase,
        "icon": wording.phase_icon(phase),
        "word": wording.phase_word(phase),
        "where": where(part),
        "gpus": wording.gpus(part.spec.gpus),
        "started_at": part.status.started_at,
        "reason": wording.why(part),
    }


MIME = "application/vnd.carrel.endpoint+json"


class EndpointView(WorkView):
    """State, replicas, requests a second, and a box for a test request.

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
        self._known = EndpointState(workload)
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
                static_html.escape(one["name"]),
                static_html.state(one["phase"], one["icon"], one["word"]),
                static_html.escape(one["where"]),
            ]
            for one in traits["replicas"]
        ]
        body = static_html.job_card(traits["job"], ()) + f"<div>{static_html.escape(said)}</div>"
        return {
            "text/plain": f"{wording.summary(self.workload, time.time())} {said}".strip(),
            "text/html": f"<div>{body}{static_html.table('Replicas', columns, rows)}</div>",
            MIME: {"endpoint": msgspec.to_builtins(self.workload)},
        }
