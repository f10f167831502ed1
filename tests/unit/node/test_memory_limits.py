"""What the driver answers about limits of memory by control group, through the real pynvml."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pynvml
import pytest

from carrel_scheduler.node.memory_limits import (
    DIVIDED,
    NO_LIMITS,
    OLD_BINDING,
    GroupMemoryLimits,
    MemoryLimitError,
)
from gpu_driver.session import machine
from gpu_driver.state import GpuState

NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION = 3, 13, 4


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuState]:
    with machine(tmp_path / "gpus", devices=2) as state:
        yield state


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (NOT_SUPPORTED, NO_LIMITS),
        (FUNCTION_NOT_FOUND, NO_LIMITS),
        (NO_PERMISSION, "the driver answered 'Insufficient Permissions'"),
    ],
)
def test_a_refusal_is_told_in_words(
    gpus: GpuState, tmp_path: Path, answer: int, words: str
) -> None:
    gpus.has_limits(answer)
    limits = GroupMemoryLimits()
    with pytest.raises(MemoryLimitError, match=words):
        limits.try_with(tmp_path)
    uuid = gpus.layout.devices[0].uuid.decode()
    with pytest.raises(MemoryLimitError, match=words):
        limits.limit(tmp_path, uuid, 4096)
    assert not limits.holds(tmp_path, uuid, 4096)


def test_what_is_no_control_group_has_no_limit(gpus: GpuState, tmp_path: Path) -> None:
    gpus.has_limits()
    with pytest.raises(MemoryLimitError, match="Invalid Argument"):
        GroupMemoryLimits().try_with(tmp_path)
    assert gpus.limits() == {}


def test_divided_gpus_have_none(gpus: GpuState, tmp_path: Path) -> None:
    gpus.has_limits()
    for device in gpus.layout.devices:
        device.mig_mode = 1
    with pytest.raises(MemoryLimitError, match=DIVIDED):
        GroupMemoryLimits().try_with(tmp_path)


def test_an_older_binding_is_named(tmp_path: Path) -> None:
    older = ModuleType("pynvml")
    vars(older).update(vars(pynvml))
    del older.nvmlDeviceSetMemoryLimits_v1
    with pytest.raises(MemoryLimitError, match=OLD_BINDING):
        GroupMemoryLimits(older).try_with(tmp_path)
