"""Which address of a target a request is for."""

import pytest

from carrel_hub.proxy.addresses import address
from carrel_hub.proxy.options import Options
from carrel_hub.proxy.routes import Route

HUB = "http://127.0.0.1:8081"


@pytest.mark.parametrize(
    ("target", "asked", "expected"),
    [
        (HUB, "/hub/home", f"{HUB}/hub/home"),
        (f"{HUB}/", "/hub/home", f"{HUB}/hub/home"),
        (f"{HUB}/base/", "/x", f"{HUB}/base/x"),
        (HUB, "/a%2Fb/%C3%A9?x=%20&y", f"{HUB}/a%2Fb/%C3%A9?x=%20&y"),
        (HUB, "/a//b/../c", f"{HUB}/a//b/../c"),
        (f"{HUB}?k=1", "/x?q=2", f"{HUB}/x?k=1&q=2"),
        (f"{HUB}?k=1", "/x", f"{HUB}/x?k=1"),
    ],
)
def test_escapes_stay_and_the_targets_path_comes_first(
    target: str, asked: str, expected: str
) -> None:
    assert str(address(Route("/", target), asked, Options())) == expected


@pytest.mark.parametrize(
    ("prefix", "asked", "hosts", "expected"),
    [
        ("/", "/x/y", False, "/x/y"),
        ("/user/ada", "/user/ada/lab?x=1", False, "/lab?x=1"),
        ("/user/ada", "/user/ada", False, "/"),
        ("/user/a b", "/user/a%20b/lab", False, "/lab"),
        ("/example.org", "/lab", True, "/lab"),
        ("/example.org/user", "/user/lab", True, "/lab"),
    ],
)
def test_a_prefix_is_left_out_when_told_so(
    prefix: str, asked: str, hosts: bool, expected: str
) -> None:
    options = Options(include_prefix=False, host_routing=hosts)
    assert str(address(Route(prefix, HUB), asked, options)) == HUB + expected


def test_the_targets_path_is_left_out_when_told_so() -> None:
    options = Options(prepend_path=False)
    assert str(address(Route("/", f"{HUB}/base?k=1"), "/x?q", options)) == f"{HUB}/x?q"
