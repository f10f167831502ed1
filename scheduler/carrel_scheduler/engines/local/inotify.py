"""Changes of folders from the kernel (inotify), on the event loop.

One descriptor serves all folders of an engine. A folder that the kernel cannot watch any more (its
limits are shared with everything that the account runs) is polled twice a second instead, and is
watched again as soon as the kernel allows it. A listener that fails is called again until it
succeeds, and the others are called all the same.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from inotify_simple import INotify, flags

from carrel_scheduler.engines.contract import EngineError

MODIFIED: Final = int(flags.MODIFY)
WRITER_CLOSED: Final = int(flags.CLOSE_WRITE)
MOVED_IN: Final = int(flags.MOVED_TO)
CREATED: Final = int(flags.CREATE)
POLL_SECONDS: Final = 0.5
"""The interval of polls of folders that cannot be watched, and of calls of a failing listener."""
_HINTS: Final = {
    errno.EMFILE: "raise fs.inotify.max_user_instances",
    errno.ENFILE: "raise fs.file-max",
    errno.ENOSPC: "raise fs.inotify.max_user_watches",
    errno.ENOMEM: "the kernel is short of memory",
}
"""The errors with which the kernel refuses a watch for a while, and what helps."""

log = logging.getLogger(__name__)

Listener = Callable[[str], None]


class _FolderWatch:
    """A call of ``watch``; ``number`` is the kernel's, ``None`` while the folder is polled."""

    def __init__(self, folder: Path, mask: int, listener: Listener) -> None:
        self.folder, self.mask, self.listener = folder, mask, listener
        self.number: int | None = None


class Inotify:
    """Watches folders and calls listeners with the name of the changed file.

    The name is "" where anything may have changed. ``trouble`` says why folders are polled instead
    of watched; it is empty while all are watched.

    Must be made, used and closed on a running event loop.
    """

    def __init__(self) -> None:
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._kernel: INotify | None = None
        self._watched: dict[int, list[_FolderWatch]] = {}
        self._polled: list[_FolderWatch] = []
        self._failed: dict[Listener, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.trouble = ""

    def watch(self, folder: Path, mask: int, listener: Listener) -> Callable[[], None]:
        """Call the listener on changes of ``folder``; returns a function that ends this.

        All listeners of one folder must ask for the same mask. Raises ``FileNotFoundError``.
        """
        if self.closed:
            raise EngineError(f"watching {folder}: the engine is closed")
        watch = _FolderWatch(folder, mask, listener)
        if not self._begin(watch):
            self._polled.append(watch)
            self._poll_later()
        return lambda: self._end(watch)

    def _begin(self, watch: _FolderWatch) -> bool:
        """Add a watch in the kernel; false, with a message in ``trouble``, if impossible now."""
        try:
            if self._kernel is None:
                self._kernel = INotify(nonblocking=True)
                self._loop.add_reader(self._kernel.fileno(), self._read)
            watch.number = self._kernel.add_watch(watch.folder, watch.mask)
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, error.strerror, str(watch.folder)) from error
        except OSError as error:
            if error.errno not in _HINTS:
                raise EngineError(f"watching {watch.folder}: {error.strerror}") from error
            trouble = (
                f"folders of tasks cannot be watched ({error.strerror}; {_HINTS[error.errno]}):"
                f" they are looked at every {POLL_SECONDS:g} s instead"
            )
            if trouble != self.trouble:
                log.warning("%s", trouble)
            self.trouble = trouble
            return False
        self._watched.setdefault(watch.number, []).append(watch)
        return True

    def _end(self, watch: _FolderWatch) -> None:
        if watch in self._polled:
            self._polled.remove(watch)
        if watch.number is None or watch not in self._watched.get(watch.number, ()):
            return
        watches = self._watched[watch.number]
        watches.remove(watch)
        if not watches:
            del self._watched[watch.number]
            if self._kernel is not None:
                with contextlib.suppress(OSError):  # it ended with the folder
                    self._kernel.rm_watch(watch.number)

    def _poll_later(self) -> None:
        if self._timer is None and not self.closed:
            self._timer = self._loop.call_later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        """Call listeners without a watch and those that failed; add watches where possible."""
        self._timer = None
        for listener in tuple(self._failed):
            if listener in self._failed:
                self.call(listener)
        refused = False
        for watch in tuple(self._polled):
            if watch not in self._polled:
                continue  # a listener before it ended it
            try:
                refused = refused or not self._begin(watch)
                if watch.number is not None:
                    self._polled.remove(watch)
            except (EngineError, FileNotFoundError) as error:
                log.warning("%s is no longer watched: %s", watch.folder, error)
                self._polled.remove(watch)
            self.call(watch.listener)
        if self.trouble and not self._polled:
            self.trouble = ""
            log.warning("inotify watches all folders of tasks again")
        if self._polled or self._failed:
            self._poll_later()

    def _read(self) -> None:
        if self._kernel is None:
            return
        for number, mask, _, name in self._kernel.read(timeout=0):
            if mask & flags.Q_OVERFLOW:
                for watch in self._all():
                    self.call(watch.listener)
            elif mask & flags.IGNORED:
                self._watched.pop(number, None)
            for watch in tuple(self._watched.get(number, ())):
                self.call(watch.listener, name)

    def _all(self) -> list[_FolderWatch]:
        return [watch for one in self._watched.values() for watch in one]

    def forget(self, listener: Listener) -> None:
        """Forget the failure of a listener, so that it is not called again."""
        self._failed.pop(listener, None)

    def call(self, listener: Listener, name: str = "") -> None:
        """Call a listener now, and with "" again and again until it succeeds."""
        try:
            listener(name)
        except Exception as error:
            if listener not in self._failed:
                trace = None if isinstance(error, OSError | EngineError) else error
                log.warning(
                    "a change could not be processed and is retried: %s", error, exc_info=trace
                )
            self._failed[listener] = None
            self._poll_later()
        else:
            if not name:
                self.forget(listener)

    def close(self) -> None:
        """Stop watching; every listener is called a last time, with ""."""
        if self.closed:
            return
        self.closed = True
        if self._kernel is not None:
            self._loop.remove_reader(self._kernel.fileno())
            self._kernel.close()
            self._kernel = None
        if self._timer is not None:
            self._timer.cancel()
        watches = self._all() + self._polled
        self._watched, self._polled = {}, []
        for watch in watches:
            self.call(watch.listener)
