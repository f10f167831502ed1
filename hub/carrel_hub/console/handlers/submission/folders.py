"""The upload of a folder that a person picked in the browser, for work from the form.

The page's script sends the folder's list of files, is told which chunks of them are missing, and
sends those; both pass through to the scheduler with the rights of whoever is signed in, and it
alone checks them. Who is signed in is known before the first byte of a body is kept.
"""

import json
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, Final

from tornado.http1connection import HTTP1Connection
from tornado.web import HTTPError, stream_request_body
from typing_extensions import override

from carrel.errors import NotSignedIn
from carrel_hub.console.explain import explain
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.code import CHUNK_BYTES, MOST_LIST_BYTES

BODY_SECONDS: Final = 300.0
"""The longest time for a chunk on a slow line, where several are sent at a time."""


@stream_request_body
class _Upload(SignedInPage):
    """Collects a body of bytes, up to a bound; refusals are JSON for the script."""

    most_bytes = CHUNK_BYTES
    _refusal: Exception | None = None

    @override
    def check_xsrf_cookie(self) -> None:
        """See ``prepare``."""

    @override
    async def prepare(self) -> None:
        """Decide about the caller; a refusal is told when the body has passed by.

        A browser that is answered before it has sent everything says only that it was hung up on.
        """
        self._body = bytearray()
        try:
            super().check_xsrf_cookie()
            await super().prepare()
        except (HTTPError, NotSignedIn) as refusal:
            self._refusal = refusal
            return
        connection = self.request.connection
        if isinstance(connection, HTTP1Connection):
            connection.set_max_body_size(self.most_bytes)
            connection.set_body_timeout(BODY_SECONDS)

    @override
    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Keep a piece of the body; the connection refuses more than ``most_bytes``."""
        if self._refusal is None:
            self._body += chunk
        return None

    def content(self) -> bytes:
        """The body. Raises what the caller is refused with."""
        if self._refusal is not None:
            raise self._refusal
        return bytes(self._body)

    @override
    def write_error(self, status_code: int, **details: Any) -> None:
        """Answer the reason of the failure, as a sentence."""
        told = explain(
            details.get("exc_info", (None, None, None))[1], status_code, self.console.urls
        )
        self.set_status(told.status)
        self.answer({"problem": told.detail or f"{told.title}."})

    def answer(self, content: dict[str, Any]) -> None:
        """Send JSON."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(content))


class FolderList(_Upload):
    """The list of a folder's files."""

    most_bytes = MOST_LIST_BYTES

    @override
    async def post(self, project: str) -> None:
        """Answer with the folder's digest and the chunks that have to be sent first."""
        content = self.content()
        found = await self.client.send_folder_list(project, content)
        self.answer({"digest": found.digest, "missing": found.missing})


class Chunk(_Upload):
    """A piece of a file, named by its SHA-256."""

    @override
    async def put(self, project: str, digest: str) -> None:
        """Pass it on."""
        content = self.content()
        await self.client.send_chunk(project, digest, content)
        self.set_status(HTTPStatus.NO_CONTENT)
        self.finish()
