"""The garbage collector rests while the scheduler decides."""

import gc
from collections.abc import Iterator

import pytest

from carrel_scheduler.workloads.reconcile.deciding import collector_paused

Generations = list[int]


@pytest.fixture
def collections() -> Iterator[Generations]:
    """The generations that were collected, with a collector that looks all the time."""
    usual, found = gc.get_threshold(), Generations()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    gc.set_threshold(10, 10, 10)
    yield found
    gc.set_threshold(*usual)
    gc.callbacks.remove(note)


def _make() -> list[list[int]]:
    return [[number] for number in range(1000)]


def test_nothing_is_collected_inside_and_all_that_is_due_afterwards(
    collections: Generations,
) -> None:
    with collector_paused():
        collections.clear()
        kept = _make()
        inside = len(collections)
    kept += _make()
    assert (inside, len(collections) > 0, gc.isenabled()) == (0, True, True)


def test_a_failure_inside_leaves_the_collector_on() -> None:
    with pytest.raises(ValueError, match="lost"), collector_paused():
        raise ValueError("lost")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
