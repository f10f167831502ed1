"""Who gets a ``/dev/shm`` of their own, and who is told that there is none to be had."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskSpec
from carrel_scheduler.engines.local.environment import check_shared_memory

MIB = 1024**2


def task(*, large_shm: bool = True, memory_mib: int = 0) -> TaskSpec:
    return TaskSpec(
        id=TaskId("w", 0, 0),
        name="t",
        project="p",
        user="ada",
        node="n",
        memory_mib=memory_mib,
        large_shm=large_shm,
    )


def has(monkeypatch: pytest.MonkeyPatch, mib: int) -> None:
    facts = SimpleNamespace(f_frsize=4096, f_blocks=mib * MIB // 4096)
    monkeypatch.setattr(os, "statvfs", lambda path: facts)


def test_a_large_one_of_the_machine_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, 65)
    check_shared_memory(task())


def test_a_containers_usual_one_is_refused_to_who_needs_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has(monkeypatch, 64)
    with pytest.raises(EngineError, match=r"has 64 MiB here.*--shm-size"):
        check_shared_memory(task())
    check_shared_memory(task(large_shm=False))


def test_a_machine_without_any_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be used"):
        check_shared_memory(task(), tmp_path / "missing")
