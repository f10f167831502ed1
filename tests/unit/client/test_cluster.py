"""Projects, nodes, queue and use through the client."""

from collections.abc import Iterator

import pytest

from carrel.client import Client
from carrel.errors import ApiError
from carrel.testing import FakeScheduler

NODE = {
    "name": "node-1",
    "status": "ready",
    "simulated": True,
    "gpu_milli": 4000,
    "gpu_allocated_milli": 1000,
    "devices": [
        {
            "index": 0,
            "name": "A10",
            "allocated_milli": 1000,
            "holders": [{"project": "vision", "name": "x", "gpu_milli": 1000, "since": 1.0}],
        }
    ],
    "something_newer": {"nested": True},
}


@pytest.fixture
def admin(fake: FakeScheduler) -> Iterator[Client]:
    with Client(fake.url, fake.token("root")) as client:
        yield client


def test_who_am_i(client: Client, admin: Client) -> None:
    me = client.whoami()
    assert (me.user, me.admin, me.projects) == ("ada", False, ["vision"])
    assert admin.whoami().admin


def test_nodes_with_fields_of_a_newer_server(client: Client, fake: FakeScheduler) -> None:
    fake.nodes(NODE)
    (node,) = client.nodes()
    assert node == client.node("node-1")
    assert node.devices[0].holders[0].project == "vision"
    with pytest.raises(ApiError, match="no node"):
        client.node("node-2")


def test_a_projects_life(client: Client, admin: Client, fake: FakeScheduler) -> None:
    made = admin.create_project({"name": "new", "quota": {"gpus": 2}})
    assert (made.quota.gpus, made.quota.memory_bytes) == (2, None)
    changed = admin.update_project("new", {"interactive": {"idle_timeout_seconds": 60}})
    assert changed.interactive.idle_timeout_seconds == 60
    assert changed.quota.gpus == 2
    assert admin.update_project("new", {"rank": 1}, dry_run=True).would_start == []
    assert admin.get_project("new").rank == 0
    admin.add_member("new", "ada")
    assert admin.members("new") == ["ada"]
    assert [project.name for project in client.list_projects()] == ["vision", "new"]
    admin.remove_member("new", "ada")
    assert [project.name for project in client.list_projects()] == ["vision"]
    admin.delete_project("new")
    with pytest.raises(ApiError, match="already"):
        admin.create_project({"name": "vision"})


def test_researchers_manage_nothing(client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.create_project({"name": "mine"})
    assert refused.value.status == 403


def test_the_queue_hides_foreign_names(client: Client, fake: FakeScheduler) -> None:
    fake.submit("speech", "theirs", user="bob", gpus=2)
    fake.submit("vision", "x")
    fake.wait("vision", "x", "Waiting for 1 GPU.")
    theirs, mine = client.queue()
    assert (theirs.name, theirs.project, theirs.resources.gpus) == ("", "speech", 2)
    assert mine.reason is not None
    assert mine.reason.sentence == "Waiting for 1 GPU."


def test_use(client: Client) -> None:
    assert [entry.key for entry in client.usage("project", since=0.0)] == ["vision"]


def test_the_sign_of_life_of_a_workspace(client: Client, fake: FakeScheduler) -> None:
    fake.submit("vision", "ws", kind="workspace", server_name="lab")
    fake.status("vision", "ws", limits={"stops_at": 99.0, "stops_because": "Idle"})
    limits = client.activity("lab", {"at": 1.0, "kernels": 1})
    assert (limits.stops_at, limits.stops_because) == (99.0, "Idle")
