"""Hosts of users, and what Traefik is told beside the Hub's routes."""

import re

import pytest

from carrel_hub.front.rules import CANONICAL, ROUTES, host_of, rules_of_traefik
from carrel_hub.gateway.origins import Origins

SERVICES = {"carrel": "http://127.0.0.1:1", "gateway": "http://127.0.0.1:2"}


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
