"""How this process ends, as far as that can be known inside it: for what is said at the very end.

The exit code of a process is nowhere inside it, so who asks for one is listened to: an exception
that nobody caught, and ``sys.exit``. Whoever is killed says nothing any more.
"""

import signal
import sys
from types import TracebackType
from typing import Final, NoReturn

GAVE_WAY: Final = 128 + signal.SIGTERM
"""Exit code of work that was told to give way and wants to go on later."""


class Ending:
    """What was heard so far of how this process ends."""

    def __init__(self) -> None:
        self._listening = self._told = False
        self._code = 0

    def listen(self) -> None:
        """Begin to listen; whoever listened before hears everything, too."""
        if self._listening:
            return
        self._listening = True
        hook, leave = sys.excepthook, sys.exit

        def uncaught(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            self._code = 1
            hook(kind, error, trace)

        def leaving(status: object = None, /) -> NoReturn:
            self._code = _code_of(status)
            leave(status)  # type: ignore[arg-type]  # as wide as what it stands for

        sys.excepthook, sys.exit = uncaught, leaving

    def tell(self) -> None:
        """This process was told to give way."""
        self._told = True

    def succeeded(self) -> bool | None:
        """Whether its work is done; ``None``: it gives way and goes on later."""
        if self._code == GAVE_WAY or (self._told and self._code):
            return None
        return self._code == 0


def _code_of(status: object) -> int:
    """The exit code to which ``sys.exit`` turns what it is given."""
    if status is None:
        return 0
    return status if isinstance(status, int) else 1


own: Final = Ending()
