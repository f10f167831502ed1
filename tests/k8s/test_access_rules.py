"""Access rules on a real API server: what ``kubectl`` lets people do follows from them.

The scheduler's part runs with its own account, so its rights and the policies about it are met too.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.resources import ROLE_BINDINGS
from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.access_records import KIND
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.namespaces.access import AccessBindings
from carrel_schema.governance.roles import AccessRuleFields
from carrel_schema.objects import Project, ProjectSpec
from carrel_schema.scopes import Scope
from k8s.cluster.control_plane import ControlPlane, Refused
from k8s.namespaces import with_namespaces
from k8s.ours import MARKS, ApiUser, CommandResult, client, installed, kubectl, ours, until
from k8s.stores import KubernetesLedgers, ledgers

__all__ = ["client", "installed", "kubectl", "ledgers", "ours"]

pytestmark = MARKS
TRAININGS: Final = kinds.WORK["training"].resource
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
        plane: ControlPlane,
        projects: list[Project],
    ) -> None:
        self.ledger, self.plane = ledger, plane
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

    def told(self, who: str, *groups: str) -> ApiUser:
        """Requests of somebody; nothing is kept."""
        return ApiUser(self.plane, who, groups)

    def create(self, who: str, project: str, kind: str = "Training", *groups: str) -> CommandResult:
        """Whether somebody may make work."""
        return self.told(who, *groups).create(work(who, project, kind))

    def delete(self, who: str, project: str) -> CommandResult:
        """What somebody is told who ends work."""
        return self.told(who).delete(TRAININGS, "rules-mine", f"carrel-{project}")

    def may_delete(self, who: str, project: str) -> bool:
        """Whether somebody may end work."""
        return self.delete(who, project).code == 0

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
    installed: ControlPlane, ledgers: KubernetesLedgers, tmp_path: Path
) -> AsyncIterator[Bench]:
    """Three projects with their namespaces, and all rules."""
    ledger = await ledgers.open()
    specs = {name: ProjectSpec(department=department) for name, department in PROJECTS.items()}
    async with with_namespaces(installed, ledger, tmp_path, specs) as (scheduler, projects):
        made = Bench(ledger, scheduler, installed, projects)
        for rule_id in RULES:
            await made.give(rule_id)
        await made.look()
        await made.until_made("mel", "rules-a", "InferenceEndpoint")
        yield made


async def test_people_may_do_what_their_rules_say(bench: Bench) -> None:
    await bench.until_made("ada", "rules-a")
    for project in ("rules-b", "rules-c"):
        assert "forbidden" in bench.create("ada", project).error
    assert "forbidden" in bench.create("mel", "rules-a").error
    for who, groups in (("vic", ("auditors",)), ("nobody", ())):
        assert "forbidden" in bench.create(who, "rules-a", "Training", *groups).error
    where = (TRAININGS, "carrel-rules-c")
    assert bench.told("vic", "auditors").get(*where).code == 0
    assert bench.told("ada").get(*where).code
    assert bench.told("nobody", "system:authenticated").get(*where).code


async def test_a_department_administrator_ends_the_work_of_others_in_all_its_projects(
    bench: Bench, ours: ControlPlane
) -> None:
    for project in PROJECTS:
        made = work("ada", project, name="rules-mine")
        ours.ask("POST", TRAININGS.path(f"carrel-{project}"), made)
    for project in ("rules-a", "rules-b"):
        until(partial(bench.may_delete, "grace", project), f"right of grace in {project}")
        assert "forbidden" in bench.create("grace", project).error
    assert "forbidden" in bench.delete("grace", "rules-c").error
    assert bench.delete("ada", "rules-a").code == 0

    def refused() -> bool:
        return "this is work of ada" in bench.delete("eve", "rules-a").error

    until(refused, "policy that keeps others from it")

    def changed(who: str, **spec: Any) -> str:
        what = (TRAININGS, "rules-mine", {"spec": spec}, "carrel-rules-a")
        return bench.told(who).patch(*what).error

    for who in ("eve", "ada", "grace"):
        assert "stays what it was" in changed(who, user="eve")
    assert "this is work of ada" in changed("eve", command=["false"])
    assert "changed by its owner only" in changed("grace", command=["false"])
    for project in PROJECTS:
        ours.ask("DELETE", TRAININGS.path(f"carrel-{project}", "rules-mine"))


async def test_rights_go_with_the_rule_and_come_back_when_somebody_takes_them(
    bench: Bench, ours: ControlPlane
) -> None:
    await bench.until_made("ada", "rules-a")
    place = ROLE_BINDINGS.path("carrel-rules-a", "carrel-access-r-ada")
    ours.ask("DELETE", place)
    await bench.look()
    await bench.until_made("ada", "rules-a")
    await bench.ledger.scoped.remove(KIND, Scope("project", "rules-a"), "r-ada")
    await bench.look()
    with pytest.raises(Refused, match="NotFound"):
        ours.get(place)

    def refused() -> bool:
        return "forbidden" in bench.create("ada", "rules-a").error

    await asyncio.to_thread(until, refused, "refusal")
