"""Work that comes as a custom resource is taken on from those whom the access rules let make it."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.kube.metadata import Metadata
from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.policy.rights import RightsUnknown
from carrel_scheduler.workloads.namespaces import adoption
from carrel_scheduler.workloads.namespaces.adoption import ObjectAdoption
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Meta, Project, ProjectSpec, Workload


class Records:
    """The ledger and the API server: what was taken on, and what conditions say."""

    def __init__(self, *projects: str) -> None:
        self.projects = projects
        self.taken: list[Workload] = []
        self.conditions: list[dict[str, Any]] = []
        self.scoped = self

    async def get(self, kind: Any, name: str, *_: Any) -> Any:
        if kind is Project and name in self.projects:
            return Project(meta=Meta(name=name), spec=ProjectSpec())
        raise ObjectNotFound(name)

    async def list(self, *_: Any, **__: Any) -> Any:
        return ()

    async def adopt_object(self, workload: Workload, _: Any) -> None:
        self.taken.append(workload)

    async def patch(self, _: Any, __: str, body: Any, *___: Any) -> None:
        self.conditions += body["status"]["conditions"]


class Room:
    """A scheduler with room for everything."""

    def mig_model(self) -> str:
        return ""

    def only_instances(self) -> bool:
        return False

    def unsupported_field(self, _: Workload) -> None:
        return None

    def never(self, _: Workload) -> None:
        return None


class Rules:
    """What the access rules say, and whom they were asked about."""

    def __init__(self, *may: str) -> None:
        self.may, self.asked = may, list[tuple[str, str, str]]()
        self.silent = 0

    async def __call__(self, project: str, user: str, kind: WorkloadKind) -> bool:
        self.asked.append((project, user, kind))
        if self.silent:
            self.silent -= 1
            raise RightsUnknown("the Hub does not answer")
        return user in self.may


async def taken(
    rules: Rules | None, user: str = "ada", kind: WorkloadKind = "training", **spec: Any
) -> Records:
    records, room = Records("vision"), Room()
    there: Any = records
    made = ObjectAdoption(there, there, room, lambda: 0.0, may_create=rules)  # type: ignore[arg-type]
    content = msgspec.json.encode({"user": user, "command": ["true"], **spec})
    meta = Metadata(
        name="a",
        namespace="carrel-vision",
        uid="u",
        resource_version="1",
        creation_timestamp="2026-11-28T00:00:00Z",
    )
    stored = StoredResource(metadata=meta, spec=msgspec.Raw(content))
    await made.take(Workload, kinds.WORK[kind].resource, stored)
    return records


async def test_who_may_make_work_has_it_taken_on() -> None:
    rules = Rules("ada")
    found = await taken(rules)
    assert [one.spec.user for one in found.taken] == ["ada"]
    assert not found.conditions
    assert rules.asked == [("vision", "ada", "training")]
    assert (await taken(None, "eve")).taken, "without rules the API server alone decides"


@pytest.mark.parametrize(
    ("kind", "spec", "permission"),
    [("training", {}, "workloads:create"), ("inference", {"inference": {}}, "inference:create")],
)
async def test_who_may_not_is_told_by_a_condition(
    kind: WorkloadKind, spec: dict[str, Any], permission: str
) -> None:
    found = await taken(Rules("ada"), "eve", kind, **spec)
    assert not found.taken
    [condition] = found.conditions
    assert (condition["type"], condition["status"]) == ("Accepted", "False")
    assert condition["reason"] == "NotPermitted"
    assert condition["message"] == (
        "spec.user is `eve`, who may not make this in the project vision: that may its members, "
        f"and whom an access rule gives `{permission}` there."
    )


async def test_rights_come_before_what_else_is_wrong() -> None:
    """Who has no rights learns nothing of the project's assets, policies and nodes."""
    found = await taken(Rules(), "eve", assets={"compute": "secret"})
    assert [one["reason"] for one in found.conditions] == ["NotPermitted"]
    mine = await taken(Rules("ada"), assets={"compute": "secret"})
    assert [one["reason"] for one in mine.conditions] == ["UnknownAsset"]


async def test_work_of_nobody_is_that_of_who_may_submit_for_others() -> None:
    rules = Rules()
    found = await taken(rules, "")
    assert (len(found.taken), rules.asked) == (1, [])


async def test_it_is_asked_again_while_the_hub_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither taken on nor refused meanwhile."""
    monkeypatch.setattr(adoption, "AGAIN_SECONDS", 0)
    rules = Rules("ada")
    rules.silent = 2

    async def as_it_is(_: Any, __: Any, stored: StoredResource) -> StoredResource:
        return stored

    monkeypatch.setattr(ObjectAdoption, "_as_it_is", as_it_is)
    found = await taken(rules)
    assert (len(found.taken), len(rules.asked)) == (1, 3)
    assert not found.conditions
