"""The asynchronous client's part for submitting many workloads at once."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from carrel.client.transport import Transport
from carrel.models import BatchAnswer, Submitted

MOST_ITEMS = 1000
# The API takes 4 MiB; brackets and commas come on top of the items.
MOST_BYTES = 4 * 2**20 - 4096


class Batches:
    """Submits many workloads."""

    _transport: Transport

    async def submit_many(self, bodies: Iterable[Mapping[str, Any]]) -> list[Submitted]:
        """Submit many workloads in as few requests as possible; one answer for each, in order.

        Each body is that of ``create_workload`` with a ``name``. Each is created or refused for
        itself, so look at ``accepted``. Calling again with the same bodies is safe: what is there
        is not created again.

        Raises ``ApiError`` when a request is refused as a whole: a body that is not understood, or
        a project that the caller is not in. What went before it is submitted then.
        """
        answers: list[Submitted] = []
        for batch in batches(bodies):
            answer = await self._transport.ask(
                "POST", "/workloads:batch", BatchAnswer, body={"items": batch}, repeatable=True
            )
            answers += answer.items
        return answers


def batches(bodies: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Bodies in lists that one request may carry."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for body in bodies:
        length = len(msgspec.json.encode(body)) + 1
        if batch and (len(batch) == MOST_ITEMS or size + length > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += length
    if batch:
        yield batch
