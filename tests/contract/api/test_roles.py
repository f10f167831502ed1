"""Every operation for every role, generated from the OpenAPI document.

The expected answer is computed from the operation's ``x-carrel-access``; an operation without a
rule, without a sample or with an access that this table does not know fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from carrel_scheduler.api import openapi
from carrel_scheduler.api.table import OPERATIONS
from carrel_schema.files import StoredCopy
from carrel_schema.objects import WorkloadStatus
from carrel_schema.sections import ExperimentSpec, ExperimentStatus
from contract.api.service import ROOT, ApiHarness

DOCUMENT = msgspec.json.decode(openapi.document(OPERATIONS, "/services/carrel"))
CREATE = {"name": "new", "project": "vision", "command": ["true"]}
CLAIM = {"command": ["jupyterhub-singleuser"]}
STOPPED = {"resume_workload"}
TRAINING = {"project": "vision", "name": "train-1"}
WORKSPACE = {"project": "vision", "name": "desk"}
IN_VISION = {"project": "vision"}
NET = {"project": "vision", "model": "net", "version": "1"}
SWEEP = {"project": "vision", "name": "sweep"}
RULES = {"rules": {"priority": {"message": "x", "required": False, "default": "train"}}}
TEMPLATE = {"fields": {"gpus": 1.0}}
RULE = {"subject": "dora", "role": "viewer", "scope": "project/vision"}
CHANNEL = {"kind": "webhook", "url": "http://127.0.0.1:9/x"}
NODE_GROUP = {"name": "a100", "node_names": ["n1"]}
ASSET = {"type": "compute", "name": "ours"}
OUTPUT = {"digest": sha256(b"an output").hexdigest()}


@dataclass(frozen=True)
class Sample:
    """A well-formed call about the project `vision`, whose work is ada's."""

    path: dict[str, str]
    body: Any = None
    query: str = ""


SAMPLES = {
    "create_workload": Sample({}, CREATE),
    "create_workloads": Sample({}, {"items": [CREATE | {"name": "many-1"}]}),
    "list_workloads": Sample({}, query="?project=vision"),
    "read_workload": Sample(TRAINING),
    "delete_workload": Sample(TRAINING),
    "suspend_workload": Sample(TRAINING),
    "resume_workload": Sample(TRAINING),
    "extend_workload": Sample(WORKSPACE),
    "rerun_workload": Sample(TRAINING, {}),
    "claim_workload": Sample(WORKSPACE, CLAIM),
    "read_logs": Sample(TRAINING),
    "read_history": Sample(TRAINING),
    "read_remedies": Sample(TRAINING),
    "read_metrics": Sample(TRAINING),
    "report": Sample(TRAINING, {"step": 1}),
    "write_result": Sample(TRAINING, b"a result"),
    "read_result": Sample(TRAINING),
    "upload_code": Sample(IN_VISION, b'{"files": []}'),
    "upload_chunk": Sample(IN_VISION | {"digest": sha256(b"a chunk").hexdigest()}, b"a chunk"),
    "read_code": Sample(TRAINING),
    "read_code_content": Sample(TRAINING),
    "list_artifacts": Sample(TRAINING),
    "read_artifact": Sample(TRAINING, query="?path=model.pt"),
    "list_checkpoints": Sample(TRAINING),
    "keep_checkpoint": Sample(TRAINING | {"checkpoint": "1"}, {"name": "fresh"}),
    "list_kept_checkpoints": Sample(IN_VISION),
    "delete_kept_checkpoint": Sample(IN_VISION | {"checkpoint": "kept"}),
    "read_task_files": Sample(TRAINING, query="?path=."),
    "write_task_file": Sample(TRAINING, b"content", query="?path=new"),
    "register_model": Sample(IN_VISION, {"name": "net", "workload": "train-1"}),
    "list_models": Sample(IN_VISION),
    "read_model": Sample(IN_VISION | {"model": "net"}),
    "delete_model": Sample(NET),
    "list_model_files": Sample(NET),
    "read_model_file": Sample(NET, query="?path=model.pt"),
    "stream_events": Sample({}, query="?project=vision"),
    "stream_workload_events": Sample(TRAINING),
    "open_terminal": Sample(TRAINING),
    "run_command": Sample(TRAINING, query="?command=id"),
    "forward_port": Sample(TRAINING, query="?port=80"),
    "list_projects": Sample({}),
    "create_project": Sample({}, {"name": "robots"}),
    "read_project": Sample(IN_VISION),
    "change_project": Sample(IN_VISION, {"description": "x"}),
    "change_projects": Sample({}, {"projects": ["vision"], "changes": {"description": "x"}}),
    "delete_project": Sample({"project": "empty"}),
    "list_members": Sample(IN_VISION),
    "add_member": Sample(IN_VISION | {"user": "dora"}),
    "remove_member": Sample(IN_VISION | {"user": "bea"}),
    "list_departments": Sample({}),
    "list_quota_findings": Sample({}),
    "put_department": Sample({"name": "sciences"}, {"rank": 1}),
    "preview_department": Sample({"name": "sciences"}, {"rank": 1}),
    "delete_department": Sample({"name": "arts"}),
    "list_node_groups": Sample({}),
    "create_node_group": Sample({}, {"name": "fresh", "node_names": ["n1"]}),
    "replace_node_group": Sample({"name": "a100"}, {"node_names": ["n1"]}),
    "delete_node_group": Sample({"name": "a100"}),
    "list_policies": Sample({}),
    "read_policy": Sample({"name": "small"}, query="?scope=project/vision"),
    "put_policy": Sample({"name": "new"}, RULES, "?scope=project/vision"),
    "delete_policy": Sample({"name": "small"}, query="?scope=project/vision"),
    "read_effective_policy": Sample({}, query="?project=vision"),
    "list_catalogue": Sample({}),
    "list_templates": Sample({}),
    "read_template": Sample({"name": "ours"}, query="?scope=project/vision"),
    "put_template": Sample({"name": "ours"}, TEMPLATE, "?scope=project/vision"),
    "delete_template": Sample({"name": "ours"}, query="?scope=project/vision"),
    "list_roles": Sample({}),
    "list_access_rules": Sample({}),
    "create_access_rule": Sample({}, RULE),
    "delete_access_rule": Sample({"rule": "abc"}),
    "check_permission": Sample({}, query="?permission=workloads:read&scope=project/vision"),
    "read_samples": Sample({}),
    "list_budgets": Sample({}),
    "put_budget": Sample({}, {"gpu_hours": 1e6}, "?scope=project/vision"),
    "delete_budget": Sample({}, query="?scope=project/vision"),
    "list_assets": Sample({}),
    "read_asset": Sample(ASSET, query="?scope=project/vision"),
    "put_asset": Sample(ASSET, {"fields": {"gpus": 1.0}}, "?scope=project/vision"),
    "delete_asset": Sample(ASSET, query="?scope=project/vision"),
    "list_alerts": Sample({}),
    "list_alert_rules": Sample({}),
    "put_alert_rule": Sample({"name": "disk-full"}, {"threshold": 80}),
    "reset_alert_rule": Sample({"name": "disk-full"}),
    "list_silences": Sample({}),
    "create_silence": Sample({}, {"until": 4e9}),
    "delete_silence": Sample({"name": "none"}),
    "list_notification_channels": Sample({}),
    "put_notification_channel": Sample({"name": "ops"}, CHANNEL),
    "test_notification_channel": Sample({"name": "none"}),
    "delete_notification_channel": Sample({"name": "ops"}),
    "read_health": Sample({}),
    "read_own_notifications": Sample({}),
    "put_own_notifications": Sample({}, {"kind": "slack", "url": "https://hooks.example.org/x"}),
    "delete_own_notifications": Sample({}),
    "test_own_notifications": Sample({}),
    "read_retention": Sample({}),
    "put_retention": Sample({}, {"decision_days": 90}),
    "put_directory_sync": Sample({}, {"reported_at": 1.0, "succeeded_at": 1.0}),
    "list_service_accounts": Sample({}),
    "put_service_account": Sample({"name": "ci"}, {}, "?scope=project/vision"),
    "delete_service_account": Sample({"name": "none"}),
    "create_service_token": Sample({"name": "none"}, {}),
    "revoke_service_token": Sample({"name": "none", "token": "abc"}),
    "list_secrets": Sample({}),
    "read_secret": Sample({"name": "ours"}, query="?scope=project/vision"),
    "put_secret": Sample({"name": "ours"}, {"data": {"K": "v"}}, "?scope=project/vision"),
    "delete_secret": Sample({"name": "ours"}, query="?scope=project/vision"),
    "list_users": Sample({}),
    "read_own_user": Sample({}),
    "change_own_password": Sample({}, {"old": "old", "new": "another-horse"}),
    "read_user": Sample({"user": "bea"}),
    "invite_user": Sample({"user": "emil"}, {"projects": ["vision"]}),
    "update_user": Sample({"user": "bea"}, {"projects": ["vision"]}),
    "act_on_user": Sample({"user": "bea"}, {"action": "end-sessions"}),
    "delete_user": Sample({"user": "dora"}),
    "read_user_identity": Sample({"user": "ada"}),
    "list_user_projects": Sample({"user": "ada"}),
    "put_user_identity": Sample({"user": "ada"}, {"uid": 2001, "gid": 3001}),
    "list_directory_groups": Sample({}),
    "put_directory_group": Sample({}, {"projects": ["vision"]}, "?group=vision-team"),
    "delete_directory_group": Sample({}, query="?group=elsewhere"),
    "list_nodes": Sample({}),
    "read_node": Sample({"node": "node-1"}),
    "uncordon_device": Sample({"node": "node-1", "index": "1"}),
    "exchange_mig_instances": Sample({"node": "node-1"}, {"results": []}),
    "report_node": Sample({"node": "node-1"}, {"driver": "", "devices": [], "use": []}),
    "read_faults": Sample({}),
    "read_queue": Sample({}),
    "read_usage": Sample({}),
    "read_usage_series": Sample({}),
    "read_usage_table": Sample({}),
    "read_prices": Sample({}),
    "put_prices": Sample({}, {"periods": [{"gpu_hour": 1.0}]}),
    "read_gpu_use": Sample({}),
    "whoami": Sample({}),
    "read_cluster_access": Sample({}),
    "workspace_activity": Sample({}, {}),
    "openapi": Sample({}),
    "prometheus_metrics": Sample({}),
    "list_trials": Sample(SWEEP),
    "draft_best": Sample(SWEEP, {}),
    "read_study_log": Sample(SWEEP),
    "report_trial": Sample(TRAINING, {"asks": True}),
    "suggest_parameter": Sample(TRAINING, {"name": "x", "type": "int", "low": 0, "high": 1}),
    "take_trials": Sample(TRAINING, {"want": 1}),
    "read_trial_log": Sample(SWEEP, query="?trial=0"),
    "write_output": Sample(TRAINING | OUTPUT, b"an output"),
    "list_outputs": Sample(SWEEP),
    "read_output": Sample(SWEEP | OUTPUT),
    "change_workload": Sample(IN_VISION | {"name": "digits"}, {"gpus": 0}),
    "share_route": Sample(IN_VISION | {"name": "digits"}, {"access": "project"}),
    "list_audit_entries": Sample({}, query="?project=vision"),
    "verify_audit_log": Sample({}),
    "read_audit_settings": Sample({}),
    "put_audit_settings": Sample({}, {"retention_days": 90}),
    "add_audit_events": Sample({}, {"items": [{"at": 1.0, "verb": "sign-in", "user": "ada"}]}),
    "report_loads": Sample({}, {"gateway": "g"}),
    "identify_task": Sample({}, {"token": "ct1.nobody.x"}),
}
ROLES = {
    "nobody": None,
    "unknown token": "stranger-token",
    "without scope": "narrow-token",
    "owner": "ada-token",
    "colleague": "bea-token",
    "of another project": "carl-token",
    "of no project": "nobody-token",
    "admin": "root-token",
    "spawner": "spawner-token",
    "scraper": "scraper-token",
    "gateway": "gateway-token",
    "agent": "agent-node-1",
    "agent of another node": "agent-node-2",
    "own task": "task:uid-vision-train-1",
    "other task": "task:uid-speech-train-1",
}
JOBS = {"own task": "owner", "other task": "of another project"}
AGENTS = ("agent", "agent of another node")
OK, WHO, NO, HIDDEN = "2xx", "401", "403", "404"
# access -> role -> answer; roles that are not named are refused with 403.
EXPECTED: dict[str, dict[str, str]] = {
    "user": dict.fromkeys(
        ["owner", "colleague", "of another project", "of no project", "admin", "spawner"], OK
    ),
    "member": dict.fromkeys(["owner", "colleague", "admin", "spawner"], OK)
    | dict.fromkeys(["of another project", "of no project"], HIDDEN),
    "owner": dict.fromkeys(["owner", "admin"], OK)
    | dict.fromkeys(["of another project", "of no project"], HIDDEN),
    "task": dict.fromkeys(["owner", "admin", "own task"], OK)
    | dict.fromkeys(["of another project", "of no project"], HIDDEN),
    "spawner": {"spawner": OK},
    "hub": {"spawner": OK},
    "admin": {"admin": OK},
    "gateway": {"gateway": OK},
    "node": {"agent": OK},
}
# Beside the rule of their access: what the operation itself says to a role.
OF_THEIR_OWN = {
    # Somebody without scope is asked for the scope before the project is looked at.
    ("extend_workload", "spawner"): OK,
    ("create_workload", "spawner"): "422",
    ("create_workload", "of another project"): NO,
    ("create_workload", "of no project"): NO,
    ("create_workloads", "spawner"): NO,
    ("create_workloads", "of another project"): NO,
    ("create_workloads", "of no project"): NO,
    ("list_workloads", "of another project"): NO,
    ("list_workloads", "of no project"): NO,
    ("stream_events", "of another project"): NO,
    ("stream_events", "of no project"): NO,
    ("workspace_activity", "spawner"): NO,
    ("prometheus_metrics", "scraper"): OK,
    ("stream_events", "gateway"): OK,
    # No trial, but let in.
    **{
        (name, role): "409"
        for name in ("report_trial", "suggest_parameter", "take_trials", "write_output")
        for role in ("owner", "admin", "own task")
    },
    # Run by no worker, but let in.
    **{("read_trial_log", role): "404" for role in ("owner", "colleague", "admin", "spawner")},
    **{("read_output", role): "404" for role in ("owner", "admin")},
    # No code of its own, but let in.
    **{
        (name, role): "404"
        for name in ("read_code", "read_code_content")
        for role in ("owner", "admin", "own task")
    },
    # It runs, but let in.
    **{
        ("read_remedies", role): "409"
        for role in ("owner", "colleague", "admin", "spawner", "own task")
    },
    # No route of its own, but let in.
    ("share_route", "owner"): "409",
    ("share_route", "admin"): "409",
    # Only whose copy it is.
    **{
        (name, role): NO
        for name in ("delete_model", "delete_kept_checkpoint")
        for role in ("colleague", "spawner")
    },
    # A service has no password and is told of nothing; the Hub reads the table of groups.
    ("change_own_password", "spawner"): NO,
    ("read_own_notifications", "spawner"): NO,
    ("put_own_notifications", "spawner"): NO,
    # Told of nothing, but let in.
    **{("test_own_notifications", role): HIDDEN for role in EXPECTED["user"]},
    ("test_own_notifications", "spawner"): NO,
    ("delete_own_notifications", "spawner"): NO,
    ("list_directory_groups", "spawner"): OK,
    ("list_node_groups", "spawner"): OK,
    # There is no such rule.
    ("delete_directory_group", "admin"): HIDDEN,
    # Nobody's token, but let in.
    ("identify_task", "gateway"): "404",
    # Its user only, whose files and secrets it has.
    ("rerun_workload", "admin"): NO,
    # What is not theirs to see is not there.
    **{
        (name, role): HIDDEN
        for name in (
            *("read_policy", "read_template", "put_template", "delete_template"),
            *("read_secret", "put_secret", "delete_secret"),
            *("read_asset", "put_asset", "delete_asset"),
        )
        for role in ("of another project", "of no project")
    },
    # There is no such silence and channel, but let in.
    ("delete_silence", "admin"): HIDDEN,
    ("test_notification_channel", "admin"): HIDDEN,
    # There is no such rule, and no such account.
    **{
        (name, role): HIDDEN
        for name in (
            *("delete_access_rule", "delete_service_account"),
            *("create_service_token", "revoke_service_token"),
        )
        for role in EXPECTED["user"]
    },
    # A project's template or secret is changed by who made it.
    **{
        (name, role): NO
        for name in (
            *("put_template", "delete_template", "put_secret", "delete_secret"),
            *("put_asset", "delete_asset"),
        )
        for role in ("colleague", "spawner")
    },
    ("read_effective_policy", "of another project"): NO,
    ("read_effective_policy", "of no project"): NO,
    # Not a websocket, but let in.
    ("open_terminal", "owner"): "400",
    ("open_terminal", "admin"): "400",
    ("run_command", "owner"): "400",
    ("run_command", "admin"): "400",
    ("forward_port", "owner"): "400",
    ("forward_port", "admin"): "400",
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        base = methods["servers"][0]["url"] if "servers" in methods else ROOT
        for method, operation in methods.items():
            if method != "servers":
                yield method.upper(), base + path, operation


def expected(operation: dict[str, Any], role: str) -> str:
    access, name = operation["x-carrel-access"], operation["operationId"]
    tokens = dict.fromkeys(AGENTS, "node")
    if role in ("nobody", "unknown token") or tokens.get(role, access) != access:
        return WHO
    if role in JOBS and access != "task":  # a job acts for its user where it may act at all
        if not operation.get("x-carrel-for-jobs"):
            return NO
        role = JOBS[role]
    return OF_THEIR_OWN.get((name, role)) or EXPECTED[access].get(role, NO)


def test_each_operation_has_a_sample_and_each_sample_an_operation() -> None:
    assert {operation["operationId"] for _, _, operation in operations()} == set(SAMPLES)


async def keep_files(harness: ApiHarness) -> None:
    """Give train-1 an artifact and a checkpoint, of which ada has kept copies."""
    harness.files.write("artifacts", "uid-vision-train-1", "model.pt", b"weights")
    harness.files.write(
        "checkpoints", "uid-vision-train-1", "step-000000000001.0/data.pkl", b"state"
    )
    harness.files.write("copies", "uid-net", "model.pt", b"weights")
    await harness.ledger.add_copy(
        "model", "uid-net", StoredCopy(project="vision", name="net", user="ada")
    )
    await harness.ledger.add_copy(
        "checkpoint", "uid-kept", StoredCopy(project="vision", name="kept", user="ada")
    )


@pytest.mark.parametrize("role", ROLES)
async def test_role_by_operation(harness: ApiHarness, role: str) -> None:
    """A role calls every operation; those that change much come last, on an API of their own."""
    await harness.ask("POST", "/projects", "root", json={"name": "empty"})
    await harness.ask("PUT", "/departments/arts", "root", json={})
    await harness.ask("POST", "/node-groups", "root", json=NODE_GROUP)
    await harness.add("vision", "digits", "ada", kind="inference")
    await keep_files(harness)
    await harness.ask("PUT", "/policies/small?scope=project/vision", "root", json=RULES)
    await harness.ask("PUT", "/secrets/ours?scope=project/vision", "ada", json={"data": {"K": "v"}})
    await harness.ask("PUT", "/templates/ours?scope=project/vision", "ada", json=TEMPLATE)
    asset = {"fields": {"gpus": 1.0}}
    await harness.ask("PUT", "/assets/compute/ours?scope=project/vision", "ada", json=asset)
    searched = ExperimentStatus(completed=1, best_trial=0, best_value=0.5)
    await harness.add(
        "vision",
        "sweep",
        "ada",
        kind="experiment",
        experiment=ExperimentSpec(),
        status=WorkloadStatus(experiment=searched),
    )
    wrong = {}
    for method, template, operation in sorted(operations(), key=harm):
        name = operation["operationId"]
        if name in STOPPED:
            await harness.set_status("vision", "train-1", phase="stopped")
        elif name == "delete_workload":
            await harness.set_status("vision", "train-1", phase="running")
        sample = SAMPLES[name]
        path = template.format(**sample.path) + sample.query
        answer = await call_status(harness, method, path, sample, ROLES[role])
        wanted = expected(operation, role)
        if answer != wanted:
            wrong[name] = f"{answer} instead of {wanted}"
    assert wrong == {}


def harm(found: tuple[str, str, dict[str, Any]]) -> int:
    order = [
        "delete_budget",
        "reset_alert_rule",
        "delete_notification_channel",
        "delete_model",
        "delete_kept_checkpoint",
        "delete_policy",
        "delete_template",
        "delete_asset",
        "delete_secret",
        "delete_department",
        "suspend_workload",
        "resume_workload",
        "delete_workload",
        "remove_member",
    ]
    name = found[2]["operationId"]
    return order.index(name) + 1 if name in order else 0


async def call_status(
    harness: ApiHarness, method: str, path: str, sample: Sample, token: str | None
) -> str:
    """The answer to a call with a token."""
    headers = {}
    if token is not None:
        kind, _, uid = token.partition(":")
        headers["Authorization"] = f"Bearer {harness.tokens.issue(uid) if uid else kind}"
    options: dict[str, Any] = {} if sample.body is None else {"json": sample.body}
    if isinstance(sample.body, bytes):
        options = {"data": sample.body}
        headers["Content-Type"] = "application/octet-stream"
    async with harness.session.request(
        method, harness.url + path, headers=headers, **options
    ) as response:
        status = response.status
    return OK if 200 <= status < 300 else str(status)


@pytest.mark.parametrize("role", ["of another project", "of no project"])
async def test_whoever_is_not_in_a_project_sees_none_of_its_data(
    harness: ApiHarness, role: str
) -> None:
    """Reading everything as somebody of another project brings up no name of vision's work."""
    token = ROLES[role]
    for method, path, operation in operations():
        sample = SAMPLES[operation["operationId"]]
        if method != "GET" or "text/event-stream" in str(operation["responses"].get("200")):
            continue
        reply = await harness.ask(method, path.format(**sample.path), token, base="")
        for secret in (b"vision-secret", b"vision-waiting", b"uid-vision", b'"ada"'):
            assert secret not in reply.raw, operation["operationId"]
