"""Requests of several gateways added up; who is silent counts no more."""

from carrel_scheduler.workloads.controllers.inference.loads import Load, LoadReport, Loads

HEARD = True


class World:
    def __init__(self) -> None:
        self.now, self.changed = 1000.0, list[str]()
        self.loads = Loads(lambda: self.now, self.changed.append)


def report(uid: str = "u", **fields: object) -> LoadReport:
    return LoadReport(uid=uid, **fields)  # type: ignore[arg-type]


def test_gateways_are_added_up_and_forgotten_when_silent() -> None:
    world = World()
    first = report(in_flight=2, rate=1.0, last_request_at=990.0, targets={"a": 2})
    world.loads.take("g1", [first], everything=True)
    world.now += 20
    second = report(in_flight=1, last_request_at=995.0, targets={"a": 0, "b": 1})
    world.loads.take("g2", [second], everything=True)
    assert world.loads.of("u") == Load(HEARD, 3, 1.0, 995.0, {"a": 2, "b": 1})
    world.now += 20
    assert world.loads.of("u") == Load(HEARD, 1, 0.0, 995.0, {"a": 0, "b": 1})
    world.now += 20
    assert world.loads.of("u") == Load()


def test_only_what_changed_is_told_of() -> None:
    world = World()
    world.loads.take("g", [report("u", in_flight=1), report("v")], everything=True)
    world.loads.take("g", [report("u", in_flight=1)], everything=False)
    world.loads.take("g", [report("u", in_flight=2)], everything=False)
    assert world.changed == ["u", "v", "u"]
    world.loads.take("g", [report("u", in_flight=2)], everything=True)
    assert world.changed == ["u", "v", "u"]
    assert world.loads.of("v").in_flight == 0


def test_a_gateway_that_has_not_told_everything_is_not_taken_for_silent() -> None:
    world = World()
    world.loads.take("g", [report("u")], everything=False)
    assert not world.loads.of("u").heard
    world.loads.take("g", [], everything=True)
    assert world.loads.of("u").heard


def test_latencies_of_several_gateways_are_one_distribution() -> None:
    world = World()
    world.loads.take("g1", [report(latency=[(0.01, 90), (2.0, 1)])], everything=True)
    world.loads.take("g2", [report(latency=[(0.01, 5), (0.5, 4)])], everything=True)
    load = world.loads.of("u")
    assert (load.took(0.5), load.took(0.97), load.took(1.0)) == (0.01, 0.5, 2.0)
    assert Load().took(0.5) is None
