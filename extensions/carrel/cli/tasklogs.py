"""The output of a job's tasks: one as it is, several merged line by line with a prefix."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from carrel.client import AsyncClient, Client


def show(
    client: "Client",
    project: str,
    name: str,
    indices: Sequence[int],
    options: dict[str, Any],
    out: TextIO | None = None,
) -> None:
    """Write it as it comes."""
    to = out or sys.stdout
    if len(indices) == 1:
        for piece in client.logs(project, name, index=indices[0], **options):
            to.write(piece)
            to.flush()
        return
    client.loop.run(_merged(client.aio, project, name, indices, options, to))


async def _merged(
    client: "AsyncClient",
    project: str,
    name: str,
    indices: Sequence[int],
    options: dict[str, Any],
    out: TextIO,
) -> None:
    async def one(index: int) -> None:
        prefix, rest = f"{name}-{index} | ", ""
        async with aclosing(client.logs(project, name, index=index, **options)) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split("\n")
                out.writelines(f"{prefix}{line}\n" for line in lines)
                out.flush()
        if rest:
            out.write(f"{prefix}{rest}\n")

    if options["follow"]:
        await asyncio.gather(*(one(index) for index in indices))
        return
    for index in indices:
        await one(index)
