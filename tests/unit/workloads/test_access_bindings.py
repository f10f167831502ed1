"""Access rules as role bindings: which there should be, and what is done about differences."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml

from carrel_scheduler.kube.client import Listing
from carrel_scheduler.kube.errors import Forbidden, NotFound
from carrel_scheduler.kube.resources import NAMESPACES, Resource
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.manifests.rights import GRANTS, rules
from carrel_scheduler.policy.access_records import DIRECTORY_KIND, KIND
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.namespaces import access
from carrel_scheduler.workloads.namespaces.access import AccessBindings
from carrel_scheduler.workloads.namespaces.synced_objects import COMPARE_SECONDS
from carrel_schema.governance.people import DirectoryGroupFields
from carrel_schema.governance.roles import ALL, ROLES, AccessRuleFields
from carrel_schema.objects import Meta, Project, ProjectSpec
from carrel_schema.scopes import Scope

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"


def project(name: str, department: str = "", *, deleting: bool = False) -> Project:
    return Project(meta=Meta(name=name, deleting=deleting), spec=ProjectSpec(department=department))


def rule(subject: str, role: Any, scope: str, kind: Any = "user") -> AccessRuleFields:
    return AccessRuleFields(subject=subject, role=role, scope=scope, subject_kind=kind)


PROJECTS = [project("a", "sciences"), project("b", "sciences"), project("c")]


class TestWhichThereShouldBe:
    """Pure: from rules and projects."""

    @pytest.mark.parametrize(
        ("scope", "where"),
        [
            ("platform", ["carrel-a", "carrel-b", "carrel-c"]),
            ("department/sciences", ["carrel-a", "carrel-b"]),
            ("department/unheard", []),
            ("project/c", ["carrel-c"]),
            ("project/unheard", []),
        ],
    )
    def test_a_scope_is_the_namespaces_of_its_projects(self, scope: str, where: list[str]) -> None:
        found = access.bindings({"r1": rule("ada", "viewer", scope)}, PROJECTS)
        assert [namespace for namespace, _ in found] == where
        assert {name for _, name in found} <= {"carrel-access-r1"}

    def test_a_binding_names_role_subject_and_rule(self) -> None:
        found = access.bindings({"r1": rule("auditors", "viewer", "project/a", "group")}, PROJECTS)
        (made,) = found.values()
        assert made["roleRef"]["name"] == "carrel-viewer"
        assert [(one["kind"], one["name"]) for one in made["subjects"]] == [("Group", "auditors")]
        assert made["metadata"]["labels"]["carrel.dev/access-rule"] == "r1"

    @pytest.mark.parametrize("subject", ["system:masters", "system:authenticated"])
    @pytest.mark.parametrize("kind", ["user", "group"])
    def test_nobody_of_kubernetes_itself_is_given_anything(self, subject: str, kind: str) -> None:
        given = {"r1": rule(subject, "administrator", "platform", kind)}
        assert access.bindings(given, PROJECTS) == {}


class TestRoles:
    """Cluster roles of the same permissions."""

    def test_all_permissions_that_give_something_are_known(self) -> None:
        assert set(GRANTS) <= ALL

    def test_who_sees_changes_nothing(self) -> None:
        for one in rules(ROLES["viewer"].permissions):
            assert one["verbs"] == ["get", "list", "watch"]

    def test_engineers_make_endpoints_only(self) -> None:
        made = [one for one in rules(ROLES["ml-engineer"].permissions) if "create" in one["verbs"]]
        assert [one["resources"] for one in made] == [["inferenceendpoints"]]

    def test_the_scheduler_may_bind_each_of_them_and_no_others(self) -> None:
        wanted = {access.cluster_role(one) for one in ROLES}
        own = {"carrel-tasks", "carrel-workspaces"}
        rights = yaml.safe_load_all((DEPLOY / "rights" / "scheduler.yaml").read_text())
        (bound,) = [
            frozenset(one["resourceNames"])
            for role in rights
            for one in role.get("rules", [])
            if one["verbs"] == ["bind"]
        ]
        assert bound == wanted | own
        policy = (DEPLOY / "policies" / "scheduler.yaml").read_text()
        listed = policy.partition("object.roleRef.name in [")[2].partition("]")[0]
        assert set(re.findall(r"'([^']+)'", listed)) == wanted

    def test_nobody_enters_pods_or_reads_secrets(self) -> None:
        for one in rules(ALL):
            assert not {"secrets", "pods/exec", "*"} & set(one["resources"])
            assert "*" not in one["verbs"]


class Cluster:
    """Role bindings and namespaces as a client sees them; notes what is written."""

    def __init__(self, *namespaces: str) -> None:
        self.bindings: dict[tuple[str, str], dict[str, Any]] = {}
        self.namespaces = {one: one.removeprefix("carrel-") for one in namespaces}
        self.forbidden: set[str] = set()
        self.lists = 0
        self.writes: list[tuple[str, str, str]] = []

    async def list(self, resource: Resource, label_selector: str = "") -> Any:
        self.lists += 1
        if resource is NAMESPACES:
            items: list[Any] = [
                {"metadata": {"name": name, "labels": {"carrel.dev/project": owner}}}
                for name, owner in self.namespaces.items()
            ]
        else:
            assert label_selector == "carrel.dev/access-rule"
            items = list(self.bindings.values())
        return Listing(items=items, version="1")

    async def delete(self, _: Resource, name: str, namespace: str, uid: str) -> None:
        if self.bindings.pop((namespace, name), None) is None:
            raise NotFound(404, "NotFound", "no such binding")
        self.writes.append(("delete", namespace, name))
        assert uid == f"{namespace}/{name}"

    async def patch(self, _: Resource, name: str, body: Any, namespace: str, **how: Any) -> None:
        assert how["force"]
        if namespace in self.forbidden:
            raise Forbidden(403, "Forbidden", "not there")
        self.writes.append(("apply", namespace, name))
        meta = {**body["metadata"], "namespace": namespace, "uid": f"{namespace}/{name}"}
        self.bindings[namespace, name] = {**body, "metadata": meta}


class Records:
    """A ledger of rules and projects."""

    def __init__(self) -> None:
        self.rules: dict[str, AccessRuleFields] = {}
        self.directory: list[DirectoryGroupFields] = []
        self.projects = list(PROJECTS)
        self.scoped = SimpleNamespace(list=self._scoped)

    async def _scoped(self, kind: str) -> list[ScopedRecord]:
        if kind == DIRECTORY_KIND:
            return [
                ScopedRecord(kind=kind, scope=Scope(), name="staff", content=_json(one))
                for one in self.directory
            ]
        assert kind == KIND
        return [
            ScopedRecord(kind=kind, scope=Scope.parse(one.scope), name=name, content=_json(one))
            for name, one in self.rules.items()
        ]


def _json(content: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(content))


class Bench:
    """A controller with its time."""

    def __init__(self, *namespaces: str) -> None:
        self.now = 1000.0
        self.cluster, self.records = Cluster(*namespaces), Records()
        self.quarantine = Quarantine(lambda: self.now)
        ledger: Any = self.records
        client: Any = self.cluster
        self.controller = AccessBindings(
            ledger,
            client,
            lambda: self.records.projects,
            clock=lambda: self.now,
            chance=lambda: 0.0,
            quarantine=self.quarantine,
        )

    async def look(self, after: float = 0.0) -> list[tuple[str, str, str]]:
        """What is written by one look, some seconds later."""
        self.now += after
        self.cluster.writes.clear()
        await self.controller.look()
        return sorted(self.cluster.writes)


@pytest.fixture
def bench() -> Bench:
    return Bench("carrel-a", "carrel-b", "carrel-c")


class TestKeptEqual:
    """Against the cluster."""

    async def test_a_rule_comes_and_goes(self, bench: Bench) -> None:
        bench.records.rules["r1"] = rule("grace", "viewer", "department/sciences")
        name = "carrel-access-r1"
        made = [("apply", "carrel-a", name), ("apply", "carrel-b", name)]
        assert await bench.look() == made
        assert await bench.look(after=2.0) == []
        del bench.records.rules["r1"]
        assert await bench.look(after=2.0) == [(("delete"), *one[1:]) for one in made]
        assert bench.cluster.bindings == {}

    async def test_projects_that_go_or_have_no_namespace_get_none(self, bench: Bench) -> None:
        bench.records.rules["r1"] = rule("ada", "viewer", "platform")
        bench.records.projects = [project("a", deleting=True), project("system")]
        bench.cluster.namespaces["carrel-system"] = "system"
        assert await bench.look() == []

    async def test_a_project_moves(self, bench: Bench) -> None:
        bench.records.rules["r1"] = rule("grace", "viewer", "department/sciences")
        await bench.look()
        bench.records.projects[1:] = [project("b"), project("c", "sciences")]
        name = "carrel-access-r1"
        moved = [("apply", "carrel-c", name), ("delete", "carrel-b", name)]
        assert await bench.look(after=2.0) == moved

    async def test_what_others_change_is_put_right_within_a_minute(self, bench: Bench) -> None:
        bench.records.rules["r1"] = rule("ada", "viewer", "project/a")
        await bench.look()
        key = ("carrel-a", "carrel-access-r1")
        bench.cluster.bindings[key]["subjects"] = []
        asked = bench.cluster.lists
        assert await bench.look(after=2.0) == []
        assert bench.cluster.lists == asked
        assert await bench.look(after=COMPARE_SECONDS) == [("apply", *key)]
        bench.cluster.bindings[key]["roleRef"] = {"name": "cluster-admin"}
        fixed = [("apply", *key), ("delete", *key)]
        assert await bench.look(after=COMPARE_SECONDS) == fixed

    async def test_nothing_is_written_where_no_project_is_and_done_once_it_is(self) -> None:
        bench = Bench("carrel-a")
        bench.cluster.namespaces["carrel-b"] = "other"
        bench.records.rules["r1"] = rule("ada", "viewer", "department/sciences")
        assert await bench.look() == [("apply", "carrel-a", "carrel-access-r1")]
        bench.cluster.namespaces["carrel-b"] = "b"
        assert await bench.look(after=2.0) == [("apply", "carrel-b", "carrel-access-r1")]

    async def test_one_that_is_refused_keeps_up_no_other_and_is_tried_again(
        self, bench: Bench
    ) -> None:
        bench.cluster.forbidden.add("carrel-a")
        bench.records.rules["r1"] = rule("ada", "viewer", "platform")
        assert [one[1] for one in await bench.look()] == ["carrel-b", "carrel-c"]
        assert bench.quarantine.holds("namespace", "carrel-a/carrel-access-r1")
        bench.cluster.forbidden.clear()
        assert [one[1] for one in await bench.look(after=2.0)] == ["carrel-a"]
        assert not list(bench.quarantine.items)

    async def test_roles_of_the_directorys_groups_are_bound_too(self, bench: Bench) -> None:
        bench.records.directory = [DirectoryGroupFields(role="viewer", scope="project/c")]
        ((_, namespace, name),) = await bench.look()
        assert (namespace, name[:24]) == ("carrel-c", "carrel-access-directory-")
        bench.records.directory = [DirectoryGroupFields(role="researcher", scope="project/c")]
        changed = await bench.look(after=2.0)
        assert sorted(one[0] for one in changed) == ["apply", "delete"]
