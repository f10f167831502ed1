"""What the server says, as errors."""

import msgspec
import pytest

from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    decode_status,
    from_status,
)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", Unavailable),
        (504, "Timeout", Unavailable),
        (405, "MethodNotAllowed", KubeError),
    ],
)
def test_the_kind_follows_status_and_reason(
    status: int, reason: str, kind: type[KubeError]
) -> None:
    body = msgspec.json.encode(
        {"kind": "Status", "reason": reason, "message": "no", "code": status}
    )
    error = from_status(decode_status(body, status), status)
    assert type(error) is kind
    assert str(error) == f"{status} {reason}: no"


def test_a_server_that_is_just_starting_forbids_nothing() -> None:
    message = 'pods "p" is forbidden: not yet ready to handle request'
    body = msgspec.json.encode({"reason": "Forbidden", "message": message, "code": 403})
    assert type(from_status(decode_status(body, 403), 403)) is Unavailable


def test_causes_name_fields() -> None:
    body = (
        b'{"reason":"Invalid","message":"m","code":422,"details":{"name":"p","kind":"Pod",'
        b'"causes":[{"reason":"FieldValueInvalid","message":"must be","field":"spec.x"}]}}'
    )
    error = from_status(decode_status(body, 422), 422)
    assert [cause.field for cause in error.details.causes or ()] == ["spec.x"]


def test_what_is_no_status_is_told_as_text() -> None:
    for body in (b"<html>bad gateway</html>", b'{"message":"bad gateway \xe4"}'):
        error = from_status(decode_status(body, 502), 502)
        assert type(error) is Unavailable
        assert "bad gateway" in str(error)


def test_the_pause_asked_for_is_of_the_header_or_the_body() -> None:
    body = b'{"reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429}'
    status = decode_status(body, 429)
    by_body, by_header = from_status(status, 429), from_status(status, 429, 2.0)
    assert isinstance(by_body, TooManyRequests)
    assert isinstance(by_header, TooManyRequests)
    assert (by_body.retry_after, by_header.retry_after) == (7.0, 2.0)
