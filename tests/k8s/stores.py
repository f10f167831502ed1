"""Openings of the store on the cluster of the tests; what one test leaves is gone for the next."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.writes import Writer
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.resources.rows import open_rows
from carrel_scheduler.ledger.resources.store import KubernetesStore
from carrel_schema.objects import Department, ObjectT, Project, Workload
from contract.ledger.copied_ledgers import empty_ledger
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import make_namespace

PROJECTS: Final = ("vision", "speech")


class KubernetesStores:
    """Opens the store as often as asked, and closes what is open."""

    def __init__(self, client: KubeClient, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._ids, self._ticks = itertools.count(), itertools.count(1)
        self._opened: list[KubernetesStore] = []

    async def open(self, *, keep_changes: int = 50_000) -> KubernetesStore:
        """Open the store again."""
        store = KubernetesStore(
            self._client,
            clock=lambda: 1_790_000_000.0 + next(self._ticks),
            ids=lambda: f"{self._prefix}-{next(self._ids)}",
        )
        self._opened.append(store)
        return store

    async def close(self) -> None:
        """Close whatever is open."""
        for store in self._opened:
            await store.close()


async def remove_everything(store: KubernetesStore) -> None:
    """Remove every object of Carrel."""
    async with Writer() as writer:
        calls = [writer.submit(partial(store.remove, one)) for one in await _all(store, Workload)]
        await asyncio.gather(*calls)
    for project in await _all(store, Project):
        await store.remove(project)
    for department in await _all(store, Department):
        await store.remove(department)


async def _all(store: KubernetesStore, kind: type[ObjectT]) -> Sequence[ObjectT]:
    return (await store.list(kind)).items


@pytest.fixture
async def stores(ours: ControlPlane, client: KubeClient) -> AsyncIterator[KubernetesStores]:
    """Opens the cluster's objects, as often as asked."""
    for name in PROJECTS:
        make_namespace(ours, f"carrel-{name}")
    made = KubernetesStores(client, f"uid{next(_TESTS)}")
    yield made
    await made.close()
    await remove_everything(KubernetesStore(client, clock=float, ids=str))


@pytest.fixture
async def store(stores: KubernetesStores) -> KubernetesStore:
    """An opened store."""
    return await stores.open()


@pytest.fixture
async def beginning(store: KubernetesStore) -> int:
    """The version that the cluster is at when the test begins."""
    return (await store.list(Workload)).version


_TESTS = itertools.count()


class KubernetesLedgers:
    """Opens ledgers whose rows are in one database, as often as asked, and closes what is open."""

    def __init__(self, client: KubeClient, database: Path, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._url = empty_ledger(database)
        self._ids, self._ticks = itertools.count(), itertools.count(1)
        self._opened: list[KubernetesLedger] = []

    async def open(self, *, keep_changes: int = 50_000) -> KubernetesLedger:
        """Open the ledger again."""

        def clock() -> float:
            return 1_790_000_000.0 + next(self._ticks)

        def ids() -> str:
            return f"{self._prefix}-{next(self._ids)}"

        rows = await open_rows(self._url, clock=clock, ids=ids)
        ledger = KubernetesLedger(self._client, rows, clock=clock, ids=ids)
        self._opened.append(ledger)
        return ledger

    async def close(self) -> None:
        """Close whatever is open."""
        for ledger in self._opened:
            await ledger.close()


@pytest.fixture
async def ledgers(
    ours: ControlPlane, client: KubeClient, tmp_path: Path
) -> AsyncIterator[KubernetesLedgers]:
    """Opens the cluster's ledger, as often as asked."""
    for name in PROJECTS:
        make_namespace(ours, f"carrel-{name}")
    made = KubernetesLedgers(client, tmp_path / "rows.sqlite", f"row{next(_TESTS)}")
    yield made
    await made.close()
    await remove_everything(KubernetesStore(client, clock=float, ids=str))
