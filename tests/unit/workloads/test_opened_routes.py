"""A route that is opened or closed while its work runs: whoever listens hears of it."""

from carrel_schema.sections import Route
from unit.workloads.harness import SchedulerHarness


async def test_who_listens_hears_at_once_that_a_route_was_opened(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", routes=[Route(port=8000)])
    await harness.runs(uid)
    events = harness.loop.stream.subscribe()
    await harness.change(uid, routes=[Route(port=8000, access="project")])
    heard = await events.next()
    assert heard is not None
    assert [route.access for route in heard.workload.spec.routes] == ["project"]
    assert await harness.phase(uid) == "running"
