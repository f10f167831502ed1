"""What tasks are told of their ports, and commands that name them."""

import pytest

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.workloads.state.ports import FixedPorts, filled_in, told
from carrel_schema.sections import Route

TWO = (Route(), Route(name="side-car", port=9000))


def test_the_first_route_is_port_and_each_has_its_own_name() -> None:
    assert told({"main": 15001, "side-car": 9000}, TWO, "/g/vision/digits") == {
        "PORT": "15001",
        "CARREL_PREFIX": "/g/vision/digits",
        "CARREL_PORT_MAIN": "15001",
        "CARREL_PREFIX_MAIN": "/g/vision/digits",
        "CARREL_PORT_SIDE_CAR": "9000",
        "CARREL_PREFIX_SIDE_CAR": "/g/vision/digits/~side-car",
    }
    assert told({}, (), "") == {}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--port=$(PORT)", "--port=15001"),
        ("$(PORT)$(PORT)", "1500115001"),
        ("$(HOME) $(PORT", "$(HOME) $(PORT"),
        ("$PORT ${PORT}", "$PORT ${PORT}"),
        ("$($PORT)", "$($PORT)"),
    ],
)
def test_a_command_may_name_its_port(text: str, filled: str) -> None:
    assert filled_in([text], {"PORT": "15001"}) == (filled,)


def test_tasks_with_addresses_of_their_own_get_usual_ports() -> None:
    given = FixedPorts().give(TaskId("uid", 0, 0), TWO, ())
    assert given == {"main": 8080, "side-car": 9000}
