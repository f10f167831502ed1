"""Forwarding: to a server that takes the request, to another one when that does not answer.

A request is tried again elsewhere when it never reached a server, or when repeating it means the
same and nothing was answered yet. How it gets to one server, and the answer back: ``exchanges``.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from carrel_hub.gateway.balancing import LoadBalancer, TooManyHeld, await_capacity
from carrel_hub.gateway.exchanges import Exchange
from carrel_hub.gateway.load_reports import LoadReporter
from carrel_hub.gateway.metrics import EndpointMetrics
from carrel_hub.gateway.responses import not_ready, refusal
from carrel_hub.gateway.routing import RoutedWorkload, RoutingTable
from carrel_hub.gateway.upstream import TargetError

log = logging.getLogger(__name__)

# A request that kills whoever gets it must not reach them all.
MOST_REPEATS: Final = 1
REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class Forwarder:
    """Answers requests with the responses of targets, and counts them."""

    def __init__(
        self,
        table: RoutingTable,
        balancer: LoadBalancer,
        metrics: EndpointMetrics,
        reporter: LoadReporter,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._table, self._balancer = table, balancer
        self._metrics, self._reporter, self._clock = metrics, reporter, clock

    async def forward(self, exchange: Exchange) -> web.StreamResponse:
        """Answer a request that is allowed."""
        workload, begun = exchange.match.workload, self._clock()
        self._reporter.request_began(workload.uid)
        status = 0
        try:
            with self._balancer.request(workload.uid):
                response = await self._answer(exchange)
                status = response.status
                return response
        finally:
            seconds = (exchange.answered_at or self._clock()) - begun
            self._metrics.observe(workload.project, workload.name, status, seconds)
            measured = seconds if exchange.answered_at is not None and status else None
            self._reporter.request_ended(workload.uid, failed=status >= 500, seconds=measured)

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        request, match = exchange.request, exchange.match
        if (request.content_length or 0) > match.route.max_request_bytes:
            return _too_large(exchange)
        try:
            workload = await await_capacity(
                self._table, self._balancer, match.workload, match.route_name
            )
        except TooManyHeld:
            return refusal(
                request,
                429,
                "too_many_held",
                "Too many requests wait for the first server of this endpoint already.",
                retry_after=5,
            )
        if workload is None or not workload.targets.get(match.route_name):
            return not_ready(request, workload or match.workload)
        return await self._try_targets(exchange, workload)

    async def _try_targets(
        self, exchange: Exchange, workload: RoutedWorkload
    ) -> web.StreamResponse:
        tried: set[str] = set()
        repeats = 0
        error: TargetError | None = None
        while True:
            known = self._table.find(workload.project, workload.name) or workload
            targets = known.targets.get(exchange.match.route_name, ())
            target = self._balancer.choose(workload.uid, targets, tried)
            if target is None:
                return _unreachable(exchange, workload, error)
            tried.add(target.uid)
            try:
                with self._balancer.at(workload.uid, target):
                    return await exchange.attempt(target)
            except TargetError as failure:
                error = failure
                log.info("%s does not answer: %s", target.base, failure)
                if exchange.too_large:
                    return _too_large(exchange)
                if failure.timed_out:
                    return _timed_out(exchange)
                if not failure.sent:
                    continue
                repeats += 1
                if repeats > MOST_REPEATS or not _may_repeat(exchange.request):
                    return refusal(
                        exchange.request,
                        502,
                        "target_broke_off",
                        "The server hung up before it answered. The request may have been carried "
                        "out, so it was not sent again.",
                    )


def _may_repeat(request: web.Request) -> bool:
    """Whether the request can be repeated without a second effect."""
    return request.method in REPEATABLE and not request.body_exists


def _too_large(exchange: Exchange) -> web.Response:
    most = exchange.match.route.max_request_bytes
    size = f"{most / 2**20:g} MiB" if most >= 2**20 else f"{most:,} bytes"
    detail = f"A request to this endpoint may have at most {size} (its `max_request_bytes`)."
    return refusal(exchange.request, 413, "request_too_large", detail)


def _timed_out(exchange: Exchange) -> web.Response:
    seconds = f"{exchange.match.route.timeout_seconds:g} s"
    detail = f"The server did not begin to answer within {seconds} (its `timeout_seconds`)."
    return refusal(exchange.request, 504, "target_timed_out", detail)


def _unreachable(
    exchange: Exchange, workload: RoutedWorkload, error: TargetError | None
) -> web.Response:
    if error is None:
        return not_ready(exchange.request, workload)
    return refusal(
        exchange.request,
        503,
        "target_unreachable",
        f"No server of {workload.project}/{workload.name} accepts connections at its port now; it "
        "may have just started, or ended.",
        retry_after=2,
    )
