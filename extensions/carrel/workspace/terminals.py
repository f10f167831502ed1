"""Notices keys pressed in terminals.

The server's own record of a terminal's activity counts output as well, so a running ``top`` would
keep a workspace for ever. Only what is written *to* a terminal is somebody's input.
"""

from collections.abc import Callable
from typing import Any


class TerminalWatcher:
    """Listens at every terminal of a server. ``manager`` is the server's, ``None`` without any."""

    def __init__(self, manager: Any, typed: Callable[[], None]) -> None:
        self._manager, self._typed = manager, typed
        self._known: set[int] = set()

    def refresh(self) -> None:
        """Listen at terminals that appeared; opening one is input, too."""
        terminals = self._terminals()
        for terminal in terminals:
            if id(terminal.ptyproc) not in self._known:
                self._listen(terminal.ptyproc)
                self._typed()
        self._known = {id(terminal.ptyproc) for terminal in terminals}

    @property
    def count(self) -> int:
        """How many terminals are open."""
        return len(self._terminals())

    def _terminals(self) -> list[Any]:
        return [] if self._manager is None else list(self._manager.terminals.values())

    def _listen(self, process: Any) -> None:
        write = process.write

        def write_and_tell(text: Any) -> Any:
            self._typed()
            return write(text)

        process.write = write_and_tell
