"""Requests, latency and errors of each endpoint for Prometheus."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LABELS: Final = ("project", "endpoint")
_CLASSES: Final = ("gone", "1xx", "2xx", "3xx", "4xx", "5xx")

disable_created_metrics()  # type: ignore[no-untyped-call]


class EndpointMetrics:
    """The metrics of one gateway, with labels ``project`` and ``endpoint``."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        self._requests = Counter(
            "carrel_endpoint_requests",
            "Requests by the class of their answer's status; `gone` if the caller left before",
            (*_LABELS, "status"),
            registry=own,
        )
        self._latency = Histogram(
            "carrel_endpoint_latency_seconds",
            "Seconds from a request to the beginning of its answer",
            _LABELS,
            registry=own,
            buckets=BUCKETS,
        )
        self._in_flight = Gauge(
            "carrel_endpoint_in_flight",
            "Requests that are being answered or held",
            _LABELS,
            registry=own,
        )
        self._ready = Gauge(
            "carrel_endpoint_ready_targets", "Servers that take requests", _LABELS, registry=own
        )
        self._counted: set[tuple[str, str]] = set()

    def observe(self, project: str, endpoint: str, status: int, seconds: float) -> None:
        """A request was answered; ``status`` 0: nobody was there any more to be answered."""
        self._counted.add((project, endpoint))
        self._requests.labels(project, endpoint, _CLASSES[status // 100]).inc()
        if status:
            self._latency.labels(project, endpoint).observe(seconds)

    def text(self, now: Iterable[tuple[str, str, int, int]]) -> bytes:
        """The page for Prometheus; the counts of endpoints that have gone are forgotten.

        ``now``: of each endpoint its project, name, requests in flight and ready servers.
        """
        self._in_flight.clear()
        self._ready.clear()
        known = set()
        for project, endpoint, in_flight, ready in now:
            known.add((project, endpoint))
            self._in_flight.labels(project, endpoint).set(in_flight)
            self._ready.labels(project, endpoint).set(ready)
        for project, endpoint in self._counted - known:
            for metric in (self._requests, self._latency):
                metric.remove_by_labels({"project": project, "endpoint": endpoint})
        self._counted &= known
        return generate_latest(self._registry)
