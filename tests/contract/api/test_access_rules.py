"""Access rules: every role, in its scope and outside, by every operation; and who may give them."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.api.principals.access_rules import AccessRules
from carrel_scheduler.api.principals.service_accounts import USE_KIND, ServiceAccountIdentity
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.rights import RightsUnknown
from carrel_schema.governance.roles import ROLES, AccessRuleFields
from carrel_schema.scopes import Scope
from contract.api.service import ApiHarness
from contract.api.test_roles import (
    CREATE,
    HIDDEN,
    NO,
    NODE_GROUP,
    OF_THEIR_OWN,
    OK,
    RULES,
    SAMPLES,
    STOPPED,
    TEMPLATE,
    call_status,
    harm,
    keep_files,
    operations,
)

PERMISSIONS: dict[str, frozenset[str]] = {name: one.permissions for name, one in ROLES.items()}
WHERE = {
    "create_project": "department/sciences",
    "change_projects": "project/vision",
    "put_department": "department/sciences",
    "put_budget": "project/vision",
    "delete_budget": "project/vision",
    "preview_department": "department/sciences",
    "delete_department": "department/arts",
    "put_policy": "project/vision",
    "delete_policy": "project/vision",
    "create_access_rule": "project/vision",
    "put_service_account": "project/vision",
}
"""What a call of operations that name no project in their path is about; else the platform."""
INSIDE = {
    "platform": ("platform", "department/sciences", "department/arts", "project/vision"),
    "department/sciences": ("department/sciences", "project/vision"),
    "department/arts": ("department/arts",),
    "project/vision": ("project/vision",),
}
GIVEN = [
    *[(role, "platform") for role in ROLES],
    *[(role, "department/sciences") for role in ROLES if role != "administrator"],
    *[(role, "department/arts") for role in ROLES if role != "administrator"],
    ("researcher", "project/vision"),
    ("viewer", "project/vision"),
    ("ml-engineer", "project/vision"),
]


async def grant(
    harness: ApiHarness, role: str, scope: str, who: str = "root", subject: str = "rae"
) -> Any:
    body = {"subject": subject, "role": role, "scope": scope}
    return await harness.ask("POST", "/access-rules", who, json=body)


def wanted(operation: dict[str, Any], role: str, scope: str) -> str:
    """What an operation answers somebody with one role in one scope."""
    name, access = operation["operationId"], operation["x-carrel-access"]
    permission = operation.get("x-carrel-permission", "")
    has, inside = PERMISSIONS[role], INSIDE[scope]
    if access in ("spawner", "gateway", "hub"):
        return NO
    if access == "node":
        return NO
    if access == "admin":
        anywhere = name in ("list_audit_entries", "list_quota_findings")
        about = WHERE.get(
            name, "project/vision" if "{project}" in operation["path"] else "platform"
        )
        allowed = permission in has and (anywhere or about in inside)
        return OF_THEIR_OWN.get((name, "admin"), OK) if allowed else NO
    if access == "user":
        return of_the_caller(name, has, "project/vision" in inside)
    if "project/vision" not in inside:
        stranger = OF_THEIR_OWN.get((name, "of another project"))
        return stranger or HIDDEN
    if access == "member":
        if name in ("delete_model", "delete_kept_checkpoint"):
            return OK if "models:manage" in has else NO
        if permission not in has:
            return NO
        return OF_THEIR_OWN.get((name, "colleague"), OK)
    others = operation["x-carrel-permission-for-others"]
    return OF_THEIR_OWN.get((name, "admin"), OK) if others in has else NO


def of_the_caller(name: str, has: frozenset[str], inside: bool) -> str:
    """What operations answer that decide for themselves."""
    if name.split("_", maxsplit=1)[0] in ("put", "delete") and name.split("_")[1] in (
        *("template", "secret", "asset"),
    ):
        if not inside:
            return HIDDEN
        return OK if f"{name.split('_')[1]}s:manage" in has else NO
    return OF_THEIR_OWN.get((name, "colleague" if inside else "of another project"), OK)


async def furnish(harness: ApiHarness) -> None:
    """Two departments, the project vision in the first, and what the samples name."""
    for name in ("sciences", "arts"):
        await harness.ask("PUT", f"/departments/{name}", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "sciences"})
    await harness.ask("POST", "/node-groups", "root", json=NODE_GROUP)
    empty = {"name": "empty", "department": "sciences"}
    assert (await harness.ask("POST", "/projects", "root", json=empty)).status == 201
    await harness.add("vision", "digits", "ada", kind="inference")
    await keep_files(harness)
    await harness.ask("PUT", "/policies/small?scope=project/vision", "root", json=RULES)
    await harness.ask("PUT", "/secrets/ours?scope=project/vision", "ada", json={"data": {"K": "v"}})
    await harness.ask("PUT", "/templates/ours?scope=project/vision", "ada", json=TEMPLATE)
    asset = {"fields": {"gpus": 1.0}}
    await harness.ask("PUT", "/assets/compute/ours?scope=project/vision", "ada", json=asset)


@pytest.mark.parametrize(("role", "scope"), GIVEN)
async def test_role_by_operation_by_scope(harness: ApiHarness, role: str, scope: str) -> None:
    await furnish(harness)
    assert (await grant(harness, role, scope)).status == 201
    wrong = {}
    for method, template, operation in sorted(operations(), key=harm):
        name = operation["operationId"]
        if name in ("list_trials", "draft_best", "read_study_log", "read_trial_log", "read_output",
                    "list_outputs"):  # fmt: skip
            continue  # of an experiment, by the same rule as other work
        if name in STOPPED:
            await harness.set_status("vision", "train-1", phase="stopped")
        elif name == "delete_workload":
            await harness.set_status("vision", "train-1", phase="running")
        sample = SAMPLES[name]
        if name == "create_project":
            sample = type(sample)({}, {"name": "robots", "department": "sciences"})
        if name == "delete_project" and "project/vision" in INSIDE[scope] and scope[0] == "p":
            sample = sample if scope == "platform" else type(sample)({"project": "vision"})
        path = template.format(**sample.path) + sample.query
        found = await call_status(harness, method, path, sample, "rae-token")
        right = wanted({**operation, "path": template}, role, scope)
        if found != right:
            wrong[name] = f"{found} instead of {right}"
    assert wrong == {}


async def test_an_ml_engineer_deploys_and_does_not_train(harness: ApiHarness) -> None:
    await grant(harness, "ml-engineer", "project/vision")
    served: dict[str, Any] = CREATE | {
        "name": "digits-2",
        "kind": "inference",
        "routes": [{"port": 0}],
    }
    served |= {"inference": {}}
    made = await harness.ask("POST", "/workloads", "rae", json=served)
    assert made.status == 201, made.body
    refused = await harness.ask("POST", "/workloads", "rae", json=CREATE)
    assert (refused.status, refused.code) == (403, "missing_permission")
    assert "`workloads:create` in project/vision" in refused.body["detail"]
    assert (await harness.ask("DELETE", "/workloads/vision/digits-2", "rae")).status == 202
    assert (await harness.ask("DELETE", "/workloads/vision/train-1", "rae")).status == 403


async def test_rights_end_with_their_rule_at_once(harness: ApiHarness) -> None:
    made = await grant(harness, "viewer", "project/vision")
    assert (await harness.ask("GET", "/workloads/vision/train-1", "rae")).status == 200
    listed = await harness.ask("GET", "/workloads", "rae")
    assert {one["project"] for one in listed.body["items"]} == {"vision"}
    who = await harness.ask("GET", "/whoami", "rae")
    held = {"role": "viewer", "scope": "project/vision", "source": "access rule"}
    assert who.body["roles"] == [held]
    path = f"/access-rules/{made.body['id']}"
    assert (await harness.ask("DELETE", path, "rae")).status == 404
    assert (await harness.ask("DELETE", path, "root")).status == 204
    assert (await harness.ask("GET", "/workloads/vision/train-1", "rae")).status == 404
    assert (await harness.ask("GET", "/workloads", "rae")).body["items"] == []


async def test_rules_of_another_process_count_within_two_seconds(harness: ApiHarness) -> None:
    path = "/workloads/vision/train-1"
    assert (await harness.ask("GET", path, "rae")).status == 404
    rule = AccessRuleFields(subject="rae", role="viewer", scope="project/vision")
    record = ScopedRecord(
        kind="access-rule",
        scope=Scope("project", "vision"),
        name="abc",
        content=msgspec.Raw(msgspec.json.encode(rule)),
    )
    await harness.ledger.scoped.put(record, actor="another scheduler")
    harness.clock.now += 2
    assert (await harness.ask("GET", path, "rae")).status == 200
    await harness.ledger.scoped.remove("access-rule", record.scope, "abc")
    harness.clock.now += 2
    assert (await harness.ask("GET", path, "rae")).status == 404


async def test_rights_end_with_their_scope_at_once(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/departments/arts", "root", json={})
    await grant(harness, "department-administrator", "department/arts")
    path = "/permission?permission=projects:create&scope=department/arts"
    assert (await harness.ask("GET", path, "rae")).body["allowed"] is True
    assert (await harness.ask("DELETE", "/departments/arts", "root")).status == 204
    assert (await harness.ask("GET", path, "rae")).body["allowed"] is False
    empty = {"name": "empty"}
    assert (await harness.ask("POST", "/projects", "root", json=empty)).status == 201
    await grant(harness, "viewer", "project/empty")
    path = "/permission?permission=workloads:read&scope=project/empty"
    assert (await harness.ask("GET", path, "rae")).body["allowed"] is True
    assert (await harness.ask("DELETE", "/projects/empty", "root")).status == 204
    assert (await harness.ask("GET", path, "rae")).body["allowed"] is False


async def test_nobody_makes_others_govern(harness: ApiHarness) -> None:
    for name in ("sciences", "arts"):
        await harness.ask("PUT", f"/departments/{name}", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "sciences"})
    head = "department-administrator"
    await grant(harness, head, "department/sciences")
    for role, scope, status in (
        ("viewer", "department/sciences", 201),
        ("ml-engineer", "project/vision", 201),
        (head, "department/sciences", 403),
        ("researcher", "project/vision", 201),
        ("editor", "department/sciences", 403),
        ("viewer", "platform", 403),
        ("viewer", "department/arts", 403),
        ("viewer", "project/speech", 403),
        ("administrator", "platform", 403),
    ):
        answer = await grant(harness, role, scope, "rae", "dora")
        assert answer.status == status, (role, scope, answer.body)
    wide = await grant(harness, "administrator", "project/vision")
    assert wide.fields == {"scope": "wrong_form"}
    assert (await grant(harness, "viewer", "project/nowhere")).fields == {"scope": "not_found"}
    move = {"department": "arts"}
    refused = await harness.ask("PATCH", "/projects/vision", "rae", json=move)
    assert (refused.status, refused.code) == (403, "missing_permission")
    seen = await harness.ask("GET", "/access-rules", "rae")
    assert {one["scope"] for one in seen.body["items"]} == {"department/sciences", "project/vision"}
    assert (await harness.ask("GET", "/access-rules", "bea")).body["items"] == []


async def test_a_department_reads_its_own_part_of_the_audit_log(harness: ApiHarness) -> None:
    for name in ("sciences", "arts"):
        await harness.ask("PUT", f"/departments/{name}", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "sciences"})
    await grant(harness, "department-administrator", "department/sciences")
    found = await harness.ask("GET", "/audit", "rae")
    scopes = {one["scope"] for one in found.body["items"]}
    assert scopes <= {"department/sciences", "project/vision"}
    assert "department/sciences" in scopes
    asked = await harness.ask("GET", "/audit?department=arts", "rae")
    assert asked.body["items"] == []
    assert (await harness.ask("GET", "/audit/verification", "rae")).status == 403


async def test_groups_give_roles_and_workspaces_tokens_carry_none(harness: ApiHarness) -> None:
    body = {"subject": "project-vision", "subject_kind": "group", "role": "editor"}
    await harness.ask("POST", "/access-rules", "root", json=body | {"scope": "platform"})
    made = await harness.ask("POST", "/projects", "bea", json={"name": "robots"})
    assert (made.status, made.code) == (403, "missing_permission")
    assert "tokens of workspaces never carry it" in made.body["detail"]
    checked = await harness.ask("GET", "/permission?permission=projects:create", "bea")
    assert checked.body["allowed"] is False
    assert checked.body["roles"][0] == "editor"
    wrong = await harness.ask("GET", "/permission?permission=projects:make", "bea")
    assert wrong.fields == {"permission": "invalid"}


async def test_a_researcher_of_a_department_submits_and_the_job_has_its_token(
    harness: ApiHarness,
) -> None:
    await harness.ask("PUT", "/departments/sciences", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "sciences"})
    await grant(harness, "researcher", "department/sciences")
    made = await harness.ask("POST", "/workloads", "rae", json=CREATE)
    assert made.status == 201
    await harness.set_status("vision", "new", phase="running")
    token = harness.tokens.issue(made.body["uid"])
    child = await harness.ask("POST", "/workloads", token, json=CREATE | {"name": "child"})
    assert child.status == 201
    assert (
        await harness.ask("POST", "/workloads", "rae", json=CREATE | {"project": "speech"})
    ).status == 403


@pytest.mark.parametrize("gone", ["itself", "with its scope"])
async def test_a_new_service_account_has_no_role_of_an_earlier_one(
    harness: ApiHarness, gone: str
) -> None:
    for name in ("sciences", "arts"):
        await harness.ask("PUT", f"/departments/{name}", "root", json={})
    home = "platform" if gone == "itself" else "department/arts"
    await harness.ask("PUT", f"/service-accounts/ops?scope={home}", "root", json={})
    if gone == "with its scope":
        await harness.ask("PATCH", "/projects/vision", "root", json={"department": "arts"})
    rule = {"subject": "ops", "subject_kind": "service-account", "role": "administrator"}
    rule |= {"scope": "platform"}
    if gone == "with its scope":
        rule |= {"role": "viewer", "scope": "project/vision"}
    assert (await harness.ask("POST", "/access-rules", "root", json=rule)).status == 201
    if gone == "itself":
        assert (await harness.ask("DELETE", "/service-accounts/ops", "root")).status == 204
        assert (await harness.ask("GET", "/access-rules", "root")).body["items"] == []
    else:
        await harness.ask("PATCH", "/projects/vision", "root", json={"department": None})
        assert (await harness.ask("DELETE", "/departments/arts", "root")).status == 204
    await grant(harness, "department-administrator", "department/sciences")
    made = await harness.ask(
        "PUT", "/service-accounts/ops?scope=department/sciences", "rae", json={}
    )
    assert made.status == 200, made.body
    new = await harness.ask("POST", "/service-accounts/ops/tokens", "rae", json={})
    who = await harness.ask("GET", "/whoami", new.body["token"])
    assert (who.body["roles"], who.body["permissions"]) == ([], [])


async def test_a_service_account_is_of_a_scope_that_exists(harness: ApiHarness) -> None:
    for scope in ("department/nowhere", "project/nowhere"):
        path = f"/service-accounts/ci?scope={scope}"
        refused = await harness.ask("PUT", path, "root", json={})
        assert (refused.status, refused.fields) == (422, {"scope": "not_found"})
    assert (await harness.ask("GET", "/service-accounts", "root")).body["items"] == []


async def test_a_service_account_has_its_roles_and_no_more(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/departments/sciences", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "sciences"})
    await grant(harness, "department-administrator", "department/sciences")
    made = await harness.ask("PUT", "/service-accounts/ci?scope=project/vision", "rae", json={})
    assert (made.status, made.body["user"]) == (200, "ci@service-accounts")
    other = await harness.ask(
        "PUT", "/service-accounts/ci?scope=department/sciences", "root", json={}
    )
    assert (other.status, other.code) == (409, "already_exists")
    away = await harness.ask("PUT", "/service-accounts/cd?scope=project/speech", "rae", json={})
    assert away.status == 403
    new = await harness.ask("POST", "/service-accounts/ci/tokens", "rae", json={"days": 2})
    token, path = new.body["token"], f"/service-accounts/ci/tokens/{new.body['id']}"
    assert (await harness.ask("GET", "/workloads/vision/train-1", token)).status == 404
    rule = {"subject": "ci", "subject_kind": "service-account", "role": "researcher"}
    wide = await harness.ask("POST", "/access-rules", "root", json=rule | {"scope": "platform"})
    assert wide.fields == {"scope": "wrong_form"}
    given = await harness.ask(
        "POST", "/access-rules", "rae", json=rule | {"scope": "project/vision"}
    )
    assert given.status == 201
    job = await harness.ask("POST", "/workloads", token, json=CREATE)
    assert job.body["spec"]["user"] == "ci@service-accounts"
    assert (await harness.ask("DELETE", "/workloads/vision/train-1", token)).status == 403
    assert (await harness.ask("DELETE", "/workloads/vision/new", token)).status == 202
    desk_ = CREATE | {"name": "bench", "kind": "workspace"}
    opened = await harness.ask("POST", "/workloads", token, json=desk_)
    assert (opened.status, opened.code) == (403, "user_expected")
    who = await harness.ask("GET", "/whoami", token)
    assert who.body["user"] == "ci@service-accounts"
    [listed] = (await harness.ask("GET", "/service-accounts", "rae")).body["items"]
    assert listed["tokens"][0]["used_at"] == harness.clock.now
    assert token.rpartition(".")[2] not in str(listed)
    assert (await harness.ask("GET", "/service-accounts", "bea")).body["items"] == []
    assert (await harness.ask("POST", "/service-accounts/ci/tokens", "bea", json={})).status == 404
    assert (await harness.ask("GET", "/whoami", f"{token}x")).status == 401
    assert (await harness.ask("DELETE", path, "rae")).status == 204
    assert (await harness.ask("GET", "/whoami", token)).status == 401
    again = (await harness.ask("POST", "/service-accounts/ci/tokens", "rae", json={"days": 1})).body
    harness.clock.now += 86_401
    assert (await harness.ask("GET", "/whoami", again["token"])).status == 401
    assert (await harness.ask("DELETE", "/service-accounts/ci", "rae")).status == 204
    assert (await harness.ask("GET", "/service-accounts", "rae")).body["items"] == []


async def test_the_hub_is_told_where_somebody_may_start_a_workspace(harness: ApiHarness) -> None:
    async def told(user: str) -> list[str]:
        answer = await harness.ask("GET", f"/users/{user}/projects", "spawner")
        assert answer.status == 200
        return list(answer.body["items"])

    assert await told("ada") == ["vision"]
    assert await told("rae") == []
    for role, scope, then in (
        ("viewer", "platform", []),
        ("ml-engineer", "project/speech", []),
        ("researcher", "project/speech", ["speech"]),
        ("researcher", "platform", ["speech", "vision"]),
    ):
        await grant(harness, role, scope)
        assert await told("rae") == then
    assert (await harness.ask("GET", "/users/ada/projects", "ada")).status == 403
    assert (await harness.ask("GET", "/users/ada/projects", "root")).status == 403


async def test_the_last_use_of_a_token_outlives_the_scheduler(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/service-accounts/ci?scope=project/vision", "root", json={})
    new = await harness.ask("POST", "/service-accounts/ci/tokens", "root", json={"days": 2})

    async def used_at(identity: ServiceAccountIdentity) -> float:
        return (await identity.last_uses()).get(new.body["id"], 0.0)

    def another_process() -> ServiceAccountIdentity:
        nobody: Any = None
        return ServiceAccountIdentity(nobody, harness.ledger, lambda: harness.clock.now)

    assert await used_at(another_process()) == 0.0
    first = harness.clock.now
    assert (await harness.ask("GET", "/whoami", new.body["token"])).status == 200
    assert await used_at(another_process()) == first
    entries = len((await harness.ask("GET", "/audit", "root")).body["items"])
    for after in (60.0, 200.0, 50.0):
        harness.clock.now += after
        assert (await harness.ask("GET", "/whoami", new.body["token"])).status == 200
    assert await used_at(another_process()) == first + 310.0
    assert len((await harness.ask("GET", "/audit", "root")).body["items"]) == entries
    assert (await harness.ask("DELETE", "/service-accounts/ci", "root")).status == 204
    assert await harness.ledger.scoped.list(USE_KIND) == []


@pytest.mark.parametrize(
    "path",
    [
        *("projects", "departments", "nodes", "workloads", "samples", "usage", "budgets"),
        *("policies", "templates", "assets", "secrets", "access-rules", "roles", "alerts"),
        *("alert-rules", "service-accounts", "prices", "whoami"),
    ],
)
async def test_who_is_in_no_project_sees_what_pages_show(harness: ApiHarness, path: str) -> None:
    found = await harness.ask("GET", f"/{path}", "rae")
    assert found.status == 200, found.body
    if path in ("projects", "departments", "workloads", "secrets", "templates", "assets"):
        assert found.body["items"] == []


async def test_who_does_not_call_may_make_what_they_may_make_over_rest(harness: ApiHarness) -> None:
    """Members, administrators of the Hub, and whom a rule lets: work, or endpoints alone."""
    rules = AccessRules(harness.ledger, harness.membership, harness.clock)
    assert await rules.may_create("vision", "ada", "training")
    assert await rules.may_create("vision", "ada", "inference")
    assert not await rules.may_create("vision", "carl", "training")
    assert not await rules.may_create("vision", "", "training")
    assert await rules.may_create("vision", "root", "training")
    body = {"subject": "carl", "role": "ml-engineer", "scope": "project/vision"}
    await harness.ask("POST", "/access-rules", "root", json=body)
    harness.clock.now += 3
    assert await rules.may_create("vision", "carl", "inference")
    assert not await rules.may_create("vision", "carl", "training")
    grant = body | {"subject": "ci", "subject_kind": "service-account", "role": "researcher"}
    await harness.ask("PUT", "/service-accounts/ci?scope=project/vision", "root", json={})
    await harness.ask("POST", "/access-rules", "root", json=grant)
    harness.clock.now += 3
    assert await rules.may_create("vision", "ci@service-accounts", "training")
    assert not await rules.may_create("vision", "ci", "training"), "a person of that name"
    harness.membership.down = True
    with pytest.raises(RightsUnknown):
        await rules.may_create("vision", "carl", "training")
