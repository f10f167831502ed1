"""Which headers pass on."""

import pytest
from multidict import CIMultiDict

from carrel_hub.proxy.headers import (
    add_forwarded,
    end_to_end,
    handshake_headers,
    refusal_headers,
    request_headers,
)


def test_what_the_connection_names_stays_with_it() -> None:
    headers = CIMultiDict({"Connection": "close, X-One ,x-two", "X-One": "1", "X-Two": "2"})
    headers.add("X-Three", "3")
    assert list(end_to_end(headers).items()) == [("X-Three", "3")]


def test_order_and_number_are_kept() -> None:
    pairs = [("Set-Cookie", "a"), ("X", "1"), ("set-cookie", "b")]
    assert list(end_to_end(CIMultiDict(pairs)).items()) == pairs


def test_expectations_are_met_by_us() -> None:
    assert not request_headers(CIMultiDict({"Expect": "100-continue"}))


def test_a_handshake_is_between_neighbours() -> None:
    names = ("Key", "Version", "Extensions", "Protocol", "Accept")
    headers = CIMultiDict({f"Sec-WebSocket-{name}": "x" for name in names})
    headers["Cookie"] = "a=1"
    assert list(handshake_headers(headers)) == ["Cookie"]


def test_a_refusal_loses_what_described_its_body() -> None:
    headers = CIMultiDict({"Content-Length": "9", "Content-Type": "text/html", "Location": "/"})
    assert list(refusal_headers(headers)) == ["Location"]


@pytest.mark.parametrize(
    ("host", "scheme", "port"),
    [
        ("example.org", "http", "80"),
        ("example.org", "https", "443"),
        ("example.org:8000", "http", "8000"),
        ("[::1]:8000", "http", "8000"),
        ("[::1]", "http", "80"),
        ("", "http", "80"),
    ],
)
def test_the_port_is_the_one_that_was_asked(host: str, scheme: str, port: str) -> None:
    headers = CIMultiDict({"Host": host} if host else {})
    add_forwarded(headers, "192.0.2.1", scheme)
    assert headers["X-Forwarded-Port"] == port
    assert headers["X-Forwarded-Host"] == host


def test_ours_comes_last() -> None:
    headers = CIMultiDict([("X-Forwarded-For", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2")])
    headers["X-Forwarded-Host"] = "first.example.org"
    add_forwarded(headers, "192.0.2.1", "http")
    assert headers.getall("X-Forwarded-For") == ["1.1.1.1,2.2.2.2,192.0.2.1"]
    assert headers["X-Forwarded-Host"] == "first.example.org"
