"""Word of preemption: SIGTERM says that the job has to give way and how long it still has.

The handler is installed with the first question and calls whatever handler was there before. Where
none was, the process no longer ends at once: the training saves and ends by itself, or is ended
after its grace period.
"""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

from carrel.job import ending
from carrel.job.report import flush

EXIT_CODE: Final = ending.GAVE_WAY
Handler = Callable[[int, FrameType | None], object]


class Preemption:
    """Whether this process was told to give way, and who wants to know."""

    def __init__(self) -> None:
        self._told = False
        self._installed = False
        self._callbacks: list[Callable[[], object]] = []
        self._before: Handler | int | None = None

    def preempted(self) -> bool:
        """Whether the job was told to give way."""
        self.install()
        return self._told

    def told(self) -> bool:
        """The same where the question may come from any thread; begins to listen if it can."""
        if threading.current_thread() is threading.main_thread():
            self.install()
        return self._told

    def on_preempt(self, callback: Callable[[], object]) -> None:
        """Call it, in the main thread, as soon as the job is told to give way."""
        self.install()
        self._callbacks.append(callback)

    def install(self) -> None:
        """Begin to listen. Raises ``RuntimeError`` when first asked outside the main thread."""
        if self._installed:
            return
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "carrel.checkpoint can be told of preemption only when it is first asked in the "
                "main thread; call carrel.checkpoint.preempted() there once, before starting "
                "other threads."
            )
        self._before = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._handle)
        self._installed = True

    def uninstall(self) -> None:
        """Put the former handler back."""
        if self._installed:
            signal.signal(signal.SIGTERM, self._before)
            self._installed = self._told = False
            self._callbacks.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._told = True
        ending.own.tell()
        for callback in self._callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001 - shown; one callback must not keep others from saving
                sys.excepthook(*sys.exc_info())
        if callable(self._before):
            self._before(number, frame)


_own = Preemption()
preempted = _own.preempted
told = _own.told
on_preempt = _own.on_preempt
install = _own.install
uninstall = _own.uninstall


def exit_for_preemption() -> NoReturn:
    """End so that the job is started again later; call it after the last save."""
    flush()
    sys.exit(EXIT_CODE)
