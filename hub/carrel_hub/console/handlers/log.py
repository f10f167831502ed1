"""The output of work: its last lines, those with a word in them, and all of it as a file."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError
from typing_extensions import override

from carrel.client import AsyncClient
from carrel.client.resources.workloads import all_or
from carrel.errors import ApiError
from carrel.models import Workload
from carrel_hub.console.handlers.base import SignedInPage

LOG_LINES: Final = 200
_LOG_CHARACTERS: Final = 100_000
_MOST_SEARCHED: Final = 20_000_000


class LogFile(SignedInPage):
    """The whole output of one attempt, as a file."""

    @override
    async def get(self, project: str, name: str) -> None:
        """Send the log as it arrives."""
        attempt = attempt_of(self.get_query_argument("attempt", ""))
        job = await self.client.get_workload(project, name)
        shown = (job.status.attempt if attempt is None else attempt) + 1
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{name}-{shown}.log"')
        try:
            output = self.client.logs(project, name, attempt=attempt, index=all_or(None, job))
            async with aclosing(output):
                async for piece in output:
                    self.write(piece)
                    await self.flush()
        except ApiError as error:
            if error.status not in {404, 409} or self._headers_written:
                raise
        except StreamClosedError:
            return
        self.finish()


def attempt_of(text: str) -> int | None:
    """The number of an attempt in an address, counted from 1; ``None``: the latest."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise HTTPError(400, "attempts are counted from 1")
    return int(text) - 1


async def last_lines(
    client: AsyncClient, job: Workload, attempt: int | None = None, word: str = ""
) -> str:
    """The end of the output, or the last lines that hold ``word``; empty where there is none.

    Of several tasks, and of the trials, replicas or runs of other work, it is that of all.
    """
    tail = None if word else LOG_LINES
    pieces: deque[str] = deque()
    held = 0
    try:
        index = all_or(None, job)
        read = client.logs(job.project, job.name, tail=tail, attempt=attempt, index=index)
        async with aclosing(read) as output:
            async for piece in _with(word, output) if word else output:
                pieces.append(piece)
                held += len(piece)
                while held - len(pieces[0]) > _LOG_CHARACTERS:
                    held -= len(pieces.popleft())
    except ApiError as error:
        if error.status not in {404, 409}:
            raise
    return "".join(pieces)


async def _with(word: str, output: AsyncIterator[str]) -> AsyncIterator[str]:
    """The lines with this word in them, whichever way it is written; at most so much is read."""
    rest, read = "", 0
    async for piece in output:
        read += len(piece)
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            if word.lower() in line.lower():
                yield f"{line}\n"
        if read > _MOST_SEARCHED:
            yield "… only the first 20 million characters were searched.\n"
            return
    if word.lower() in rest.lower():
        yield rest
