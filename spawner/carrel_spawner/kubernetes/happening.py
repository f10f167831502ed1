"""What the cluster tells of a pod, in words for its owner; what tells them nothing is left out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class News:
    """A sentence, and how far the start is."""

    percent: int
    sentence: str


_IMAGE: Final = re.compile(r'image "([^"]+)"')
_SECONDS: Final = re.compile(r"in (?:(\d+)m)?([\d.]+)s\b")
_STORAGE: Final = frozenset(
    {"FailedMount", "FailedAttachVolume", "ProvisioningFailed", "FailedBinding"}
)
_STEPS: Final = {
    "SuccessfulAttachVolume": News(64, "Your files are at hand."),
    "Created": News(76, "The workspace is set up."),
    "Started": News(80, "The workspace runs; JupyterLab is starting."),
    "FailedCreatePodSandBox": News(62, "The machine has trouble with setting it up; it tries on."),
    "NodeNotReady": News(60, "The machine does not answer; it is waited for."),
}


def news(event: Mapping[str, Any]) -> News | None:
    """What an event of the pod means for who waits; ``None`` when nothing."""
    why, text = str(event.get("reason", "")), str(event.get("message", ""))
    if why == "Pulling":
        return News(62, f"Fetching the image {_image(text)}; the first time this takes longer.")
    if why == "Pulled":
        took = _SECONDS.search(text)
        minutes = int(took[1] or 0) if took else 0
        seconds = minutes * 60 + (float(took[2]) if took else 0.0)
        return News(72, f"The image is there after {seconds:.0f} s." if seconds >= 1 else
                    "The image is there.")  # fmt: skip
    if why in ("Failed", "BackOff", "InspectFailed", "ErrImageNeverPull"):
        return _failed(why, text)
    if why in _STORAGE:
        return News(61, f"The volume with your files is not there yet: {_end(text)}")
    return _STEPS.get(why)


def _failed(why: str, text: str) -> News:
    """About an image it says which one; anything else is told as it is."""
    if "image" in text.lower():
        what = _image(text)
        return News(62, f"The image {what} could not be fetched; it is tried again. {_cause(text)}")
    if why == "BackOff":
        return News(62, "The workspace ended at once; it is tried again.")
    return News(62, f"It could not be started; it is tried again. {_end(text)}")


def _image(text: str) -> str:
    found = _IMAGE.search(text)
    return f"`{found[1]}`" if found else "of the workspace"


def _cause(text: str) -> str:
    """The last part of an error that wraps others."""
    last = text.rsplit(": ", 1)[-1] if ": " in text else ""
    return _end(last) if last else ""


def _end(text: str) -> str:
    """With a full stop, and no longer than a line or two."""
    short = " ".join(text.split())[:240].rstrip(". ")
    return f"{short}."
