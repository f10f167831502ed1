"""A route that is opened or closed while its work runs: whoever listens hears of it."""

from carrel_schema.sections import Route
from unit.workloads.desk import Desk


async def test_who_listens_hears_at_once_that_a_route_was_opened(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1", routes=[Route(port=8000)])
    await desk.runs(uid)
    events = desk.loop.stream.subscribe()
    await desk.change(uid, routes=[Route(port=8000, access="project")])
    heard = await events.next()
    assert heard is not None
    assert [route.access for route in heard.workload.spec.routes] == ["project"]
    assert await desk.phase(uid) == "running"
