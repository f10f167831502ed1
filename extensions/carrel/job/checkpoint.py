"""``carrel.checkpoint``: save a job's state, restore it, and learn of a preemption.

    state = carrel.checkpoint.restore(default={"step": 0, "weights": start})
    while state["step"] < 1000:
        train_one_step(state)
        if carrel.checkpoint.every(30):
            carrel.checkpoint.save(state, step=state["step"])
        if carrel.checkpoint.preempted():
            carrel.checkpoint.exit_for_preemption()

Files lie in ``CARREL_CHECKPOINT_DIR``, which stays when the job starts again elsewhere; outside a
job in ``./checkpoints``.

A preemption is a SIGTERM and a grace period. The handler is installed with the first question and
calls the one that was there before; where none was, the process no longer ends at once by SIGTERM:
it saves and ends by itself, or is killed after its grace period.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from carrel.job.checkpoint_store import CheckpointStore, Damaged, Saved
from carrel.job.report import flush, reporter
from carrel.job.task import PREEMPTED, present, process_exit, warn

__all__ = ["every", "exit_for_preemption", "latest", "on_preempt", "preempted", "restore", "save"]

DEFAULT_EVERY_SECONDS: Final = 60.0
Handler = Callable[[int, FrameType | None], object]


class PreemptionHandler:
    """The SIGTERM handler of this process and the callbacks that it runs."""

    def __init__(self) -> None:
        self._signalled = False
        self._installed = False
        self._callbacks: list[Callable[[], object]] = []
        self._before: Handler | int | None = None

    def preempted(self) -> bool:
        """Whether the job is being preempted: SIGTERM came; end within the grace period."""
        self.install()
        return self._signalled

    def signalled(self) -> bool:
        """The same, callable from any thread; installs the handler if in the main thread."""
        if threading.current_thread() is threading.main_thread():
            self.install()
        return self._signalled

    def on_preempt(self, callback: Callable[[], object]) -> None:
        """Call ``callback``, in the main thread, as soon as the job is being preempted."""
        self.install()
        self._callbacks.append(callback)

    def install(self) -> None:
        """Install the handler. Raises ``RuntimeError`` the first time outside the main thread."""
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
            self._installed = self._signalled = False
            self._callbacks.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        process_exit.preempted()
        for callback in self._callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001 - shown; one callback must not keep others from saving
                sys.excepthook(*sys.exc_info())
        if callable(self._before):
            self._before(number, frame)


_preemption = PreemptionHandler()
preempted = _preemption.preempted
on_preempt = _preemption.on_preempt
uninstall = _preemption.uninstall


def exit_for_preemption() -> NoReturn:
    """Exit so that the job is requeued; call it after the last save."""
    flush()
    sys.exit(PREEMPTED)


class _Pace:
    """The time of the last save (monotonic), and whether ``every`` has answered a preemption."""

    last: float | None = None
    preempted: bool = False


def save(
    value: Any, step: int | None = None, *, keep: int = 3, directory: Path | str | None = None
) -> Path:
    """Write a checkpoint atomically, even through a crash.

    Args:
        value: anything that pickles, NumPy arrays or a dictionary of them (saved as npz), or a
            function that writes a file or folder to the path it is given, as in
            ``save(lambda path: torch.save(model.state_dict(), path), step=120)``.
        step: how far the work is; by default one more than the last.
        keep: how many of the latest stay.
        directory: elsewhere than the job's own folder.

    Returns:
        The folder of the checkpoint.

    Raises:
        ValueError: for a negative ``step``, ``keep`` below 1, or a function that wrote nothing.
        OSError: when the disk does not take it.
    """
    saved = _store(directory).save(value, step, keep)
    _Pace.last = time.monotonic()
    reporter().put({"checkpoint_step": saved.step})
    return saved.path


def restore(default: Any = None, *, directory: Path | str | None = None) -> Any:
    """The latest checkpoint that is whole, or ``default`` when there is none.

    Before the job has one of its own, it is that of the job named by ``--continue-from``. What a
    function wrote comes back as its path. A damaged checkpoint is passed over, with a line in the
    log.

    Raises ``FileNotFoundError`` where ``--continue-from`` names a checkpoint that is not there.
    """
    store = _store(directory)
    store.clean()
    nothing = object()
    found = _latest_whole(store, "going on from the checkpoint of step", nothing)
    before = present().continue_from
    if found is nothing and before is not None and directory is None:
        store, at = CheckpointStore(before), present().continue_at
        words = "beginning with the other job's checkpoint of step"
        found = _latest_whole(store, words, nothing, at)
        if at and found is nothing:
            raise FileNotFoundError(f"the job that this one continues has no whole checkpoint {at}")
    return default if found is nothing else found


def _latest_whole(store: CheckpointStore, words: str, nothing: object, at: str = "") -> Any:
    """The value of the latest checkpoint that can be read; ``nothing`` where there is none.

    ``at``: only those of this name or step.
    """
    for step, _, folder in reversed(store.names()):
        if at not in ("", folder.name, str(step)):
            continue
        try:
            value = store.load(folder)
        except Damaged as damage:
            warn(f"the checkpoint of step {step:,} is damaged ({damage}); trying the one before.")
            continue
        warn(f"{words} {step:,}.")
        return value
    return nothing


def latest(*, directory: Path | str | None = None) -> Saved | None:
    """Step, folder and time of the newest checkpoint, whole or not."""
    names = _store(directory).names()
    if not names:
        return None
    step, _, folder = names[-1]
    return Saved(step, folder, folder.stat().st_mtime)


def every(seconds: float | None = None) -> bool:
    """Whether to save now: ``seconds`` have passed since the last save.

    ``--checkpoint-every`` of the submission (``CARREL_CHECKPOINT_EVERY``) goes before ``seconds``,
    so that the interval can be chosen without changing the program; 60 when neither is given. When
    the job is being preempted it is true at once, one time.
    """
    now = time.monotonic()
    if _Pace.last is None:
        _Pace.last = now
    if _preemption.signalled() and not _Pace.preempted:
        _Pace.preempted = True
        return True
    pace = present().checkpoint_every
    if pace is None:
        pace = DEFAULT_EVERY_SECONDS if seconds is None else seconds
    if now - _Pace.last < pace:
        return False
    _Pace.last = now
    return True


def _store(directory: Path | str | None) -> CheckpointStore:
    return CheckpointStore(Path(directory) if directory else present().checkpoint_dir)
