"""Definitions of our kinds: up to date, and of the form that API servers take."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.manifests.__main__ import differing, files, page_differs
from carrel_scheduler.manifests.crds import everything
from carrel_scheduler.manifests.pages import roles_page
from carrel_schema.governance.roles import ROLES
from carrel_schema.objects import WorkloadSpec
from carrel_schema.wire import WorkloadCreate

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
ELSEWHERE = {
    "template",
    *("name", "name_prefix", "project", "kind", "labels", "secret_environment", "given"),
}
"""Fields of requests that a manifest says elsewhere, or never."""
OF_RESOURCES = {
    *("gpus", "gpu_memory_bytes", "gpu_devices", "mig_profile"),
    *("cpu_millicores", "cpu_limit_millicores", "memory_bytes"),
}


def test_what_is_deployed_follows_from_the_models() -> None:
    """When this fails: ``python -m carrel_scheduler.manifests``."""
    assert differing(DEPLOY) == []


def test_a_difference_is_seen(tmp_path: Path) -> None:
    assert differing(tmp_path) == sorted(files())


def test_the_page_of_roles_says_what_their_permissions_are() -> None:
    """When this fails: ``python -m carrel_scheduler.manifests``."""
    page = DEPLOY.parents[1] / "docs" / "roles.md"
    assert not page_differs(page)
    text = page.read_text()
    for role in ROLES:
        assert f"| `{role}` |" in text
    changed = text.replace("read, create, update", "read, create, update, delete", 1)
    assert roles_page(changed) == text
    with pytest.raises(ValueError, match="no place for the table of permissions"):
        roles_page(text.replace("manifests`: permissions", "manifests`: rights"))


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for one in schema.values():
            yield from nodes(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from nodes(one)


def test_schemas_are_structural() -> None:
    for definition in everything().values():
        for node in nodes(definition["spec"]["versions"][0]["schema"]):
            assert "$ref" not in node
            assert not ("properties" in node and "additionalProperties" in node)
            for rule in node.get("x-kubernetes-validations", []):
                assert rule["message"]


def test_every_field_of_a_request_can_be_written() -> None:
    told = set(WorkloadCreate.__struct_fields__) - ELSEWHERE - OF_RESOURCES
    assert told <= {field.name for field in msgspec.structs.fields(WorkloadSpec)}
    made = everything()
    plural = kinds.WORK["training"].resource.plural
    schema = made[plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    training = schema["properties"]["spec"]["properties"]
    assert {"command", "workingDir", "resources", "elastic"} <= set(training)
    assert {"experiment", "inference", "kind"}.isdisjoint(training)
    assert training["tasks"]["maximum"] == 10_000


def test_names_are_not_given_twice() -> None:
    names = [
        name
        for definition in everything().values()
        for given in [definition["spec"]["names"]]
        for name in (given["plural"], *given["shortNames"])
    ]
    assert len(names) == len(set(names))
