"""Watch kernels and terminals of a server, and record activity with the tracker.

Kernels: a second subscription beside the server's own. The server keeps one ``execution_state`` per
kernel, which the traffic of widgets flips as well. Here each ``status`` is read with its request,
and only ``execute_request`` counts. Headers are read first; bodies of big outputs are never
unpacked. What a kernel began before the subscription is not published to it, so the server's state
counts in two cases: when a subscription begins, and when it stays busy from one look to the next
without a message in between, which the traffic of widgets never does (a widget's callback that
computes for long does, and rightly counts).

Terminals: the server's record counts output as well, so a running ``top`` would keep a workspace
for ever. Only what is written *to* a terminal is input.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_client.session import Session

from carrel.workspace.activity import ActivityTracker

log = logging.getLogger("carrel.workspace")


class KernelWatcher:
    """Keeps one subscription per running kernel of a server."""

    def __init__(
        self,
        manager: Any,
        tracker: ActivityTracker,
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        """``changed`` is called when a kernel becomes busy or idle; ``manager`` is the server's."""
        self._manager, self._tracker = manager, tracker
        self._clock, self._changed = clock, changed
        self._subscriptions: dict[str, _KernelMessages] = {}

    def refresh(self) -> None:
        """Subscribe to new kernels, and drop those that ended."""
        running = {
            kernel_id: self._manager.get_kernel(kernel_id)
            for kernel_id in self._manager.list_kernel_ids()
        }
        for kernel_id in self._tracker.kernels - running.keys():
            self._drop(kernel_id)
            self._tracker.kernel_gone(kernel_id)
        for kernel_id, kernel in running.items():
            known = self._subscriptions.get(kernel_id)
            if known is not None and known.port != kernel.iopub_port:
                self._drop(kernel_id)
                known = None
            if known is None and _publishes(kernel):
                known = self._subscribe(kernel_id, kernel)
            if known is not None:
                self._compare(kernel_id, kernel, known)

    def close(self) -> None:
        """Close all subscriptions."""
        for kernel_id in list(self._subscriptions):
            self._drop(kernel_id)

    def _subscribe(self, kernel_id: str, kernel: Any) -> "_KernelMessages":
        def received(kind: str, parent: dict[str, Any], content: dict[str, Any]) -> None:
            with self._telling_changes():
                record_message(self._tracker, kernel_id, kind, parent, content, self._clock())

        self._tracker.kernel_appeared(kernel_id)
        subscription = self._subscriptions[kernel_id] = _KernelMessages(kernel, received)
        return subscription

    def _compare(self, kernel_id: str, kernel: Any, known: "_KernelMessages") -> None:
        """Take over from the server's state what was not published."""
        busy = kernel.execution_state == "busy"
        seen = getattr(kernel, "last_activity", None) if busy else None
        first, silent = known.looks == 0, seen is not None and known.busy_at_last_look == seen
        known.looks, known.busy_at_last_look = known.looks + 1, seen
        with self._telling_changes():
            if not busy:
                self._tracker.found_idle(kernel_id, self._clock())
            elif first or silent:
                self._tracker.found_busy(kernel_id, self._clock())

    @contextlib.contextmanager
    def _telling_changes(self) -> Iterator[None]:
        before = self._tracker.busy_since
        yield
        if (before is None) != (self._tracker.busy_since is None):
            self._changed()

    def _drop(self, kernel_id: str) -> None:
        subscription = self._subscriptions.pop(kernel_id, None)
        if subscription is not None:
            subscription.close()


def record_message(
    tracker: ActivityTracker,
    kernel: str,
    kind: str,
    parent: dict[str, Any],
    content: dict[str, Any],
    at: float,
) -> None:
    """Translate one published message into a fact. ``parent`` is the header of its request."""
    state = content.get("execution_state")
    if kind == "status" and state == "starting":
        tracker.kernel_started_over(kernel, at)
        return
    if parent.get("msg_type") != "execute_request":
        return
    request = str(parent.get("msg_id", ""))
    if kind == "execute_input":
        tracker.code_announced(kernel, request, at)
    elif kind == "status" and state == "busy":
        tracker.execution_started(kernel, request, at)
    elif kind == "status" and state == "idle":
        tracker.execution_ended(kernel, request, at)


def _publishes(kernel: Any) -> bool:
    """Whether its ports are known; the server sets the state once they are."""
    return bool(kernel.iopub_port) and getattr(kernel, "execution_state", None) is not None


class _KernelMessages:
    """A kernel's published messages, reduced to those that ``record_message`` understands."""

    KINDS = frozenset({"status", "execute_input"})

    def __init__(
        self, kernel: Any, received: Callable[[str, dict[str, Any], dict[str, Any]], None]
    ) -> None:
        self.port = kernel.iopub_port
        self.looks = 0
        self.busy_at_last_look: Any = None
        self._received = received
        self._session = Session(config=kernel.session.config, key=kernel.session.key)
        self._stream = kernel.connect_iopub()
        self._stream.on_recv(self._on_frames)

    def close(self) -> None:
        if not self._stream.closed():
            self._stream.close()

    def _on_frames(self, frames: list[bytes]) -> None:
        try:
            _, parts = self._session.feed_identities(frames)
            header: Any = parts[1]
            if json.loads(header).get("msg_type") not in self.KINDS:
                return
            message = self._session.deserialize(parts)
        except (ValueError, IndexError, TypeError) as error:
            log.warning("A kernel published something unreadable: %s", error)
            return
        kind = message["header"]["msg_type"]
        self._received(kind, message.get("parent_header") or {}, message["content"])


class TerminalWatcher:
    """Listens at every terminal of a server. ``manager`` is the server's, ``None`` without any."""

    def __init__(self, manager: Any, typed: Callable[[], None]) -> None:
        self._manager, self._typed = manager, typed
        self._known: set[int] = set()

    def refresh(self) -> None:
        """Watch new terminals; opening one counts as input."""
        terminals = self._terminals()
        for terminal in terminals:
            if id(terminal.ptyproc) not in self._known:
                self._listen(terminal.ptyproc)
                self._typed()
        self._known = {id(terminal.ptyproc) for terminal in terminals}

    @property
    def count(self) -> int:
        """The number of open terminals."""
        return len(self._terminals())

    def _terminals(self) -> list[Any]:
        return [] if self._manager is None else list(self._manager.terminals.values())

    def _listen(self, process: Any) -> None:
        write = process.write

        def write_and_tell(text: Any) -> Any:
            self._typed()
            return write(text)

        process.write = write_and_tell
