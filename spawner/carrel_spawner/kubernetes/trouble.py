"""A cluster that refuses something, as a sentence for who wanted a workspace."""

from typing import Any, Final

import msgspec

from carrel_spawner.refusal import Refused

_NO_ACCOUNT: Final = "error looking up service account"
"""Said of a pod in a namespace that was just made: the cluster gives it one in a moment."""
_STATUS: Final = msgspec.json.Decoder(dict[str, Any])


def refused(error: Any, project: str) -> Refused:
    """The refusal for an ``ApiException`` of the cluster."""
    status, said = int(error.status or 0), _said(error)
    if status == 404 or _NO_ACCOUNT in said:
        sentence = f"The space of project `{project}` on the cluster is not there yet."
        return Refused(f"{sentence} Try again in a minute.", reason="cluster", status_code=503)
    if status == 403 and "exceeded quota" in said:
        sentence = f"The space of project `{project}` on the cluster is full: {said}"
        return Refused(sentence, reason="quota", status_code=409)
    if status == 403:
        sentence = f"The cluster does not allow this workspace; an admin has to look: {said}"
        return Refused(sentence, reason="cluster", status_code=403)
    return Refused(f"The cluster refused the workspace: {said}", reason="cluster", status_code=502)


def silent(error: Exception) -> Refused:
    """The refusal when the cluster does not do what it was asked in time."""
    sentence = f"The cluster did not start the workspace in time; try again. It says: {error}"
    return Refused(sentence, reason="cluster", status_code=504)


def _said(error: Any) -> str:
    """The cluster's own words."""
    try:
        message = _STATUS.decode(error.body or b"").get("message")
    except (msgspec.DecodeError, TypeError):
        message = None
    return str(message or error.reason or f"status {error.status}")
