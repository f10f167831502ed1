"""Passes a connection on to another place, until one of its sides closes."""

import asyncio
from typing import Final

CHUNK_BYTES: Final = 1 << 16


async def relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, port: int
) -> None:
    """Pass on both ways. When nobody answers there, the connection is closed, as it would be."""
    try:
        to_reader, to_writer = await asyncio.open_connection(address, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pass_on(reader, to_writer), _pass_on(to_reader, writer))
    to_writer.close()
    writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on one way; the end of what comes is passed on too, and the other way stays open."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()
