"""Requests, latency and errors of each endpoint, as Prometheus reads them.

Counted in plain numbers, as it happens with every request; made into metrics when they are read.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from typing_extensions import override

MEDIA: Final = CONTENT_TYPE_LATEST
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BOUNDS: Final = (*map(floatToGoString, BUCKETS), "+Inf")
_CLASSES: Final = ("gone", "1xx", "2xx", "3xx", "4xx", "5xx")
_LABELS: Final = ("project", "endpoint")


@dataclass(slots=True)
class _Endpoint:
    """``took`` counts answers by bucket; ``now`` is requests in flight and ready servers."""

    by_class: list[int] = field(default_factory=lambda: [0] * len(_CLASSES))
    took: list[int] = field(default_factory=lambda: [0] * len(_BOUNDS))
    seconds: float = 0.0
    now: tuple[int, int] | None = None


class Counts(Collector):
    """All metrics of one gateway, with labels ``project`` and ``endpoint``."""

    def __init__(self) -> None:
        self._endpoints: dict[tuple[str, str], _Endpoint] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def answered(self, project: str, endpoint: str, status: int, seconds: float) -> None:
        """A request was answered; ``status`` 0: nobody was there any more to be answered."""
        found = self._of(project, endpoint)
        found.by_class[status // 100] += 1
        if status:
            found.took[bisect_left(BUCKETS, seconds)] += 1
            found.seconds += seconds

    def now(self, project: str, endpoint: str, in_flight: int, ready: int) -> None:
        """What is the case at this moment."""
        self._of(project, endpoint).now = in_flight, ready

    def keep_only(self, known: Collection[tuple[str, str]]) -> None:
        """Forget endpoints that have gone."""
        for key in [one for one in self._endpoints if one not in known]:
            del self._endpoints[key]

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)

    @override
    def collect(self) -> Iterator[Metric]:
        """Of ``prometheus_client``."""
        requests = CounterMetricFamily(
            "carrel_endpoint_requests",
            "Requests by the class of their answer's status; `gone` if the caller left before",
            labels=(*_LABELS, "status"),
        )
        latency = HistogramMetricFamily(
            "carrel_endpoint_latency_seconds",
            "Seconds from a request to the beginning of its answer",
            labels=_LABELS,
        )
        in_flight = GaugeMetricFamily(
            "carrel_endpoint_in_flight",
            "Requests that are being answered or held",
            labels=_LABELS,
        )
        ready = GaugeMetricFamily(
            "carrel_endpoint_ready_targets", "Servers that take requests", labels=_LABELS
        )
        for key, found in sorted(self._endpoints.items()):
            for kind, count in zip(_CLASSES, found.by_class, strict=True):
                if count:
                    requests.add_metric((*key, kind), count)
            if sum(found.took):
                latency.add_metric(key, _cumulated(found.took), found.seconds)
            if found.now is not None:
                in_flight.add_metric(key, found.now[0])
                ready.add_metric(key, found.now[1])
        yield from (requests, latency, in_flight, ready)

    def _of(self, project: str, endpoint: str) -> _Endpoint:
        found = self._endpoints.get((project, endpoint))
        if found is None:
            found = self._endpoints[project, endpoint] = _Endpoint()
        return found


def _cumulated(counts: list[int]) -> list[tuple[str, float]]:
    total, found = 0, []
    for bound, count in zip(_BOUNDS, counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
