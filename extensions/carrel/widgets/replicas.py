"""What an endpoint's view knows: workloads in, plain data for the page out. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from carrel.models import Event, Workload
from carrel.notebook import words
from carrel.widgets.story import describe, where
from carrel_schema.sections import EndpointStatus

SAMPLES: Final = 240


@dataclass(slots=True)
class Endpoint:
    """One endpoint so far.

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
        """Its own part of the status."""
        return self.workload.status.endpoint or EndpointStatus()

    def take(self, event: Event, now: float) -> None:
        """An event of the endpoint or of one of its replicas; of others nothing changes."""
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
        """The replicas there are."""
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
        "icon": words.phase_icon(phase),
        "word": words.phase_word(phase),
        "where": where(part),
        "gpus": words.gpus(part.spec.gpus),
        "started_at": part.status.started_at,
        "reason": words.why(part),
    }
