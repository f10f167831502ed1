"""aiohttp's log of the server, without an entry for each request that cannot be read.

aiohttp answers such a request with 400 and writes an error with a traceback, so whoever reaches the
port could fill the log. What a handler of ours raises is written down as before.
"""

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from typing_extensions import override


class _Readable(logging.Filter):
    """Drops records about the syntax of a request."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


def server_log() -> logging.Logger:
    """The logger for an ``AppRunner``."""
    if not any(isinstance(one, _Readable) for one in server_logger.filters):
        server_logger.addFilter(_Readable())
    return server_logger
