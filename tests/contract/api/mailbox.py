"""A mail server that keeps what it is sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiosmtpd.controller import Controller

from benchmarks.ports import free_port


@contextmanager
def mailbox() -> Iterator[tuple[str, list[Any]]]:
    """Its address as a channel names it, and the mails that came."""
    mails: list[Any] = []

    class Box:
        async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
            mails.append(envelope)
            return "250 OK"

    port = free_port()
    server = Controller(Box(), hostname="127.0.0.1", port=port)
    server.start()
    try:
        yield f"smtp://127.0.0.1:{port}", mails
    finally:
        server.stop()
