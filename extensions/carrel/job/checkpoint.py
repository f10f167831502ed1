"""``carrel.checkpoint``: save so that nothing is lost when the job has to give way.

    state = carrel.checkpoint.restore(default={"step": 0, "weights": start})
    while state["step"] < 1000:
        train_one_step(state)
        if carrel.checkpoint.every(30):
            carrel.checkpoint.save(state, step=state["step"])
        if carrel.checkpoint.preempted():
            carrel.checkpoint.exit_for_preemption()

Files lie in ``CARREL_CHECKPOINT_DIR``, which stays when the job starts again elsewhere; outside a
job in ``./checkpoints``.
"""

import time
from pathlib import Path
from typing import Any

from carrel.job.preemption import exit_for_preemption, on_preempt, preempted, told
from carrel.job.report import reporter
from carrel.job.store import CheckpointStore, Damaged, Saved
from carrel.job.task import present, warn

__all__ = ["every", "exit_for_preemption", "latest", "on_preempt", "preempted", "restore", "save"]

DEFAULT_EVERY_SECONDS = 60.0


class _Pace:
    """When the last save was, on the monotonic clock; ``None`` before the first question."""

    last: float | None = None
    told: bool = False


def save(
    value: Any, step: int | None = None, *, keep: int = 3, directory: Path | str | None = None
) -> Path:
    """Write a checkpoint that is there wholly or not at all, even through a crash.

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

    Before the job has one of its own, it is that of the work it was told to go on from
    (``--continue-from``). What a function wrote comes back as its path. A damaged checkpoint is
    passed over, which is said on stderr.
    """
    store = _store(directory)
    store.clean()
    nothing = object()
    found = _latest_whole(store, "going on from the checkpoint of step", nothing)
    before = present().continue_from
    if found is nothing and before is not None and directory is None:
        store = CheckpointStore(before)
        found = _latest_whole(store, "beginning with the other job's checkpoint of step", nothing)
    return default if found is nothing else found


def _latest_whole(store: CheckpointStore, words: str, nothing: object) -> Any:
    """The latest one that can be read, said with these words; ``nothing`` where there is none."""
    for step, _, folder in reversed(store.names()):
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
    """Whether it is time to save: ``seconds`` have passed since the last save.

    ``--checkpoint-every`` of the submission (``CARREL_CHECKPOINT_EVERY``) goes before ``seconds``,
    so that the pace can be chosen without changing the program; 60 when neither is given. Once the
    job was told to give way it is time at once, one time.
    """
    now = time.monotonic()
    if _Pace.last is None:
        _Pace.last = now
    if told() and not _Pace.told:
        _Pace.told = True
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
