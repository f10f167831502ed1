"""Options of endpoints, and of every port that people reach through the gateway."""

from functools import partial
from typing import Final

from carrel.options import values
from carrel.options.option import Option, Surface

GROUP, ROUTES = "Endpoints", "Ports"
INFERENCE: Final = frozenset({"inference"})
LISTENING: Final = frozenset({"training", "distributed", "workspace", "inference"})
whole = partial(values.whole, 1)

ENDPOINTS: Final = (
    Option("inference", "Serve: replicas that answer requests, never preempted, within the "
           "guaranteed quota.", GROUP, kinds=INFERENCE, surfaces=Surface.CLI),
    Option("function", "The function of the cell to serve; by default predict.", GROUP,
           values.text("NAME"), kinds=INFERENCE, surfaces=Surface.MAGIC),
    Option("replicas", "So many replicas, always.", GROUP, whole(1000),
           ("inference.min_replicas", "inference.max_replicas"), INFERENCE, default=1),
    Option("min-replicas", "Never fewer; 0 allows none while nobody asks.", GROUP,
           values.whole(0, 1000), ("inference.min_replicas",), INFERENCE, default=1),
    Option("max-replicas", "Never more.", GROUP, whole(1000), ("inference.max_replicas",),
           INFERENCE, default=1),
    Option("in-flight", "As many requests at once as one replica should have.", GROUP,
           whole(100_000), ("inference.in_flight_per_replica",), INFERENCE, default=8),
    Option("readiness-path", "Answers 2xx or 3xx once a replica can serve; without it, its port "
           "accepts.", GROUP, values.text("PATH"), ("inference.readiness_path",), INFERENCE,
           default=""),
    Option("startup-timeout", "A replica that is not ready by then has failed.", GROUP,
           values.span(1), ("inference.startup_seconds",), INFERENCE, default=600.0),
    Option("scale-down-after", "Without requests for so long it goes down to its minimum.", GROUP,
           values.span(1), ("inference.idle_seconds",), INFERENCE, default=300.0),
    Option("drain", "How long a replica that goes may finish its requests.", GROUP, values.span(),
           ("inference.drain_seconds",), INFERENCE, default=30.0),
)  # fmt: skip

PORTS: Final = (
    Option("port", "A port that the command listens on, reached through the gateway; 0: one is "
           "chosen and told as PORT, as always for endpoints; NAME=PORT for several.", ROUTES,
           values.ROUTE, ("routes[].port", "routes[].name"), LISTENING, many="list", default=0),
    Option("access", "Who may come in: you, the project, or everyone with an account.", ROUTES,
           values.choice("user", "project", "everyone"), ("routes[].access",), LISTENING,
           default="user"),
    Option("keep-prefix", "The server sees the gateway's path before its own.", ROUTES,
           fields=("routes[].keep_prefix",), kinds=LISTENING, default=False),
    Option("request-timeout", "How long the server may take to begin an answer.", ROUTES,
           values.span(1), ("routes[].timeout_seconds",), LISTENING, default=300.0),
    Option("max-request", "The largest request: 64M.", ROUTES, values.REQUEST_SIZE,
           ("routes[].max_request_bytes",), LISTENING, default=64 * 2**20),
    Option("stop-unused", "Stop the work when nobody has come for so long.", ROUTES,
           values.span(1), ("routes[].idle_seconds",), LISTENING - INFERENCE),
)  # fmt: skip
