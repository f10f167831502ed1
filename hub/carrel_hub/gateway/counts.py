"""Requests, latency and errors of each endpoint, as Prometheus reads them."""

from collections.abc import Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

MEDIA: Final = CONTENT_TYPE_LATEST
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LABELS: Final = ("project", "endpoint")


class Counts:
    """All metrics of one gateway, with labels ``project`` and ``endpoint``."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._told: set[tuple[str, str, str]] = set()
        self._requests = Counter(
            "carrel_endpoint_requests_total",
            "Requests by the class of their answer's status; `gone` if the caller left before",
            (*_LABELS, "status"),
            registry=self._registry,
        )
        self._latency = Histogram(
            "carrel_endpoint_latency_seconds",
            "Seconds from a request to the beginning of its answer",
            _LABELS,
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._in_flight = Gauge(
            "carrel_endpoint_in_flight",
            "Requests that are being answered or held",
            _LABELS,
            registry=self._registry,
        )
        self._ready = Gauge(
            "carrel_endpoint_ready_targets",
            "Servers that take requests",
            _LABELS,
            registry=self._registry,
        )

    def answered(self, project: str, endpoint: str, status: int, seconds: float) -> None:
        """A request was answered; ``status`` 0: nobody was there any more to be answered."""
        kind = f"{status // 100}xx" if status else "gone"
        self._told.add((project, endpoint, kind))
        self._requests.labels(project, endpoint, kind).inc()
        if status:
            self._latency.labels(project, endpoint).observe(seconds)

    def now(self, project: str, endpoint: str, in_flight: int, ready: int) -> None:
        """What is the case at this moment."""
        self._told.add((project, endpoint, ""))
        self._in_flight.labels(project, endpoint).set(in_flight)
        self._ready.labels(project, endpoint).set(ready)

    def keep_only(self, known: Collection[tuple[str, str]]) -> None:
        """Forget endpoints that have gone."""
        for project, endpoint, kind in [one for one in self._told if one[:2] not in known]:
            if kind:
                self._requests.remove(project, endpoint, kind)
            self._told.discard((project, endpoint, kind))
            for metric in (self._latency, self._in_flight, self._ready):
                metric.remove(project, endpoint)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)
