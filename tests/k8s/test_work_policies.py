"""Policies on a real API server: refusals by ``kubectl`` name rule and scope, defaults are set."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.policy_records import KIND
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.namespaces.adoption import ObjectAdoption
from carrel_scheduler.workloads.namespaces.work_policies import WorkPolicies
from carrel_schema.governance.policies import PolicyFields
from carrel_schema.objects import Project, ProjectSpec
from carrel_schema.scopes import Scope
from k8s.cluster.control_plane import ControlPlane
from k8s.namespaces import with_namespaces
from k8s.ours import MARKS, ApiUser, CommandResult, client, installed, kubectl, ours, until
from k8s.stores import KubernetesLedgers, ledgers
from k8s.test_projects import Fits

__all__ = ["client", "installed", "kubectl", "ledgers", "ours"]

pytestmark = MARKS
PLATFORM_RULES: Final = {
    "image": {"allowed": ["registry.example.org/*", "busybox"]},
    "priority": {"default": "train", "locked": True},
}
PROJECT_RULES: Final = {
    "gpus": {"max": 4, "message": "ask Grace"},
    "cpu_millicores": {"max": 8000, "min": 500},
    "memory_bytes": {"max": 2**33},
    "time_limit_seconds": {"max": 600},
    "environment.MODE": {"allowed": ["batch"]},
    "labels.cost-center": {"required": True},
    "experiment.parallelism": {"max": 2},
    "grace_seconds": {"default": 7},
}
FITTING: Final[dict[str, Any]] = {"user": "ada", "command": ["true"], "timeLimitSeconds": 60}


class Bench:
    """The scheduler's part by its own account, and somebody with ``kubectl``."""

    def __init__(
        self, ledger: KubernetesLedger, scheduler: KubeClient, plane: ControlPlane
    ) -> None:
        self.ledger = ledger
        self.ada = ApiUser(plane, "ada", ("project-pol-a", "project-pol-b"))
        self.projects: list[Project] = []
        self.now = 0.0
        self.quarantine = Quarantine(lambda: self.now)
        self.policies = WorkPolicies(
            ledger,
            scheduler,
            lambda: self.projects,
            clock=lambda: self.now,
            chance=random.random,
            quarantine=self.quarantine,
        )

    async def put(self, name: str, scope: Scope, rules: dict[str, Any], **more: Any) -> None:
        fields = msgspec.convert({"rules": rules, **more}, PolicyFields)
        content = msgspec.Raw(msgspec.json.encode(fields))
        record = ScopedRecord(kind=KIND, scope=scope, name=name, content=content)
        await self.ledger.scoped.put(record, actor="root")

    async def look(self) -> None:
        self.now += 100.0
        await self.policies.look()
        assert not list(self.quarantine.items)

    def create(
        self, project: str = "pol-a", kind: str = "Training", labels: Any = None, **spec: Any
    ) -> CommandResult:
        """What ada is told about new work; nothing is made."""
        labels = {"cost-center": "a1"} if labels is None else labels
        meta = {"name": "judged", "namespace": f"carrel-{project}", "labels": labels}
        made = {"apiVersion": "carrel.dev/v1alpha1", "kind": kind, "metadata": meta}
        return self.ada.create({**made, "spec": {**FITTING, **spec}})

    async def until_refused(self, words: str, **spec: Any) -> None:
        """Policies and their parameters are in force after a moment."""
        heard: list[str] = []

        def refused() -> bool:
            heard.append(self.create(**spec).error)
            return words in heard[-1]

        try:
            await asyncio.to_thread(until, refused, words, 60.0)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last one says: {heard[-1]}") from error


@pytest.fixture
async def bench(
    installed: ControlPlane, ledgers: KubernetesLedgers, tmp_path: Path
) -> AsyncIterator[Bench]:
    """Two projects, with policies of the platform and of the first."""
    ledger = await ledgers.open()
    specs = {name: ProjectSpec() for name in ("pol-a", "pol-b")}
    async with with_namespaces(installed, ledger, tmp_path, specs) as (scheduler, projects):
        made = Bench(ledger, scheduler, installed)
        made.projects += projects
        await made.put("installation", Scope(), PLATFORM_RULES)
        await made.put("small", Scope("project", "pol-a"), PROJECT_RULES)
        await made.look()
        await made.until_refused("at most 4", resources={"gpus": 8})
        yield made


async def test_what_a_rule_refuses_is_told_with_the_rule_and_its_scope(bench: Bench) -> None:
    small, installation = "(policy `small` of project/pol-a)", "(policy `installation` of platform)"
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"resources": {"gpus": 8}},
            f"spec.resources.gpus is 8; it should be at most 4 {small}: ask Grace",
        ),
        ({"resources": {"cpu": 64}}, f'spec.resources.cpu is 64; it should be at most "8" {small}'),
        ({"resources": {"cpu": "100m"}}, f'it should be at least "500m" {small}'),
        ({"resources": {"memory": "9Gi"}}, f'it should be at most "8Gi" {small}'),
        ({"timeLimitSeconds": 601}, f"it should be at most 600 {small}"),
        ({"timeLimitSeconds": None}, "spec.timeLimitSeconds is not given; it should be at most"),
        ({"environment": {"MODE": "live"}}, "spec.environment.MODE is live"),
        ({"labels": {}}, f"labels.cost-center is not given; it should be given {small}"),
        ({"priority": "high"}, f'spec.priority is high; it should be "train" {installation}'),
        ({"image": "docker.io/evil"}, f'one of "registry.example.org/*", "busybox" {installation}'),
        (
            {"kind": "Experiment", "experiment": {"parallelism": 3}},
            f"spec.experiment.parallelism is 3; it should be at most 2 {small}",
        ),
        (
            {"kind": "Schedule", "schedule": {"cron": "0 3 * * *", "runs": "training"}}
            | {"resources": {"gpus": 5}},
            f"spec.resources.gpus is 5; it should be at most 4 {small}",
        ),
    ]
    for spec, words in cases:
        told = bench.create(**spec)
        assert told.code, spec
        assert words in told.error, (spec, told.error)


async def test_what_rules_allow_is_taken_and_other_projects_have_their_own(bench: Bench) -> None:
    fitting: list[dict[str, Any]] = [
        {},
        {"resources": {"gpus": 4, "cpu": "8", "memory": "8192Mi"}},
        {"image": "registry.example.org/lab/torch:2.6", "priority": "train"},
        {"image": "busybox", "environment": {"MODE": "batch", "OTHER": "x"}},
    ]
    for spec in fitting:
        told = bench.create(**spec)
        assert told.code == 0, (spec, told.error)
    other = bench.create("pol-b", labels={}, resources={"gpus": 8}, timeLimitSeconds=None)
    assert other.code == 0, other.error
    refused = bench.create("pol-b", image="docker.io/evil")
    assert "(policy `installation` of platform)" in refused.error


async def test_changed_policies_count_soon_and_nobody_else_changes_them(
    bench: Bench, ours: ControlPlane
) -> None:
    await bench.put("small", Scope("project", "pol-a"), {"gpus": {"max": 2}})
    await bench.look()
    await bench.until_refused("at most 2", resources={"gpus": 3})
    assert bench.create(labels={}, timeLimitSeconds=None).code == 0
    policy = kinds.WORKLOAD_POLICY.resource
    assert "policy `small`" in bench.ada.get(policy, "carrel-pol-a", "carrel").out
    assert "forbidden" in bench.ada.delete(policy, "carrel", "carrel-pol-a").error
    ours.ask("DELETE", policy.path("carrel-pol-a", "carrel"))
    await bench.look()
    await bench.until_refused("at most 2", resources={"gpus": 3})
    await bench.ledger.scoped.remove(KIND, Scope("project", "pol-a"), "small")
    await bench.ledger.scoped.remove(KIND, Scope(), "installation")
    await bench.look()
    assert "NotFound" in ApiUser(ours).get(policy, "carrel-pol-a", "carrel").error
    free: dict[str, Any] = {"resources": {"gpus": 64}, "image": "docker.io/evil"}
    await asyncio.to_thread(until, lambda: bench.create(**free).code == 0, "freedom")


async def test_what_is_taken_on_has_the_defaults(
    bench: Bench, client: KubeClient, ours: ControlPlane
) -> None:
    content = msgspec.Raw(b'{"fields": {"gpus": 2}}')
    two = ScopedRecord(kind="asset-compute", scope=Scope(), name="two", content=content)
    await bench.ledger.scoped.put(two, actor="root")
    await bench.put("sizes", Scope("project", "pol-a"), {"assets.compute": {"default": "two"}})
    live: Any = Fits()
    adoption = ObjectAdoption(bench.ledger, client, live, lambda: 1_790_000_000.0)
    task = asyncio.create_task(adoption.run())
    meta = {"name": "filled", "namespace": "carrel-pol-a", "labels": {"cost-center": "a1"}}
    work = {"apiVersion": "carrel.dev/v1alpha1", "kind": "Training", "metadata": meta}
    trainings = kinds.WORK["training"].resource
    path = trainings.path("carrel-pol-a", "filled")

    def taken() -> Any:
        found = ours.get(path)
        return found if "carrel.dev/uid" in found["metadata"]["labels"] else None

    try:
        # Without `cpu` it would have less than the least, and a condition that says so.
        made = {**work, "spec": {**FITTING, "resources": {"cpu": 1}}}
        ours.ask("POST", trainings.path("carrel-pol-a"), made)
        spec = (await asyncio.to_thread(until, taken, "adoption"))["spec"]
        assert (spec["graceSeconds"], spec["priority"]) == (7, "train")
        assert (spec["assets"]["compute"], spec["resources"]["gpus"]) == ("two", 2)
    finally:
        task.cancel()
        await asyncio.wait([task])
        ours.ask("DELETE", path)
