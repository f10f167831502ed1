"""``carrel.map``, ``wait`` and ``as_completed``, with a client made from the environment."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from carrel.client.sync import Client
from carrel.client.waiting import Ref
from carrel.models import Workload

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def map(  # noqa: A001 - what it does, read as carrel.map
    function: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    *,
    client: Client | None = None,
    **options: Any,
) -> list[ResultT]:
    """Call it for each item in a job of its own; the results, in the order of the items.

    Args:
        function: and the items: packed by cloudpickle, at most half a MiB each.
        items: one job each.
        client: which client to use; by default one made from the environment.
        options: see ``Client.map``: ``gpus``, ``project``, ``name``, ``progress``,
            ``return_exceptions``, ``keep``, and fields of the API's workload.

    Raises:
        CarrelError: when refused or unreachable; otherwise what the first failing call raised.
    """
    return (client or Client()).map(function, items, **options)


def wait(
    jobs: Iterable[Ref], *, timeout: float | None = None, client: Client | None = None
) -> list[Workload]:
    """Wait until all have come to rest, at most ``timeout`` seconds; see ``Client.wait``."""
    return (client or Client()).wait(jobs, timeout=timeout)


def as_completed(
    jobs: Iterable[Ref], *, timeout: float | None = None, client: Client | None = None
) -> Iterator[Workload]:
    """Each job when it has come to rest; see ``Client.as_completed``."""
    used = client or Client()  # lives as long as the loop over it
    yield from used.as_completed(jobs, timeout=timeout)
