"""Inputs that could not be processed: set aside and counted, so that everything else goes on.

An input is an object, an event, a message or a device reading. Its key names it within its source,
such as a workload's uid within ``workload``. Whoever processes inputs one by one wraps each in
``guard``: an exception sets that input aside, a later success takes it out again. So an input is
tried again when it changes, without anything to be scheduled for it. The first failure for a reason
is logged; every failure is counted.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self

import msgspec

log = logging.getLogger(__name__)

Source = Literal[
    "workload",
    "project",
    "department",
    "task",
    "node",
    "device",
    "pod",
    "composite",
    "namespace",
    "message",
    "decision",
    "record",
]
MOST_KEPT: Final = 1000
LONGEST_KEY: Final = 200
LONGEST_MESSAGE: Final = 300


@dataclass(frozen=True, slots=True)
class Skipped:
    """An input that is set aside.

    Attributes:
        source: what kind of input it is.
        key: which of them.
        reason: a stable token: the ``code`` of the error where it has one, else its class.
        since: epoch seconds of the first failure for that reason.
        message: what the error said then, on one line.
        name: what people call it, as ``PROJECT/NAME``; empty where that is the key, or unknown.
    """

    source: Source
    key: str
    reason: str
    since: float
    message: str = ""
    name: str = ""


class Quarantine:
    """See the module. ``clock`` gives epoch seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[tuple[Source, str], Skipped] = {}
        self._counts: Counter[tuple[Source, str]] = Counter()

    def guard(
        self, source: Source, key: str, *, name: str = "", fatal: tuple[type[Exception], ...] = ()
    ) -> "Guard":
        """Process one input in a ``with`` block; an exception sets it aside and goes no further.

        Args:
            source: what kind of input it is.
            key: which of them.
            name: what people call it, where that is not the key.
            fatal: exceptions that concern more than this input; they are raised.
        """
        return Guard(self, source, key, name, fatal)

    def put(self, source: Source, key: str, error: Exception, *, name: str = "") -> None:
        """Set an input aside that could not be processed because of ``error``."""
        key, reason = _printable(key, LONGEST_KEY), reason_of(error)
        self._counts[source, reason] += 1
        known = self._kept.pop((source, key), None)
        same = known is not None and known.reason == reason
        text = _printable(str(error), LONGEST_MESSAGE)
        called = _printable(name, LONGEST_KEY) or (known.name if known is not None else "")
        now = Skipped(source, key, reason, self._clock(), text, called)
        self._kept[source, key] = known if known is not None and same else now
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        if not same:
            said = None if _is_expected(error) else error
            log.error("%s %s is set aside: %s: %s", source, key, reason, text, exc_info=said)

    def release(self, source: Source, key: str) -> None:
        """An input was processed, or is not there any more."""
        if not self._kept:
            return
        if self._kept.pop((source, _printable(key, LONGEST_KEY)), None) is not None:
            log.info("%s %s is no longer set aside", source, key)

    def holds(self, source: Source, key: str) -> bool:
        """Whether this input is set aside."""
        return bool(self._kept) and (source, _printable(key, LONGEST_KEY)) in self._kept

    @property
    def items(self) -> Sequence[Skipped]:
        """The inputs that are set aside now, the latest failures last; at most ``MOST_KEPT``."""
        return tuple(self._kept.values())

    @property
    def counts(self) -> Mapping[tuple[Source, str], int]:
        """The number of failures since the start, by source and reason."""
        return self._counts


class Guard:
    """An input while it is processed; see ``Quarantine.guard``. ``failed``: whether it failed."""

    def __init__(
        self,
        quarantine: Quarantine,
        source: Source,
        key: str,
        name: str,
        fatal: tuple[type[Exception], ...],
    ) -> None:
        self._quarantine, self._source, self._key = quarantine, source, key
        self._name, self._fatal = name, fatal
        self.failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if error is None:
            self._quarantine.release(self._source, self._key)
            return False
        if isinstance(error, self._fatal) or not isinstance(error, Exception):
            return False
        self.failed = True
        self._quarantine.put(self._source, self._key, error, name=self._name)
        return True


def reason_of(error: Exception) -> str:
    """A stable token for a metric: never text from the input."""
    code = getattr(error, "code", None)
    known = isinstance(code, str) and code.isidentifier() and len(code) <= LONGEST_KEY
    return str(code) if known else type(error).__name__


def _is_expected(error: Exception) -> bool:
    """Whether the error itself says what is wrong; for any other the traceback is needed."""
    return hasattr(error, "code") or isinstance(error, msgspec.MsgspecError | UnicodeError)


def _printable(text: str, longest: int) -> str:
    """A text on one line, cut to a length."""
    shown = text if text.isprintable() else ascii(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."
