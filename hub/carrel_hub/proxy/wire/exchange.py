"""One request of a caller and the answer to it.

The request's body is kept, a little of it, until a target takes it, and then passes as it comes.
The answer's head goes through ``dress``, given by whoever passes the request on.
"""

from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import web

from carrel_hub.proxy.headers import Pairs
from carrel_hub.proxy.wire import heads
from carrel_hub.proxy.wire.asked import Asked
from carrel_hub.proxy.wire.line import Head, Line, TargetError

MOST_KEPT: Final = 64 * 1024


class Owner(Protocol):
    """The connection of the caller."""

    def write(self, data: bytes) -> None:
        """Send."""
        ...

    def hold(self, why: str) -> None:
        """Read no more from the caller, until released for the same reason."""
        ...

    def release(self, why: str) -> None:
        """See ``hold``."""
        ...


class Exchange:
    """See the module.

    Attributes:
        asked: the head of the request.
        whole: all of the request was read.
        status: of the answer; 0 before it.
        complete: the answer was given as a whole.
        keep_alive: more can be asked over the connection after this.
        exceeded: the request's body is larger than it may be.
    """

    def __init__(self, owner: Owner, asked: Asked) -> None:
        self._owner, self.asked = owner, asked
        self.whole = not asked.body_exists
        self.status = 0
        self.complete = self.exceeded = False
        self.keep_alive = asked.keep_alive
        self._kept: list[bytes] = []
        self._size = self._kept_size = 0
        self._most: int | None = None
        self._line: Line | None = None
        self._sent_all = self.whole
        self._out: list[bytes] = []
        self._chunked = self._invited = self._discards = False
        self._dress: Callable[[Pairs], Pairs] = list

    # What the caller sends.

    def body(self, piece: bytes) -> None:
        """Some of the request's body."""
        if self._discards:
            return
        self._size += len(piece)
        if self._most is not None and self._size > self._most:
            self._too_large()
            return
        if self._line is not None:
            self._line.transport.write(heads.chunk(piece) if self.asked.chunked else piece)
            return
        self._kept.append(piece)
        self._kept_size += len(piece)
        if self._kept_size > MOST_KEPT:
            self._owner.hold("kept")

    def body_ends(self) -> None:
        """All of it was read."""
        self.whole = True
        if self._line is not None:
            self._end_body(self._line)

    def bound(self, most: int) -> None:
        """Refuse more than so many bytes of a body; looks at what was read already."""
        self._most = most
        if self._size > most:
            self._too_large()

    def _too_large(self) -> None:
        self.exceeded = True
        self.discard()
        if self._line is not None:
            self._line.break_off("the request is too large")

    def discard(self) -> None:
        """Nobody wants the rest of the body."""
        self._discards = True
        self._kept.clear()
        self._owner.release("kept")
        self._owner.release("target")

    # To a target and back.

    async def pass_to(
        self,
        line: Line,
        path: str,
        headers: Pairs,
        seconds: float,
        dress: Callable[[Pairs], Pairs],
    ) -> None:
        """Ask a target and answer the caller with what it says.

        Args:
            line: idle, and idle or closed afterwards.
            path: path and query at the target.
            headers: what the target is told, but for the frame of the body.
            seconds: until the answer begins.
            dress: changes the headers of the answer.

        Raises:
            TargetError: nothing was answered yet.
            BrokenOffError: the answer began and has no end.
        """
        asked = self.asked
        if self.exceeded:
            line.release(whole=False)
            raise TargetError("the request is too large", sent=False)
        head = heads.request_head(
            asked.method, path, headers, asked.content_length, chunked=asked.chunked
        )
        self._dress, self._sent_all = dress, not asked.body_exists
        if asked.body_exists and not self._size and not self._invited and asked.expects:
            self._invited = True
            self._owner.write(heads.CONTINUE)
        try:
            done = line.ask(self, asked.method, self._with_body(head), seconds)
            self._line = line
            self._owner.release("kept")
            if self.whole and not self._sent_all:
                self._end_body(line)
            await done
        except BaseException:
            self._line = None
            line.hang_up()
            raise
        finally:
            self._owner.release("target")
        self._line = None
        line.release(whole=self._sent_all)
        self.complete = True

    def _with_body(self, head: bytes) -> bytes:
        """The head and what of the body is here already."""
        if not self._kept:
            return head
        kept = [heads.chunk(one) for one in self._kept] if self.asked.chunked else self._kept
        whole = b"".join([head, *kept])
        self._kept.clear()
        self._kept_size = 0
        return whole

    def _end_body(self, line: Line) -> None:
        if self.asked.chunked:
            line.transport.write(heads.LAST_CHUNK)
        self._sent_all = True

    def hold_body(self) -> None:
        """The target takes no more of the request now."""
        self._owner.hold("target")

    def release_body(self) -> None:
        """It does again."""
        self._owner.release("target")

    def hold_answer(self) -> None:
        """The caller takes no more now."""
        if self._line is not None:
            self._line.pause()

    def release_answer(self) -> None:
        """It does again."""
        if self._line is not None:
            self._line.resume()

    # The answer.

    def begin(self, head: Head) -> None:
        """The head of a target's answer."""
        headers = self._dress(head.headers)
        if head.length is not None and head.status != 204:
            headers.append(("Content-Length", str(head.length)))
        unknown = head.length is None and not head.empty
        self._chunked = unknown and self.asked.modern
        if unknown and not self._chunked:
            self.keep_alive = False
        self._begin(head.status, head.reason, headers)

    def _begin(self, status: int, reason: str, headers: Pairs) -> None:
        out = heads.answer_head(
            status,
            reason,
            headers,
            chunked=self._chunked,
            keep_alive=self.keep_alive,
            modern=self.asked.modern,
        )
        self.status = status
        self._out.append(out)

    def piece(self, data: bytes) -> None:
        """Some of the answer's body."""
        self._out.append(heads.chunk(data) if self._chunked else data)

    def flush(self) -> None:
        """Send what is there."""
        if self._out:
            out, self._out = self._out, []
            self._owner.write(out[0] if len(out) == 1 else b"".join(out))

    def end(self) -> None:
        """The answer of the target is whole."""
        if self._chunked:
            self._out.append(heads.LAST_CHUNK)

    def answer(self, response: web.Response) -> None:
        """Answer without a target. The rest of a body that nobody wants is read for a while."""
        status, reason, headers, body = heads.own_answer(response)
        if not self.whole:
            self.discard()
            self.keep_alive = False
        self._begin(status, reason, headers)
        if not heads.bodiless(self.asked.method, status):
            self._out.append(body)
        self.flush()
        self.complete = True
