"""Events of a pod and refusals of the cluster, in sentences for the owner of the workspace.

Events that tell the owner nothing are left out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from carrel_spawner.refusal import WorkspaceRefused

_IMAGE: Final = re.compile(r'image "([^"]+)"')
_SECONDS: Final = re.compile(r"in (?:(\d+)m)?([\d.]+)s\b")
_STORAGE: Final = frozenset(
    {"FailedMount", "FailedAttachVolume", "ProvisioningFailed", "FailedBinding"}
)
_NO_ACCOUNT: Final = "error looking up service account"
"""Said of a pod in a namespace that was just made: the cluster gives it one in a moment."""
_STATUS: Final = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class ProgressMessage:
    """A sentence, and how far the start is."""

    percent: int
    sentence: str


_STEPS: Final = {
    "SuccessfulAttachVolume": ProgressMessage(64, "Your files are at hand."),
    "Created": ProgressMessage(76, "The workspace is set up."),
    "Started": ProgressMessage(80, "The workspace runs; JupyterLab is starting."),
    "FailedCreatePodSandBox": ProgressMessage(
        62, "The machine has trouble with setting it up; it tries on."
    ),
    "NodeNotReady": ProgressMessage(60, "The machine does not answer; it is waited for."),
}


def event_message(event: Mapping[str, Any]) -> ProgressMessage | None:
    """The progress message of a pod's event; ``None`` when it has none."""
    why, text = str(event.get("reason", "")), str(event.get("message", ""))
    if why == "Pulling":
        return ProgressMessage(
            62, f"Fetching the image {_image(text)}; the first time this takes longer."
        )
    if why == "Pulled":
        took = _SECONDS.search(text)
        minutes = int(took[1] or 0) if took else 0
        seconds = minutes * 60 + (float(took[2]) if took else 0.0)
        return ProgressMessage(72, f"The image is there after {seconds:.0f} s." if seconds >= 1 else
                    "The image is there.")  # fmt: skip
    if why in ("Failed", "BackOff", "InspectFailed", "ErrImageNeverPull"):
        return _failed(why, text)
    if why in _STORAGE:
        return ProgressMessage(61, f"The volume with your files is not there yet: {_end(text)}")
    return _STEPS.get(why)


def _failed(why: str, text: str) -> ProgressMessage:
    """About an image it says which one; anything else is told as it is."""
    if "image" in text.lower():
        what = _image(text)
        return ProgressMessage(
            62, f"The image {what} could not be fetched; it is tried again. {_cause(text)}"
        )
    if why == "BackOff":
        return ProgressMessage(62, "The workspace ended at once; it is tried again.")
    return ProgressMessage(62, f"It could not be started; it is tried again. {_end(text)}")


def _image(text: str) -> str:
    found = _IMAGE.search(text)
    return f"`{found[1]}`" if found else "of the workspace"


def _cause(text: str) -> str:
    """The innermost cause of an error."""
    last = text.rsplit(": ", 1)[-1] if ": " in text else ""
    return _end(last) if last else ""


def _end(text: str) -> str:
    """A text with a full stop, cut to a line or two."""
    short = " ".join(text.split())[:240].rstrip(". ")
    return f"{short}."


def refusal_of(error: Any, project: str) -> WorkspaceRefused:
    """The refusal for an ``ApiException`` of the cluster."""
    status, said = int(error.status or 0), _said(error)
    if status == 404 or _NO_ACCOUNT in said:
        sentence = f"The space of project `{project}` on the cluster is not there yet."
        return WorkspaceRefused(
            f"{sentence} Try again in a minute.", reason="cluster", status_code=503
        )
    if status == 403 and "exceeded quota" in said:
        sentence = f"The space of project `{project}` on the cluster is full: {said}"
        return WorkspaceRefused(sentence, reason="quota", status_code=409)
    if status == 403:
        sentence = f"The cluster does not allow this workspace; an admin has to look: {said}"
        return WorkspaceRefused(sentence, reason="cluster", status_code=403)
    return WorkspaceRefused(
        f"The cluster refused the workspace: {said}", reason="cluster", status_code=502
    )


def timed_out(error: Exception) -> WorkspaceRefused:
    """The refusal when the cluster does not do what it was asked in time."""
    sentence = f"The cluster did not start the workspace in time; try again. It says: {error}"
    return WorkspaceRefused(sentence, reason="cluster", status_code=504)


def _said(error: Any) -> str:
    """The API server's message."""
    try:
        message = _STATUS.decode(error.body or b"").get("message")
    except (msgspec.DecodeError, TypeError):
        message = None
    return str(message or error.reason or f"status {error.status}")
