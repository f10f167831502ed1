"""Routes of the Hub as rules: quoted names, the longer prefix first, hosts before paths."""

import pytest

from carrel_hub.front.rules import rule


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
