"""The end of a command on a terminal, as the terminal itself tells it behind the last output.

It stands in the output as a control sequence that terminals ignore, with a mark that no other has.
"""

from typing import Final

from carrel_scheduler.engines.kubernetes.tasks import program

LONGEST_CODE: Final = len("255")


class Goodbye:
    """Finds it, however the output is cut.

    Attributes:
        code: the command's exit code, once it was said.
    """

    def __init__(self, mark: str) -> None:
        self._begins = program.GOODBYE % mark.encode()
        self._kept = b""
        self.code: int | None = None

    def heard(self, data: bytes) -> bytes:
        """What of the output so far is the command's for certain, and was not given yet."""
        text = self._kept + data
        before, found, after = text.partition(self._begins)
        code, ends, _ = after.partition(program.GOODBYE_ENDS)
        if ends and code.isdigit():
            self._kept, self.code = b"", int(code)
            return before
        unfinished = found and not ends and len(code) <= LONGEST_CODE
        kept = len(text) - len(before) if unfinished else self._begun(text)
        self._kept = text[len(text) - kept :]
        return text[: len(text) - kept]

    def rest(self) -> bytes:
        """What was kept back: there is no more output."""
        rest, self._kept = self._kept, b""
        return rest

    def _begun(self, text: bytes) -> int:
        """How many bytes at the end may be the beginning of a goodbye."""
        most = min(len(text), len(self._begins) - 1)
        return next((n for n in range(most, 0, -1) if text.endswith(self._begins[:n])), 0)
