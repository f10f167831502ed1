"""Rules of Traefik: routes of the Hub quoted and in order, hosts of users and of services."""

import re

import pytest

from carrel_hub.front.origins import Origins
from carrel_hub.front.rules import CANONICAL, ROUTES, host_of, rule, rules_of_traefik

SERVICES = {"carrel": "http://127.0.0.1:1", "gateway": "http://127.0.0.1:2"}


@pytest.mark.parametrize(
    ("routespec", "expected"),
    [
        ("/", 'PathPrefix("/")'),
        ("/user/ada/", '(PathPrefix("/user/ada/") || Path("/user/ada"))'),
        ("/user/jos%C3%A9/", '(PathPrefix("/user/josé/") || Path("/user/josé"))'),
        # Traefik leaves reserved characters encoded in the path that it compares.
        ("/user/a%40b@c%2f/", '(PathPrefix("/user/a%40b@c%2F/") || Path("/user/a%40b@c%2F"))'),
        ("ada.localhost/", 'Host("ada.localhost") && PathPrefix("/")'),
        (
            "ada.localhost/user/ada/",
            'Host("ada.localhost") && (PathPrefix("/user/ada/") || Path("/user/ada"))',
        ),
    ],
)
def test_a_route_becomes_a_rule(routespec: str, expected: str) -> None:
    assert rule(routespec)[0] == expected


@pytest.mark.parametrize(
    "name", ["a`) || PathPrefix(`/", 'a") || PathPrefix("/', "a\\", "a%60%29 || PathPrefix(%60/"]
)
def test_no_name_can_say_anything_in_a_rule(name: str) -> None:
    found = rule(f"/user/{name}/")[0]
    outside = found.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    assert outside == ["(PathPrefix(", ") || Path(", "))"]


def test_the_longer_prefix_and_the_named_host_go_first() -> None:
    specs = ["/", "/user/ada/", "/user/ada/lab/", "h/", "h/user/ada/"]
    priorities = [rule(spec)[1] for spec in specs]
    assert priorities == sorted(set(priorities))
    # Also where what is quoted makes the rule of a shorter path the longer text.
    assert rule('/a""""""/')[1] < rule("/a/b/c/d/e/")[1]


@pytest.mark.parametrize("routespec", ["/user/ada", "/user/a%00/", "/user/a%0A/", "ä.example/"])
def test_what_no_request_can_match_is_refused(routespec: str) -> None:
    with pytest.raises(ValueError, match="that a request can have"):
        rule(routespec)


@pytest.mark.parametrize("name", ["ada", "ada-lovelace", "a1", "h"])
def test_users_are_called_as_they_are_where_that_is_a_label(name: str) -> None:
    assert host_of(name, "example.org", "user") == f"{name}.example.org"


@pytest.mark.parametrize(
    "name", ["model--vision", "h--x", "u-0", "a.b", "ada@x", "-a", "a-", "é", "a_b", "7", "a" * 64]
)
def test_no_user_gets_the_host_of_a_route_or_of_another_user(name: str) -> None:
    host = host_of(name, "example.org", "user")
    assert re.fullmatch(r"u-[0-9a-f]{40}\.example\.org", host)
    assert Origins("https://example.org").label_in(host) == ""


def test_services_have_the_hubs_own_host() -> None:
    assert host_of("console", "example.org", "service") == "example.org"


def test_routes_hosts_lead_to_the_gateway_and_services_stay_in_reach() -> None:
    made = rules_of_traefik("https://hub.example.org:8443", SERVICES)
    rule = made["routers"][ROUTES]["rule"]
    [pattern] = re.findall("`(.*)`", rule)
    assert re.fullmatch(pattern, "tool--vision.hub.example.org")
    for other in ("ada.hub.example.org", "tool--vision.hubXexample.org", "x.a--b.hub.example.org"):
        assert not re.fullmatch(pattern, other)
    assert made["services"][made["routers"][ROUTES]["service"]] == {
        "loadBalancer": {"servers": [{"url": "http://127.0.0.1:2"}]}
    }
    assert made["routers"]["carrel-any-carrel"]["rule"] == "PathPrefix(`/services/carrel/`)"
    to = made["middlewares"][CANONICAL]["redirectRegex"]["replacement"]
    assert to == "https://hub.example.org:8443/${1}"
