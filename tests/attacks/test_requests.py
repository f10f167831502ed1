"""Requests that no well-behaved program sends: to the API as somebody else, and to the proxy."""

import json
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
import requests

from attacks.person import Person, raw_exchange
from carrel.errors import ApiError
from e2e.stack import Stack

FOREIGN = [
    ("GET", "/workloads/speech/{name}"),
    ("GET", "/workloads/speech/{name}/logs"),
    ("GET", "/workloads/speech/{name}/metrics"),
    ("GET", "/workloads/speech/{name}/history"),
    ("POST", "/workloads/speech/{name}/suspend"),
    ("POST", "/workloads/speech/{name}/resume"),
    ("DELETE", "/workloads/speech/{name}"),
]
"""Operations on work of another project."""


@pytest.fixture(scope="module")
def victim(grace: Person) -> str:
    """A job of Grace that ends at once."""
    made = grace.submit(["true"], name="victim")
    grace.ended(made)
    return made.name


@pytest.mark.parametrize(("method", "path"), FOREIGN)
def test_work_of_another_project_is_neither_shown_nor_changed(
    ada: Person, grace: Person, victim: str, method: str, path: str
) -> None:
    answer = ada.api(method, path.format(name=victim))
    assert answer.status_code in (403, 404), answer.text
    assert grace.client.get_workload("speech", victim).status.phase == "succeeded"


def test_nobody_submits_into_a_project_of_others(ada: Person) -> None:
    with pytest.raises(ApiError) as refused:
        ada.submit(["id"], project="speech")
    assert refused.value.status == 403


def test_nobody_submits_in_the_name_of_others(ada: Person) -> None:
    answer = ada.api(
        "POST",
        "/workloads",
        json={
            "kind": "training",
            "name": "as-grace",
            "project": "vision",
            "command": ["id"],
            "user": "grace",
        },
    )
    assert answer.status_code in (403, 422), answer.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/projects/vision", {"gpus": 4}),
        ("POST", "/projects", {"name": "mine", "gpus": 4}),
        ("DELETE", "/projects/speech", None),
        ("POST", "/departments", {"name": "mine"}),
    ],
)
def test_quotas_are_set_by_administrators_only(
    ada: Person, method: str, path: str, body: dict[str, Any] | None
) -> None:
    answer = ada.api(method, path, json=body)
    assert answer.status_code in (403, 404, 405), answer.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpus", "NaN"),
        ("gpus", -1),
        ("gpus", 10**400),
        ("gpus", float("1e308")),
        ("memory", -(2**63)),
        ("memory", 2**63),
        ("command", ["a\0b"]),
        ("command", []),
        ("name", "../../etc"),
        ("name", "a" * 300),
        ("environment", {"A=B": "c"}),
        ("labels", {"x" * 5000: "y"}),
        ("files", {"../../../etc/cron.d/x": "y"}),
        ("files", {"/etc/cron.d/x": "y"}),
        ("no_such_field", 1),
    ],
)
def test_a_bad_field_is_refused_by_its_name(ada: Person, field: str, value: object) -> None:
    body = {
        "kind": "training",
        "name": "bad",
        "project": "vision",
        "command": ["true"],
        field: value,
    }
    answer = ada.api("POST", "/workloads", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert field in answer.text


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"kind": "training", "kind": "workspace"}',
        b'{"gpus": NaN}',
        b'{"gpus": Infinity}',
        b"\xff\xfe{}",
        b'{"name": "\\ud800"}',
        b"null",
        b"",
    ],
    ids=["deep", "twice", "nan", "infinite", "encoding", "surrogate", "null", "empty"],
)
def test_a_body_that_is_no_request_gets_a_clear_refusal(ada: Person, body: bytes) -> None:
    answer = ada.api("POST", "/workloads", data=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert ada.api("GET", "/whoami").status_code == 200


def test_more_than_a_request_may_hold_is_refused(ada: Person) -> None:
    answer = ada.api(
        "POST",
        "/workloads",
        data=b'{"name": "' + b"x" * (32 * 1024 * 1024) + b'"}',
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code in (400, 413, 422), answer.text
    assert ada.api("GET", "/whoami").status_code == 200


def test_a_cookie_alone_does_not_open_the_api(ada: Person, stack: Stack) -> None:
    """Requests that other pages make a browser send carry cookies and no token."""
    answer = ada.session.get(f"{stack.url}/services/carrel/api/v1/workloads", timeout=30)
    assert answer.status_code in (401, 403)


def test_a_token_in_the_address_does_not_open_the_api(ada: Person, stack: Stack) -> None:
    """Addresses land in logs, histories and Referer headers."""
    answer = ada.session.get(
        f"{stack.url}/services/carrel/api/v1/workloads", params={"token": ada.token}, timeout=30
    )
    assert answer.status_code in (401, 403)


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example",
        "%2f%2fevil.example",
        "javascript:x",
    ],
)
def test_the_sign_in_page_does_not_send_visitors_elsewhere(
    stack: Stack, ada: Person, target: str
) -> None:
    page = f"{stack.url}/hub/login"
    answer = ada.session.get(f"{page}?next={target}", allow_redirects=False, timeout=30)
    landed = urlsplit(urljoin(page, answer.headers.get("Location", "")))
    assert (landed.scheme, landed.hostname) == ("http", urlsplit(stack.url).hostname)


ODD_FRAMING = {
    "two lengths": b"POST /hub/login HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Content-Length: 0\r\n\r\nabcde",
    "signed length": b"POST /hub/login HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nabcde",
    "odd coding": b"POST /hub/login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\nabc",
    "space before colon": b"GET /hub/login HTTP/1.1\r\nHost : x\r\n\r\n",
    "no host": b"GET /hub/login HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /hub/login HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "nul in a header": b"GET /hub/login HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
    "odd chunk": b"POST /hub/login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;\x00\r\nabcde\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("request_", ODD_FRAMING.values(), ids=ODD_FRAMING.keys())
def test_a_request_that_can_be_read_two_ways_is_refused(stack: Stack, request_: bytes) -> None:
    """What is smuggled behind it is never answered as a request of its own."""
    answer = raw_exchange(stack.url, request_, seconds=5)
    status = answer.split(b" ", 2)[1:2]
    assert status in ([], [b"400"], [b"403"], [b"501"]), answer[:300]
    assert b"smuggled" not in answer


def test_chunks_count_where_a_length_stands_beside_them(stack: Stack) -> None:
    """What follows the last chunk is the same caller's next request, on the same connection.

    RFC 9112, 6.1: the coding overrides the length, and a proxy passes only one of the two on.
    """
    answer = raw_exchange(
        stack.url,
        b"POST /hub/login HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        b"GET /behind HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        seconds=60,
    )
    first, behind, second = answer.partition(b"HTTP/1.1 302 Found")
    assert first.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))
    assert not behind or b"/hub/behind" in second


@pytest.mark.parametrize(
    "request_",
    [
        b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
        b"GET http://127.0.0.1:22/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
    ids=["connect", "absolute"],
)
def test_the_proxy_goes_nowhere_but_to_its_routes(stack: Stack, request_: bytes) -> None:
    answer = raw_exchange(stack.url, request_, seconds=5)
    assert b"SSH-" not in answer
    assert not answer.startswith(b"HTTP/1.1 200 Connection")


@pytest.mark.parametrize(
    "header", ["X-Forwarded-User", "X-Remote-User", "Remote-User", "X-JupyterHub-User"]
)
def test_identity_headers_of_strangers_are_not_believed(stack: Stack, header: str) -> None:
    answer = requests.get(
        f"{stack.url}/services/carrel/api/v1/whoami", headers={header: "admin"}, timeout=30
    )
    assert answer.status_code in (401, 403)


def test_a_job_is_told_no_secret_of_the_platform(ada: Person, stack: Stack) -> None:
    """Nothing in its environment opens more than its own work, and its process shows no other."""
    phase, said = ada.python("import json, os; print(json.dumps(dict(os.environ)))")
    assert phase == "succeeded", said
    told = json.loads(said[said.index("{") :])
    keys = json.loads((stack.state_dir / "keys.json").read_text())
    for name, secret in keys.items():
        assert secret not in told.values(), name
