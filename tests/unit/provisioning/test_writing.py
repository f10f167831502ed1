"""How requests are written: with their templates, once, and deleted only as those they are."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.provisioning.messages import (
    EndRequest,
    RequestNodes,
    RequestRefused,
)
from carrel_scheduler.engines.kubernetes.provisioning.types import PodSet, ProvisioningSettings
from carrel_scheduler.engines.kubernetes.provisioning.writing import RequestWriter
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.transport import KubeResponse
from unit.kube.fake_transport import FakeTransport, NoCredentials, answer, refusal

SETTINGS = ProvisioningSettings("class.example.org", {"runs": "1h"})
ORDER = RequestNodes(
    "carrel-a", "carrel-x-1", "u" * 80, "job", (PodSet({"a": 1}, 2), PodSet({"b": 1}, 1))
)
MADE = answer({"metadata": {"name": "carrel-x-1", "namespace": "carrel-a", "uid": "r1"}})


async def pause(_seconds: float) -> None:
    return


async def carried_out(
    order: RequestNodes | EndRequest, *answers: KubeResponse | Exception
) -> tuple[list[Any], list[object]]:
    """What was sent, and what was told."""
    transport, news = FakeTransport(*answers), list[object]()

    def deliver(events: ExternalEvents) -> None:
        news.extend(events.events)

    client = KubeClient(NoCredentials(), transport, pause=pause)
    writer = RequestWriter(client, SETTINGS, deliver)
    writer.put(order)
    running = asyncio.create_task(writer.run())
    for _ in range(200):
        await asyncio.sleep(0)
    assert not transport.answers
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return transport.sent, news


async def test_a_request_owns_its_templates() -> None:
    sent, news = await carried_out(ORDER, MADE, answer({}), answer({}))
    request, first, second = (msgspec.json.decode(one.body) for one in sent)
    assert sent[0].path == "/apis/autoscaling.x-k8s.io/v1/namespaces/carrel-a/provisioningrequests"
    assert request["spec"] == {
        "provisioningClassName": "class.example.org",
        "parameters": {"runs": "1h"},
        "podSets": [
            {"podTemplateRef": {"name": "carrel-x-1-0"}, "count": 2},
            {"podTemplateRef": {"name": "carrel-x-1-1"}, "count": 1},
        ],
    }
    assert request["metadata"]["annotations"]["carrel.dev/workload-uid"] == "u" * 80
    assert len(request["metadata"]["labels"]["carrel.dev/workload-uid"]) <= 63
    for number, one in enumerate((first, second)):
        assert one["metadata"]["name"] == f"carrel-x-1-{number}"
        [owner] = one["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("ProvisioningRequest", "r1")
    assert news == []


async def test_what_is_there_already_stays() -> None:
    there = refusal(409, "AlreadyExists")
    sent, news = await carried_out(ORDER, there, MADE, there, answer({}))
    assert [one.method for one in sent] == ["POST", "GET", "POST", "POST"]
    assert news == []


async def test_a_refusal_is_told() -> None:
    _, news = await carried_out(ORDER, refusal(404, "NotFound"))
    [told] = news
    assert isinstance(told, RequestRefused)
    assert (told.uid, told.name) == (ORDER.uid, ORDER.name)


@pytest.mark.parametrize("last", [answer({}), refusal(404, "NotFound"), refusal(409, "Conflict")])
async def test_a_request_is_deleted_as_the_one_that_it_is(last: KubeResponse) -> None:
    sent, news = await carried_out(EndRequest("carrel-a", "carrel-x-1", "r1"), last)
    body = msgspec.json.decode(sent[0].body)
    assert body["preconditions"] == {"uid": "r1"}
    assert body["propagationPolicy"] == "Background"
    assert news == []
