"""Labels of routes are their own, and fit into names of hosts."""

import pytest

from carrel_hub.front.origins import LABEL, LONGEST, Origins, label

ORIGINS = Origins("https://hub.example.org:8443")


def test_a_route_is_named_as_it_is_called() -> None:
    assert label("vision", "digits") == "digits--vision"
    assert label("vision", "digits", "docs") == "docs--digits--vision"
    assert ORIGINS.of("vision", "digits") == "https://digits--vision.hub.example.org:8443"


@pytest.mark.parametrize(
    "parts",
    [
        ("vision", "a--b"),
        ("b--c", "a"),
        ("b", "a--b"),
        ("vision", "h"),
        ("vision", "xn"),
        ("vision", "a" * 60),
        ("p" * 63, "n" * 63),
        ("vision", "digits", "-"),
        ("vision", "a-", "main2"),
        ("VISION", "é"),
    ],
)
def test_what_could_be_read_in_two_ways_gets_a_label_of_its_own(parts: tuple[str, ...]) -> None:
    made = label(*parts)
    assert made.startswith("h--")
    assert len(made) <= LONGEST
    assert LABEL.fullmatch(made)


def test_no_two_routes_share_a_label() -> None:
    names = ["a", "b", "a--b", "a-b", "h", "xn", "main", "b--a", "-a", "a-", ""]
    triples = [(p, n, r) for p in names for n in names for r in ["main", "a", "b", "a--b"]]
    assert len({label(*triple) for triple in triples}) == len(triples)


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("digits--vision.hub.example.org:8443", "digits--vision"),
        ("Digits--Vision.HUB.example.org:8443", "digits--vision"),
        ("hub.example.org:8443", ""),
        ("ada.hub.example.org:8443", ""),
        ("digits--vision.hub.example.org", ""),
        ("digits--vision.evil.org:8443", ""),
        ("x.digits--vision.hub.example.org:8443", ""),
        ("-a--b.hub.example.org:8443", ""),
        ("", ""),
    ],
)
def test_which_hosts_are_those_of_routes(host: str, found: str) -> None:
    assert ORIGINS.label_in(host) == found


def test_without_origins_no_host_is_one() -> None:
    assert Origins().label_in("digits--vision.") == ""
    assert Origins().label_in("digits--vision") == ""
