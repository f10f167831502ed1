"""Access rules on a real API server: what ``kubectl`` lets people do follows from them.

The scheduler's part runs with its own account, so its rights and the policies about it are met too.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.access_records import KIND
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.namespaces.access import AccessBindings
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.governance.roles import AccessRuleFields
from carrel_schema.objects import Meta, Project, ProjectSpec
from carrel_schema.scopes import Scope
from k8s.access import kubeconfig
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import DEPLOY, MARKS, Kubectl, Told, client, kubectl, ours, until
from k8s.stores import KubernetesLedgers, ledgers

__all__ = ["client", "kubectl", "ledgers", "ours"]

pytestmark = MARKS
PROJECTS: Final = {"rules-a": "sciences", "rules-b": "sciences", "rules-c": ""}
RULES: Final = {
    "r-ada": ("ada", "researcher", "project/rules-a", "user"),
    "r-eve": ("eve", "researcher", "project/rules-a", "user"),
    "r-mel": ("mel", "ml-engineer", "project/rules-a", "user"),
    "r-grace": ("grace", "department-administrator", "department/sciences", "user"),
    "r-auditors": ("auditors", "viewer", "platform", "group"),
    "r-everybody": ("system:authenticated", "researcher", "platform", "group"),
}


class Bench:
    """The controller, by the scheduler's account, and people with ``kubectl``."""

    def __init__(
        self,
        ledger: KubernetesLedger,
        scheduler: KubeClient,
        kubectl: Kubectl,
        projects: list[Project],
    ) -> None:
        self.ledger, self._kubectl = ledger, kubectl
        self.now = 0.0
        self.quarantine = Quarantine(lambda: self.now)
        self.bindings = AccessBindings(
            ledger,
            scheduler,
            lambda: projects,
            clock=lambda: self.now,
            chance=random.random,
            quarantine=self.quarantine,
        )

    async def give(self, rule_id: str) -> None:
        subject, role, scope, kind = RULES[rule_id]
        said: Any = {"subject": subject, "role": role, "scope": scope, "subject_kind": kind}
        content = msgspec.Raw(msgspec.json.encode(msgspec.convert(said, AccessRuleFields)))
        where = Scope.parse(scope)
        record = ScopedRecord(kind=KIND, scope=where, name=rule_id, content=content)
        await self.ledger.scoped.put(record, actor="root")

    async def look(self) -> None:
        self.now += 100.0
        await self.bindings.look()
        assert not list(self.quarantine.items)

    def ask(self, who: str, *words: str, given: str = "", groups: tuple[str, ...] = ()) -> Told:
        known = (f"--as={who}", *(f"--as-group={one}" for one in groups))
        return self._kubectl.run(*words, *known, given=given)

    def create(
        self, who: str, project: str, kind: str = "Training", groups: tuple[str, ...] = ()
    ) -> Told:
        """Whether somebody may make work; nothing is made."""
        made = json.dumps(work(who, project, kind))
        words = ("create", "--dry-run=server", "-f", "-")
        return self.ask(who, *words, given=made, groups=groups)

    def delete(self, who: str, project: str, name: str) -> Told:
        """Whether somebody may end work; nothing is ended."""
        words = ("delete", "training", name, "-n", f"carrel-{project}", "--dry-run=server")
        return self.ask(who, *words)

    async def until_made(self, who: str, project: str, kind: str = "Training") -> None:
        """The API server hears of rights a moment after they are written."""
        await asyncio.to_thread(
            until, lambda: self.create(who, project, kind).code == 0, f"right of {who}"
        )


def work(user: str, project: str, kind: str = "Training", name: str = "rules") -> dict[str, Any]:
    sections: dict[str, Any] = {"InferenceEndpoint": {"inference": {}}, "Training": {}}
    return {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": f"carrel-{project}"},
        "spec": {"user": user, "command": ["true"], **sections[kind]},
    }


@pytest.fixture
async def bench(
    ours: ControlPlane, kubectl: Kubectl, ledgers: KubernetesLedgers, tmp_path: Path
) -> AsyncIterator[Bench]:
    """Three projects with their namespaces, and all rules."""
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(DEPLOY))
    ledger = await ledgers.open()
    config = kubeconfig(ours, "carrel-scheduler", tmp_path / "scheduler.json")
    scheduler = KubeClient(from_kubeconfig(config))
    namespaces = Namespaces(
        ledger,
        scheduler,
        system="carrel-system",
        checkpoints=Checkpoints(size="1Gi"),
        chance=random.random,
    )
    projects = []
    for name, department in PROJECTS.items():
        spec = ProjectSpec(department=department)
        projects.append(await ledger.create(Project(meta=Meta(name=name), spec=spec)))
        await namespaces.ensure(projects[-1])
    made = Bench(ledger, scheduler, kubectl, projects)
    for rule_id in RULES:
        await made.give(rule_id)
    await made.look()
    await made.until_made("mel", "rules-a", "InferenceEndpoint")
    yield made
    await scheduler.close()


async def test_people_may_do_what_their_rules_say(bench: Bench) -> None:
    await bench.until_made("ada", "rules-a")
    for project in ("rules-b", "rules-c"):
        assert "forbidden" in bench.create("ada", project).error
    assert "forbidden" in bench.create("mel", "rules-a").error
    for who, groups in (("vic", ("auditors",)), ("nobody", ())):
        assert "forbidden" in bench.create(who, "rules-a", groups=groups).error
    look = ("get", "trainings", "-n", "carrel-rules-c")
    assert bench.ask("vic", *look, groups=("auditors",)).code == 0
    assert bench.ask("ada", *look).code
    assert bench.ask("nobody", *look, groups=("system:authenticated",)).code


async def test_a_department_administrator_ends_the_work_of_others_in_all_its_projects(
    bench: Bench, kubectl: Kubectl
) -> None:
    made = [work("ada", project, name="rules-mine") for project in PROJECTS]
    assert kubectl.apply(*made).code == 0
    for project in ("rules-a", "rules-b"):
        assert bench.delete("grace", project, "rules-mine").code == 0
        assert "forbidden" in bench.create("grace", project).error
    assert "forbidden" in bench.delete("grace", "rules-c", "rules-mine").error
    assert bench.delete("ada", "rules-a", "rules-mine").code == 0
    refused = bench.delete("eve", "rules-a", "rules-mine").error
    assert "this is work of ada" in refused
    words = ("patch", "training", "rules-mine", "-n", "carrel-rules-a", "--type=merge")
    handed = json.dumps({"spec": {"user": "eve"}})
    for who in ("eve", "ada", "grace"):
        told = bench.ask(who, *words, "--dry-run=server", "-p", handed)
        assert "stays what it was" in told.error
    other = json.dumps({"spec": {"command": ["false"]}})
    told = bench.ask("eve", *words, "--dry-run=server", "-p", other)
    assert "this is work of ada" in told.error
    told = bench.ask("grace", *words, "--dry-run=server", "-p", other)
    assert "changed by its owner only" in told.error
    kubectl("delete", "trainings", "--all", "-A", "--wait=false")


async def test_rights_go_with_the_rule_and_come_back_when_somebody_takes_them(
    bench: Bench, kubectl: Kubectl
) -> None:
    await bench.until_made("ada", "rules-a")
    place = ("rolebinding", "carrel-access-r-ada", "-n", "carrel-rules-a")
    kubectl("delete", *place)
    await bench.look()
    assert bench.ask("ada", "auth", "can-i", "create", "trainings.carrel.dev").code
    await bench.until_made("ada", "rules-a")
    await bench.ledger.scoped.remove(KIND, Scope("project", "rules-a"), "r-ada")
    await bench.look()
    assert "NotFound" in kubectl.run("get", *place).error

    def refused() -> bool:
        return "forbidden" in bench.create("ada", "rules-a").error

    await asyncio.to_thread(until, refused, "refusal")
