"""``carrel endpoints``, ``carrel call``, ``carrel share``: what serves, asking it, who may."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel import units
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    ProjectOption,
    connected,
    project_of,
    say,
    show,
)

if TYPE_CHECKING:
    from carrel.models import Workload

COLUMNS = (
    *("NAME", "STATUS", "PROJECT", "REPLICAS", "REVISION"),
    *("IN FLIGHT", "REQ/S", "P50 MS", "URL"),
)
NUMBERS = ("REPLICAS", "REVISION", "IN FLIGHT", "REQ/S", "P50 MS")
NOTHING = "-"


def list_endpoints(
    *,
    project: ProjectOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List endpoints with their replicas, requests and addresses."""
    from carrel.cli import cells

    with connected() as client:
        found = client.list_workloads(project_of(client, project), kind="inference")
        service = client.settings.url
    rows = (
        [
            one.name,
            cells.status_word(one),
            one.project,
            *_numbers(one),
            next(iter(cells.service_urls(one, service)), NOTHING),
        ]
        for one in found
    )
    show(found, output, COLUMNS, rows, no_headers=no_headers, right=NUMBERS)


def _numbers(one: "Workload") -> list[str]:
    now = one.status.endpoint
    if now is None:
        return ["0/0", NOTHING, "0", "0", NOTHING]
    update = f"{now.revision} updating" if now.updating else str(now.revision)
    rate = f"{now.requests_per_second:g}"
    half = now.latency_p50_seconds
    latency = NOTHING if half is None else units.number(half * 1000)
    return [f"{now.ready}/{now.wanted}", update, str(now.in_flight), rate, latency]


def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The endpoint.")],
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="What to send, as JSON; @FILE or @- reads it."),
    ] = None,
    path: Annotated[str, typer.Option("--path", help="Below the endpoint's address.")] = "",
    route: Annotated[str, typer.Option("--route", help="One of several routes.")] = "",
    *,
    stream: Annotated[bool, typer.Option("--stream", help="Print pieces as they come.")] = False,
    project: ProjectOption = None,
) -> None:
    """Send a request to an endpoint, POST with --data, else GET, and print the answer."""
    value = None if data is None else _value(data)
    with connected() as client:
        asked = client.endpoint(project_of(client, project), name, route)
        if stream:
            for piece in asked.stream(value, path):
                say(_text(piece))
            return
        say(_text(asked.get(path) if data is None else asked.post(value, path)))


class Visitors(StrEnum):
    """The groups of people who may reach an endpoint."""

    USER = "user"
    PROJECT = "project"
    EVERYONE = "everyone"


WHO = {
    Visitors.USER: "you only",
    Visitors.PROJECT: "everyone in the project",
    Visitors.EVERYONE: "everyone with an account",
}


def share(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What listens on a port.")],
    access: Annotated[Visitors, typer.Argument(help="Who may come in from now on.")],
    route: Annotated[str, typer.Option("--route", help="One of several routes.")] = "",
    *,
    project: ProjectOption = None,
) -> None:
    """Open a port of running work to others, or close it again; nothing restarts."""
    with connected() as client:
        client.share(project_of(client, project), name, access.value, route)
    say(f"{name} is open to {WHO[access]}.")


def _value(data: str) -> Any:
    """The value of ``--data``. Raises ``BadSetting``."""
    import msgspec

    from carrel.errors import BadSetting

    try:
        text = data
        if data.startswith("@"):
            text = sys.stdin.read() if data == "@-" else Path(data[1:]).read_text()
        return msgspec.json.decode(text)
    except OSError as error:
        raise BadSetting(f"--data {data}: {error.strerror}.") from error
    except msgspec.MsgspecError as error:
        raise BadSetting(
            f"--data has to be JSON ({error}); quote texts: '\"like this\"'."
        ) from error


def _text(answer: Any) -> str:
    import msgspec

    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    return answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
