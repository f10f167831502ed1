"""Options of endpoints, and of every port that people reach through the gateway."""

from typing import Final

from carrel.options import values
from carrel.options.option import Option, Surface, of_field

GROUP, ROUTES = "Endpoints", "Ports"
INFERENCE: Final = frozenset({"inference"})
LISTENING: Final = frozenset({"training", "distributed", "workspace", "inference"})

ENDPOINTS: Final = (
    Option("inference", "Serve: replicas that answer requests, never preempted, within the "
           "guaranteed quota.", GROUP, kinds=INFERENCE, surfaces=Surface.CLI),
    Option("function", "The function of the cell to serve; by default predict.", GROUP,
           values.text("NAME"), kinds=INFERENCE, surfaces=Surface.MAGIC),
    of_field("replicas", GROUP, "inference.min_replicas", "inference.max_replicas",
             text="So many replicas, always.", value=values.whole(1, 1000), kinds=INFERENCE),
    *(of_field(flag, GROUP, f"inference.{name}", shown="PATH", kinds=INFERENCE)
      for flag, name in (
          ("min-replicas", "min_replicas"),
          ("max-replicas", "max_replicas"),
          ("in-flight", "in_flight_per_replica"),
          ("readiness-path", "readiness_path"),
          ("startup-timeout", "startup_seconds"),
          ("scale-down-after", "idle_seconds"),
          ("drain", "drain_seconds"),
      )),
)  # fmt: skip

PORTS: Final = (
    of_field("port", ROUTES, "routes[].port", "routes[].name", value=values.ROUTE, kinds=LISTENING,
             many="list", text="A port that the command listens on, reached through the gateway; "
             "0: one is chosen and told as PORT, as always for endpoints; NAME=PORT for several."),
    of_field("access", ROUTES, "routes[].access", kinds=LISTENING),
    of_field("keep-prefix", ROUTES, "routes[].keep_prefix", kinds=LISTENING),
    of_field("request-timeout", ROUTES, "routes[].timeout_seconds", kinds=LISTENING),
    of_field("max-request", ROUTES, "routes[].max_request_bytes", text="The largest request: 64M.",
             value=values.REQUEST_SIZE, kinds=LISTENING),
    of_field("stop-unused", ROUTES, "routes[].idle_seconds", kinds=LISTENING - INFERENCE),
)  # fmt: skip
