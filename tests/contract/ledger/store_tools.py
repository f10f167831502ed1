"""Tools of the contracts of stores."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

from carrel_scheduler.ledger.store import Change, ObjectStore
from carrel_schema.objects import (
    Meta,
    Project,
    ProjectSpec,
    Quota,
    Workload,
    WorkloadSpec,
)

TIMEOUT_SECONDS = 120.0


class ClosableStore(ObjectStore, Protocol):
    """A store that can be closed."""

    async def close(self) -> None:
        """Finish and close."""
        ...


class Stores(Protocol):
    """Opens the store under test."""

    async def open(self, *, keep_changes: int = 50_000) -> ClosableStore:
        """Open the same data again."""
        ...


def workload(name: str = "train-1", project: str = "vision", **spec: Any) -> Workload:
    """A workload as the API would create it."""
    labels = spec.pop("labels", {})
    fields = {"user": "ada", "command": ["python", "train.py"], "files": {"train.py": "π = 3"}}
    return Workload(
        meta=Meta(name=name, project=project, created_by="ada", labels=labels),
        spec=WorkloadSpec(**{**fields, **spec}),
    )


def project(name: str = "vision") -> Project:
    """A project as an admin would create it."""
    return Project(meta=Meta(name=name), spec=ProjectSpec(quota=Quota(gpu_milli=2000)))


async def take(changes: AsyncIterator[Change[Any]], count: int) -> list[Change[Any]]:
    """Take so many changes, or fail after a while."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return [await anext(changes) for _ in range(count)]


def story(changes: list[Change[Any]]) -> list[tuple[str, str]]:
    """Names and types, for comparison."""
    return [(change.object.meta.name, change.type.value) for change in changes]
