"""Word, icon and colour class of each phase of a workload.

The icon is a path in a 12 x 12 box. A state is never told by colour alone.
"""

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from carrel_hub.console.pictures.svg import element


@dataclass(frozen=True, slots=True)
class ShownState:
    """A state as pages show it. ``tone`` names its colour in the style sheet."""

    word: str
    tone: str
    icon: str


_CLOCK = (
    "M6 1a5 5 0 1 0 0 10A5 5 0 0 0 6 1Zm0 1.4a3.6 3.6 0 1 1 0 7.2 3.6 3.6 0 0 1 0-7.2Z"
    "M5.3 3.4v3l2.2 1.4.7-1.1-1.5-1V3.4Z"
)
_PLAY = "M2.5 1.2v9.6L10.5 6Z"
_CHEVRONS = "M1.5 1.5 5.5 6l-4 4.5h2L7.5 6l-4-4.5Zm5 0 4 4.5-4 4.5h2L12 6 8.5 1.5Z"
_GIVE = "M7.5 1 11.5 5l-4 4V6.3H4.5v4.2H2.7V3.7h4.8Z"
_CHECK = "M1.2 6.5 2.6 5l2.3 2.3L9.6 2l1.5 1.4-6.1 7Z"
_CROSS = "M2.4 1 6 4.6 9.6 1 11 2.4 7.4 6 11 9.6 9.6 11 6 7.4 2.4 11 1 9.6 4.6 6 1 2.4Z"
_SQUARE = "M2 2h8v8H2Z"

STATES: Final[dict[str, ShownState]] = {
    "pending": ShownState("pending", "waiting", _CLOCK),
    "starting": ShownState("starting", "active", _CHEVRONS),
    "running": ShownState("running", "active", _PLAY),
    "preempting": ShownState("preempting", "yielding", _GIVE),
    "stopping": ShownState("stopping", "stopped", _CHEVRONS),
    "succeeded": ShownState("succeeded", "done", _CHECK),
    "failed": ShownState("failed", "failed", _CROSS),
    "stopped": ShownState("stopped", "stopped", _SQUARE),
    "retrying": ShownState("crashed, retrying", "failed", _CLOCK),
    "retrying-stalled": ShownState("stalled, retrying", "failed", _CLOCK),
    # Of trials:
    "completed": ShownState("completed", "done", _CHECK),
    "pruned": ShownState("pruned", "stopped", _SQUARE),
}


def state_of(phase: str) -> ShownState:
    """The state of a phase; one that this console does not know yet is shown by its own name."""
    known = "pending" if phase == "waiting" else phase  # a trial that has not begun
    return STATES.get(known) or ShownState(phase, "stopped", _SQUARE)


def badge(phase: str) -> Markup:
    """Icon and word."""
    state = state_of(phase)
    icon = element(
        "svg", element("path", d=state.icon), viewBox="0 0 12 12", class_="icon", aria_hidden="true"
    )
    return element("span", icon, " ", state.word, class_=f"state {state.tone}")
