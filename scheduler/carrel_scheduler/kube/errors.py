"""Errors of the API server, and failures to reach it.

The server says why in a ``Status`` object; ``from_status`` makes the error of it. No error holds
anything of the request, so no token and no secret can get into a log by one.
"""

from typing import Final

import msgspec


class StatusCause(msgspec.Struct, frozen=True):
    """A cause that a ``Status`` names: ``field`` is the path in the object that was sent."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The ``details`` of a ``Status``."""

    name: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: float = 0.0


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The API server's answer to a refused request."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


class KubeError(Exception):
    """The API server refused a request.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        reason: the server's word for it, as ``AlreadyExists``; stable.
        message: for people.
        details: which object, which causes.
        retried: the request was sent more than once, because an earlier answer was lost: an
            earlier one may have done what this one found done.
    """

    def __init__(
        self, status: int, reason: str, message: str, details: StatusDetails | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status, self.reason, self.message = status, reason, message
        self.details = details or StatusDetails()
        self.retried = False


class NotFound(KubeError):  # noqa: N818 - an outcome to handle, like its siblings
    """404: the object or the kind does not exist."""


class AlreadyExists(KubeError):  # noqa: N818 - see above
    """409 at a creation: the name is taken."""


class Conflict(KubeError):  # noqa: N818 - see above
    """409 otherwise: the object is not, or no longer, as the request expected."""


class Gone(KubeError):  # noqa: N818 - see above
    """410: the requested version is too old to be known."""


class Invalid(KubeError):  # noqa: N818 - see above
    """400 or 422: ``details.causes`` names the fields."""


class Unauthorized(KubeError):  # noqa: N818 - see above
    """401: the credentials are not accepted, even after they were read again."""


class Forbidden(KubeError):  # noqa: N818 - see above
    """403: not allowed by roles, an admission policy or a quota."""


class TooManyRequests(KubeError):  # noqa: N818 - see above
    """429: nothing was done; at an eviction, a PodDisruptionBudget is against it for now.

    Attributes:
        retry_after: seconds to wait, 0 where the server named none.
    """

    retry_after = 0.0


class Unavailable(KubeError):  # noqa: N818 - see above
    """5xx, or no answer. A write that met this may or may not be done: look before repeating.

    Also a 403 of a server that has just started and does not know its rules yet.
    """


class Undecodable(KubeError):  # noqa: N818 - see above
    """An object does not have the expected structure; ``message`` names the field."""


UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""The errors of decoding; msgspec lets the second one through as it is."""
BUDGET_CAUSE: Final = "DisruptionBudget"
STARTING: Final = "not yet ready to handle request"
"""The answer of every admission check until it knows the cluster."""
_BY_STATUS: Final[dict[int, type[KubeError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_STATUS: Final = msgspec.json.Decoder(Status)


def decode_status(body: bytes, http_status: int) -> Status:
    """The ``Status`` in an answer; one made of the text where it is something else."""
    try:
        found = _STATUS.decode(body)
    except UNREADABLE:
        return Status(message=body[:500].decode(errors="replace").strip(), code=http_status)
    return found


def from_status(status: Status, http_status: int = 0, retry_after: float = 0.0) -> KubeError:
    """The error for an answer of the server.

    Args:
        status: decoded body, or the object of an ``ERROR`` event of a watch.
        http_status: of the answer; by default that within ``status``.
        retry_after: seconds, of the header.
    """
    code = http_status or status.code
    kind = _BY_STATUS.get(code, Unavailable if code >= 500 else KubeError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    if kind is Forbidden and status.message.endswith(STARTING):
        kind = Unavailable
    error = kind(code, status.reason or kind.__name__, status.message, status.details)
    if isinstance(error, TooManyRequests):
        error.retry_after = retry_after or error.details.retry_after_seconds
    return error
