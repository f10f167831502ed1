"""What the client sends, and what it makes of answers that are lost or refused."""

import asyncio
from typing import Any

import msgspec
import pytest

from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.credentials import CredentialsUnusable
from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    TooManyRequests,
    Unavailable,
    Undecodable,
)
from carrel_scheduler.kube.metadata import Metadata, PartialObject
from carrel_scheduler.kube.resources import NODES, PODS
from carrel_scheduler.kube.transport import ApiServerUnreachable
from unit.kube.fake_transport import FakeTransport, NoCredentials, answer, refusal

POD = {"metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "3"}}
LOST = ApiServerUnreachable("cut", sent=True)
NOT_SENT = ApiServerUnreachable("refused", sent=False)


def client_of(*answers: Any) -> tuple[KubeClient, FakeTransport]:
    transport = FakeTransport(*answers)

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    return KubeClient(NoCredentials(), transport, chance=lambda: 0.0, pause=no_pause), transport


def page(names: list[str], version: str, more: str = "") -> Any:
    items = [{"metadata": {"name": name, "uid": name}} for name in names]
    return answer({"metadata": {"resourceVersion": version, "continue": more}, "items": items})


async def test_objects_come_as_the_type_asked_for() -> None:
    client, transport = client_of(answer(POD), answer(POD), answer({"metadata": 5}))
    assert await client.get(PODS, "p", "a") == POD
    found = await client.get(PODS, "p", "a", PartialObject)
    assert found.metadata == Metadata("p", "a", "u", "3")
    with pytest.raises(Undecodable, match=r"PartialObject: Expected `object`"):
        await client.get(PODS, "p", "a", PartialObject)
    assert transport.sent[0].path == "/api/v1/namespaces/a/pods/p"


async def test_pages_are_put_together() -> None:
    client, transport = client_of(page(["a", "b"], "7", "next/+="), page(["c"], "7"))
    listing = await client.list(PODS, PartialObject, label_selector="x in (y)", limit=2)
    assert [one.metadata.name for one in listing.items] == ["a", "b", "c"]
    assert listing.version == "7"
    assert [sent.path for sent in transport.sent] == [
        "/api/v1/pods?labelSelector=x+in+%28y%29&limit=2",
        "/api/v1/pods?labelSelector=x+in+%28y%29&limit=2&continue=next%2F%2B%3D",
    ]


async def test_pages_that_outlived_their_version_are_read_at_once_instead() -> None:
    client, transport = client_of(page(["a"], "7", "m"), refusal(410, "Expired"), page(["b"], "9"))
    listing = await client.list(NODES, PartialObject, limit=1)
    assert ([one.metadata.name for one in listing.items], listing.version) == (["b"], "9")
    assert transport.sent[-1].path == "/api/v1/nodes"


async def test_an_object_of_another_shape_does_not_spoil_a_list() -> None:
    listed = {"metadata": {"resourceVersion": "4"}, "items": [POD, {"metadata": {"name": 5}}]}
    client, _ = client_of(answer(listed))
    assert len((await client.list(PODS, PartialObject)).items) == 1


async def test_an_empty_list_may_be_null() -> None:
    client, _ = client_of(answer({"metadata": {"resourceVersion": "4"}, "items": None}))
    assert (await client.list(PODS)).items == []


async def test_reading_is_tried_again() -> None:
    client, transport = client_of(LOST, refusal(503, "ServiceUnavailable"), answer(POD))
    assert await client.get(PODS, "p", "a") == POD
    assert len(transport.sent) == 3


async def test_creating_again_finds_it_done_and_says_so() -> None:
    client, _ = client_of(LOST, refusal(409, "AlreadyExists"), refusal(409, "AlreadyExists"))
    with pytest.raises(AlreadyExists) as found:
        await client.create(PODS, POD, "a")
    assert found.value.retried
    with pytest.raises(AlreadyExists) as found:
        await client.create(PODS, PartialObject(Metadata("p")), "a")
    assert not found.value.retried


async def test_what_would_be_made_twice_is_not_sent_twice() -> None:
    client, transport = client_of(NOT_SENT, LOST)
    with pytest.raises(Unavailable):
        await client.create(PODS, {"metadata": {"generateName": "p-"}}, "a")
    assert len(transport.sent) == 2


@pytest.mark.parametrize(
    ("how", "tries"), [(PatchKind.MERGE, 2), (PatchKind.APPLY, 2), (PatchKind.JSON, 1)]
)
async def test_patches_that_say_what_is_to_be_are_sent_again(how: PatchKind, tries: int) -> None:
    client, transport = client_of(LOST, answer(POD))
    try:
        await client.patch(PODS, "p", {}, "a", "status", how, field_manager="carrel", force=True)
    except Unavailable:
        assert tries == 1
    assert len(transport.sent) == tries
    assert transport.sent[0].content_type == how.value
    path = "/api/v1/namespaces/a/pods/p/status?fieldManager=carrel&force=true"
    assert transport.sent[0].path == path


async def test_replacing_is_not_sent_again() -> None:
    client, transport = client_of(LOST)
    with pytest.raises(Unavailable):
        await client.replace(PODS, "p", POD, "a")
    assert len(transport.sent) == 1


async def test_deleting_names_its_preconditions() -> None:
    client, transport = client_of(LOST, answer({}), LOST)
    await client.delete(PODS, "p", "a", uid="u", grace_seconds=0, propagation="Background")
    assert msgspec.json.decode(transport.sent[0].body or b"") == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }
    with pytest.raises(Unavailable):
        await client.delete(PODS, "p", "a")
    assert len(transport.sent) == 3


async def test_a_binding_whose_answer_is_lost() -> None:
    client, transport = client_of(LOST, refusal(409, "Conflict"))
    with pytest.raises(Conflict) as found:
        await client.post_sub(PODS, "p", "binding", b"{}", "a")
    assert found.value.retried
    assert transport.sent[1].body == b"{}"
    assert transport.sent[1].path.endswith("/pods/p/binding?timeout=2s")


async def test_room_is_waited_for_but_no_budget() -> None:
    budget = refusal(429, "TooManyRequests", causes=[{"reason": "DisruptionBudget"}])
    client, transport = client_of(refusal(429, "TooManyRequests"), answer({}), budget)
    await client.post_sub(PODS, "p", "eviction", {}, "a")
    with pytest.raises(TooManyRequests):
        await client.post_sub(PODS, "p", "eviction", {}, "a")
    assert len(transport.sent) == 3


async def test_logs_come_as_bytes_or_as_a_refusal() -> None:
    client, transport = client_of(answer("x"), refusal(404, "NotFound"))
    chunks = client.stream_text(PODS, "p", "log", "a", {"follow": "true"})
    assert [chunk async for chunk in chunks] == [b'"x"']
    assert transport.sent[0].path == "/api/v1/namespaces/a/pods/p/log?follow=true"
    with pytest.raises(NotFound):
        await anext(client.stream_text(PODS, "p", "log", "a"))


async def test_a_stream_without_room_says_when_to_come_back() -> None:
    client, _ = client_of(refusal(429, "TooManyRequests"))
    with pytest.raises(TooManyRequests) as refused:
        await anext(client.watch(PODS, "7"))
    assert refused.value.retry_after == 3.0


async def test_a_watch_asks_for_bookmarks() -> None:
    client, transport = client_of(answer({}))
    assert [chunk async for chunk in client.watch(PODS, "7", "a", "l", "f", 60)] == [b"{}"]
    assert transport.sent[0].path == (
        "/api/v1/namespaces/a/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7"
        "&timeoutSeconds=60&labelSelector=l&fieldSelector=f"
    )


async def test_credentials_that_can_not_be_had_are_waited_for() -> None:
    client, transport = client_of(CredentialsUnusable("the token is being replaced"), answer({}))
    await client.raw("GET", "/version")
    assert len(transport.sent) == 2
    never, _ = client_of(*[CredentialsUnusable("no plugin")] * 10)
    with pytest.raises(Unavailable, match="no plugin"):
        await never.raw("GET", "/version")
