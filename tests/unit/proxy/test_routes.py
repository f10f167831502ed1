"""The routing table and its clock."""

from datetime import UTC, datetime, timedelta

from carrel_hub.proxy.options import Options
from carrel_hub.proxy.routes import Route, Routes

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TARGET = "http://127.0.0.1:1"


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


def test_the_most_specific_route_is_found() -> None:
    routes = Routes(Options(default_target="http://127.0.0.1:8081"))
    routes.add_route("/user/ada", {"target": TARGET})
    assert routes.find("/user/ada/lab", None) == Route("/user/ada", TARGET)
    assert routes.find("/user/ad%61", None) == Route("/user/ada", TARGET)
    assert routes.find("/user/adam", None) == Route("/", "http://127.0.0.1:8081")


def test_hosts_matter_only_when_told_so() -> None:
    for hosts, found in ((True, Route("/ada.example.org/x", TARGET)), (False, None)):
        routes = Routes(Options(host_routing=hosts))
        routes.add_route("/ada.example.org/x", {"target": TARGET})
        assert routes.find("/x/y", "ada.example.org") == found


def test_use_moves_the_time_of_its_own_route() -> None:
    clock = Clock()
    routes = Routes(Options(), clock)
    for prefix in ("/a", "/b"):
        routes.add_route(prefix, {"target": TARGET})
    clock.now += timedelta(hours=1)
    routes.update_last_activity("/a")
    routes.update_last_activity("/unknown")
    assert routes.get_route("/a")["last_activity"] == clock.now
    assert list(routes.get_routes(NOON + timedelta(minutes=1))) == ["/b"]
    assert set(routes.get_routes()) == {"/a", "/b"}


def test_a_time_without_a_zone_is_utc() -> None:
    routes = Routes(Options(), Clock())
    routes.add_route("/a", {"target": TARGET})
    assert list(routes.get_routes(datetime(2030, 1, 1, 12, 1))) == ["/a"]  # noqa: DTZ001 - the point
    assert not routes.get_routes(datetime(2030, 1, 1, 11, 59))  # noqa: DTZ001 - the point
