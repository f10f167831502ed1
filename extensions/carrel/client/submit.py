"""The project and name of what is submitted, and ``carrel.map``, ``wait`` and ``as_completed``.

The three make a client from the environment where none is given. ``carrel.submit`` is in
``notebook.job``, as it returns a ``Job``.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from carrel.client.resources.waiting import Ref
from carrel.client.shared_events import until
from carrel.client.sync import Client
from carrel.errors import ApiError, BadSetting
from carrel.models import Workload

TAKEN: Final = "already_exists"
"""Code of the refusal of a name."""


def words_of(command: str | Sequence[str]) -> list[str]:
    """A command as a list of words. Raises ``BadSetting`` for a line that cannot be split."""
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError as error:
        raise BadSetting(f"The command {command!r} cannot be split: {error}.") from error


def replacing(client: Client, body: Mapping[str, Any]) -> Workload:
    """Submit work in the place of that of the same name, which is cancelled."""
    try:
        return client.create_workload(body)
    except ApiError as error:
        if error.code != TAKEN or "name" not in body:
            raise
    project, name = body["project"], body["name"]
    client.delete_workload(project, name)
    client.loop.run(until(lambda _: False, client.aio, project, name, None))  # it is gone
    return client.create_workload(body)


def next_run(client: Client, body: Mapping[str, Any]) -> Workload:
    """Submit work; where its name is taken, as the next run of that name: ``NAME-2``, ..."""
    try:
        return client.create_workload(body)
    except ApiError as error:
        if error.code != TAKEN or "name" not in body:
            raise
    runs = re.compile(rf"{re.escape(body['name'])}-([1-9][0-9]*)")
    names = (one.name for one in client.list_workloads(body["project"]))
    numbers = [int(found[1]) for name in names if (found := runs.fullmatch(name))]
    while True:
        number = max(numbers, default=1) + 1
        try:
            return client.create_workload({**body, "name": f"{body['name']}-{number}"})
        except ApiError as error:
            if error.code != TAKEN:
                raise
            numbers.append(number)


def default_project(client: Client) -> str:
    """The configured project, else the only one there is. Raises ``BadSetting``."""
    if client.settings.project:
        return client.settings.project
    identity = client.whoami()
    if identity.default_project:
        return identity.default_project
    if len(identity.projects) == 1:
        return identity.projects[0]
    if not identity.projects:
        raise BadSetting("You are in no project yet: ask an administrator to add you to one.")
    raise BadSetting(
        f"Which project? You are in {', '.join(sorted(identity.projects))}: name one with "
        f"`-p PROJECT`, or set a default with `carrel config project PROJECT`."
    )


ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def map(  # noqa: A001 - what it does, read as carrel.map
    function: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    *,
    client: Client | None = None,
    **options: Any,
) -> list[ResultT]:
    """Call a function for each item, in workers that stay; results in the order of the items.

    Args:
        function: and the items: packed by cloudpickle.
        items: what it is called for.
        client: which client to use; by default one made from the environment.
        options: see ``Client.map``: ``gpus``, ``project``, ``name``, ``progress``,
            ``return_exceptions``, ``keep``, ``workers``, ``warm=False`` for a job of its own for
            each call, and fields of the API's workload.

    Raises:
        CarrelError: when refused or unreachable; otherwise what the first failing call raised.
    """
    return (client or Client()).map(function, items, **options)


def wait(
    jobs: Iterable[Ref], *, timeout: float | None = None, client: Client | None = None
) -> list[Workload]:
    """Wait until all jobs have ended, at most ``timeout`` seconds; see ``Client.wait``."""
    return (client or Client()).wait(jobs, timeout=timeout)


def as_completed(
    jobs: Iterable[Ref], *, timeout: float | None = None, client: Client | None = None
) -> Iterator[Workload]:
    """Yield each job when it has ended; see ``Client.as_completed``."""
    used = client or Client()  # lives as long as the loop over it
    yield from used.as_completed(jobs, timeout=timeout)
