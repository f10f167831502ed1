"""The API against inputs made from its own OpenAPI document: no server error, answers as promised.

The service runs in a thread with an event loop of its own; schemathesis calls it over loopback.
Names in paths are mostly those of objects that exist, so that calls get beyond "not found".
"""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from carrel_scheduler.api import openapi
from carrel_scheduler.api.table import OPERATIONS
from contract.api.service import ApiHarness, running

# Streams do not end by themselves, and a websocket is not called by HTTP.
ENDLESS = ["stream_events", "stream_workload_events", "open_terminal"]
KNOWN = {
    "project": ["vision", "speech", "nowhere"],
    "name": ["train-1", "desk", "missing"],
    "digest": ["0" * 64, "zz"],
    "checkpoint": ["1", "step-000000000001.0", "zz"],
    "model": ["net", "No Name"],
    "version": ["1", "x"],
    "node": ["node-1", "node-9"],
    "index": ["0", "1", "9"],
    "rule": ["abc", "zz"],
    "type": ["compute", "nothing"],
    "token": ["abc", "zz"],
    "user": ["ada", "dora", "zoe"],
}


def bad_data_is_refused(
    ctx: schemathesis.CheckContext, response: Any, case: schemathesis.Case[Any]
) -> bool | None:
    """Schemathesis' own check, but for paths: any name is right that something has."""
    parts = case.path_parameters or {}
    if any(value not in KNOWN[name] for name, value in parts.items()):
        return None
    return negative_data_rejection(ctx, response, case)


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    bad_data_is_refused,
    unsupported_method,
]


def document() -> dict[str, Any]:
    """The OpenAPI document, with names in paths that exist."""
    found: dict[str, Any] = msgspec.json.decode(openapi.document(OPERATIONS, "/services/carrel"))
    for path in found["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                for parameter in operation["parameters"]:
                    if parameter["in"] == "path":
                        parameter["schema"] = {"type": "string", "enum": KNOWN[parameter["name"]]}
    _without_large_bounds(found)
    return found


def _without_large_bounds(found: object) -> None:
    """Bounds that take megabytes to cross are tested by hand, not a thousand times here."""
    if isinstance(found, list):
        for one in found:
            _without_large_bounds(one)
    elif isinstance(found, dict):
        for key in ("maxItems", "maxLength", "maxProperties"):
            if isinstance(found.get(key), int) and found[key] > 300:
                del found[key]
        for one in found.values():
            _without_large_bounds(one)


schema = schemathesis.openapi.from_dict(document()).exclude(operation_id=ENDLESS)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiHarness]:
    """A furnished API in a thread of its own."""
    folder: Path = tmp_path_factory.mktemp("fuzz")
    ready = threading.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        async with running(folder) as harness:
            harness.engine.followed_ends = True
            found.update(harness=harness, loop=asyncio.get_running_loop(), stop=asyncio.Event())
            ready.set()
            await found["stop"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(120)
    yield found["harness"]
    found["loop"].call_soon_threadsafe(found["stop"].set)
    thread.join(120)
    assert not thread.is_alive()


@schema.parametrize()
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_operation(case: schemathesis.Case[Any], service: ApiHarness) -> None:
    who = "spawner" if case.operation.definition.raw["x-carrel-access"] == "spawner" else "root"
    case.call_and_validate(
        base_url=service.url + _base(case),
        headers={"Authorization": f"Bearer {who}-token"},
        checks=CHECKS,
        timeout=60,
    )


def _base(case: schemathesis.Case[Any]) -> str:
    rooted = case.operation.definition.raw["operationId"] == "prometheus_metrics"
    return "/services/carrel" + ("" if rooted else "/api/v1")
