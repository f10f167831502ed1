"""The contract of ``ObjectStore`` on custom resources, and what only a cluster can do to them."""

from typing import Any

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.resources import kinds, listing
from carrel_scheduler.ledger.resources import store as store_module
from carrel_scheduler.ledger.resources.store import KubernetesStore
from carrel_scheduler.ledger.store import ChangeType, Expired
from carrel_schema import names
from carrel_schema.objects import Department, DepartmentSpec, Meta, Project, Workload
from carrel_schema.sections import NotebookSpec, ScheduleSpec
from contract.ledger.store_tools import take, workload
from contract.object_store import ObjectStoreContract
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import MARKS, client, kubectl, ours
from k8s.stores import beginning, store, stores

__all__ = ["beginning", "client", "kubectl", "ours", "store", "stores"]

pytestmark = MARKS
TRAININGS = kinds.WORK["training"].resource
FAR_AHEAD = 1_000_000_000
SCHEDULE: dict[str, Any] = {
    "schedule": ScheduleSpec(cron="0 3 * * *"),
    "notebook": NotebookSpec(path="a.ipynb"),
}


class TestObjectStore(ObjectStoreContract):
    """Every rule."""

    many = 100


class TestOnACluster:
    """Several kinds, other people's hands, versions that are not ours."""

    async def test_kinds_of_work_are_one_list_and_one_watch(
        self, store: KubernetesStore, beginning: int
    ) -> None:
        made = [
            await store.create(workload("desk", kind="workspace")),
            await store.create(workload("train")),
            await store.create(workload("gang", "speech", kind="distributed", tasks=2)),
        ]
        assert list((await store.list(Workload)).items) == made
        assert [await store.get_by_uid(Workload, one.meta.uid) for one in made] == made
        assert await store.get(Workload, "gang", "speech") == made[2]
        changes = await take(store.watch(Workload, beginning), 3)
        found = sorted((change.object for change in changes), key=lambda one: one.meta.created_at)
        assert found == made

    async def test_a_page_and_its_watch_are_of_one_version(self, store: KubernetesStore) -> None:
        await store.create(workload("before", kind="workspace"))
        page = await store.list(Workload)
        after = await store.create(workload("after", kind="schedule", **SCHEDULE))
        (change,) = await take(store.watch(Workload, page.version), 1)
        assert change.object == after

    async def test_a_list_in_pages_is_whole(
        self, store: KubernetesStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listing, "PAGE", 1)
        made = [await store.create(workload(f"train-{number}")) for number in range(3)]
        made += [await store.create(workload(f"desk-{n}", kind="workspace")) for n in range(3)]
        assert list((await store.list(Workload)).items) == made

    async def test_departments_are_stored_likewise(self, store: KubernetesStore) -> None:
        made = await store.create(
            Department(meta=Meta(name="sciences"), spec=DepartmentSpec(rank=3))
        )
        assert await store.get(Department, "sciences") == made
        assert (await store.list(Project)).items == []

    async def test_what_nobody_has_taken_on_is_not_seen(
        self, store: KubernetesStore, ours: ControlPlane
    ) -> None:
        ours.ask("POST", TRAININGS.path("carrel-vision"), TYPED)
        assert (await store.list(Workload)).items == []
        ours.ask("DELETE", TRAININGS.path("carrel-vision", "typed"))

    async def test_a_deletion_by_hand_asks_for_the_end(
        self, store: KubernetesStore, ours: ControlPlane
    ) -> None:
        made = await store.create(workload())
        watch = store.watch(Workload, made.meta.resource_version, statuses=False)
        ours.ask("DELETE", TRAININGS.path("carrel-vision", "train-1"))
        (asked,) = await take(watch, 1)
        assert asked.type is ChangeType.MODIFIED
        assert asked.object.spec.delete
        await store.remove(asked.object)
        assert (await take(watch, 1))[0].type is ChangeType.DELETED
        assert ours.get(TRAININGS.path("carrel-vision"))["items"] == []

    async def test_what_was_let_go_half_makes_room_for_the_next(
        self, store: KubernetesStore, client: KubeClient
    ) -> None:
        made = await store.create(workload())
        marks = {"labels": {names.UID: None}, "annotations": {names.GONE: "true"}}
        body = {"metadata": {**marks, "finalizers": []}}
        await client.patch(TRAININGS, "train-1", body, "carrel-vision")
        again = await store.create(workload())
        assert again.meta.uid != made.meta.uid

    async def test_what_others_wrote_there_stays(
        self, store: KubernetesStore, ours: ControlPlane
    ) -> None:
        await store.create(workload())
        path = TRAININGS.path("carrel-vision", "train-1")
        ours.ask("PATCH", path, {"metadata": {"annotations": {"team.example/note": "kept"}}})
        obj = await store.get(Workload, "train-1", "vision")
        obj.spec.suspend = True
        await store.update_status(await store.update(obj))
        assert ours.get(path)["metadata"]["annotations"]["team.example/note"] == "kept"

    async def test_a_project_without_a_namespace_is_refused(
        self, store: KubernetesStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "NAMESPACE_TRIES", 2)
        with pytest.raises(InvalidArgument, match="one whose namespace carrel-nowhere exists"):
            await store.create(workload(project="nowhere"))

    async def test_old_and_coming_versions_expire(self, store: KubernetesStore) -> None:
        with pytest.raises(Expired):
            await take(store.watch(Workload, 1), 1)
        version = (await store.list(Workload)).version
        with pytest.raises(Expired):
            await take(store.watch(Workload, version + FAR_AHEAD), 1)


TYPED = {
    "apiVersion": "carrel.dev/v1alpha1",
    "kind": "Training",
    "metadata": {"name": "typed", "namespace": "carrel-vision"},
    "spec": {"user": "ada", "command": ["true"]},
}
