"""Namespaces of projects: one that fails is tried again, named meanwhile, and holds up no other."""

import asyncio
from typing import Any

import pytest

from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.objects import Meta, Project, ProjectSpec

NOTHING: Any = None


async def test_a_project_that_nobody_foresaw_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    made = Namespaces(
        NOTHING,
        NOTHING,
        system="carrel-system",
        checkpoints=Checkpoints(),
        chance=lambda: 0.5,
        pause=pause,
    )
    made.quarantine = Quarantine(lambda: 0.0)
    seen: list[str] = []

    async def ensure(project: Project) -> None:
        seen.append(project.meta.name)
        if project.meta.name == "odd" and len(pauses) < 3:
            assert pauses == [] or made.quarantine.holds("namespace", "odd")
            raise ZeroDivisionError

    monkeypatch.setattr(made, "ensure", ensure)
    odd, good = (Project(meta=Meta(name=name), spec=ProjectSpec()) for name in ("odd", "good"))
    await asyncio.gather(
        made._until_done(odd, gone=False),
        made._until_done(good, gone=False),
    )
    assert seen.count("odd") == 4
    assert seen.count("good") == 1
    assert not list(made.quarantine.items)
