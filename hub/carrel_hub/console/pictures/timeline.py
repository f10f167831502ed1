"""A workload's past as a bar: one piece for each state, as long as it lasted.

The bar is for the eye; the table of changes beside it (in the page) says who and why.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from carrel.models import Reason, Transition
from carrel_hub.console import format as fmt
from carrel_hub.console.pictures.states import state_of
from carrel_hub.console.pictures.svg import element, percent

HEIGHT = 24
_FINAL = frozenset({"succeeded", "failed", "stopped"})


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A state with its beginning and end (epoch seconds); ``end`` ``None``: it lasts.

    ``where`` names node and devices while something is held.
    """

    phase: str
    start: float
    end: float | None
    borrowed: bool
    attempt: int
    where: str
    reason: Reason | None
    first: bool = False

    def seconds(self, now: float) -> float:
        """The duration in seconds."""
        return (now if self.end is None else self.end) - self.start


def spans_of(transitions: Sequence[Transition]) -> list[StateSpan]:
    """The changes of state as spans, oldest first."""
    following: list[float | None] = [*(change.at for change in transitions[1:]), None]
    return [
        StateSpan(
            phase=change.to_phase,
            start=change.at,
            end=end,
            borrowed=change.borrowed,
            attempt=change.attempt,
            where=_where(change),
            reason=change.reason,
            first=change is transitions[0],
        )
        for change, end in zip(transitions, following, strict=True)
    ]


def timeline(spans: list[StateSpan], now: float) -> Markup:
    """The bar, from the first change to now, or to the end where the workload rests."""
    if not spans:
        return Markup("")
    first = spans[0].start
    last = spans[-1]
    resting = last.phase in _FINAL
    end = last.start if resting else max(now, last.start)
    whole = max(end - first, 1e-3)
    shapes = [element("title", _spoken(spans, now))]
    for span in spans:
        if span is last and resting:
            continue
        shapes += _piece(span, first, whole, now)
    return element("svg", *shapes, class_="timeline", role="img", width="100%", height=HEIGHT)


def _piece(span: StateSpan, first: float, whole: float, now: float) -> list[Markup]:
    place: dict[str, str | int] = {
        "x": percent(span.start - first, whole),
        "y": 2,
        "width": percent(max(span.seconds(now), whole / 400), whole),
        "height": HEIGHT - 4,
    }
    state = state_of(span.phase)
    text = f"{state.word} for {fmt.duration(span.seconds(now))}"
    shapes = [element("rect", element("title", text), **place, class_=f"span {state.tone}")]
    if span.borrowed:
        shapes.append(element("rect", **place, class_="hatched", fill="url(#hatch)"))
    return shapes


def _spoken(spans: list[StateSpan], now: float) -> str:
    words = [
        state_of(span.phase).word
        + ("" if span.phase in _FINAL else f" {fmt.duration(span.seconds(now))}")
        for span in spans[-12:]
    ]
    return ("… then " if len(spans) > 12 else "") + ", then ".join(words)


def _where(change: Transition) -> str:
    if not change.node:
        return ""
    if not change.devices:
        return change.node
    noun = "GPU" if len(change.devices) == 1 else "GPUs"
    return f"{change.node}, {noun} {', '.join(str(index) for index in change.devices)}"
