"""The quota line: a project's guarantee and what it uses, as one bar to scale and one text.

From the left: used inside the guarantee (solid), borrowed beyond it (hatched), waiting demand
(outline). A mark stands at the guarantee, a second, broken one at the limit if there is one. A very
long queue does not squeeze the rest: its outline stays open to the right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from carrel.models import Department, Project, ProjectUse
from carrel_hub.console import format as fmt
from carrel_hub.console.pictures.palette import css_class
from carrel_hub.console.pictures.svg import element, percent

HEIGHT = 22
_BAR_TOP, _BAR_HEIGHT = 4, 14
_LONGEST = 2.5
NO_COLOR: Final = -1


@dataclass(frozen=True, slots=True)
class LineAmounts:
    """The amounts of the line, in GPUs. ``guaranteed`` and ``limit`` ``None``: no bound."""

    inside: float
    borrowed: float
    waiting: float
    guaranteed: float | None
    limit: float | None


def amounts_of(project: Project) -> LineAmounts:
    """The amounts of a project now."""
    use = project.use
    return LineAmounts(
        inside=max(use.gpus_allocated - use.gpus_borrowed, 0.0),
        borrowed=use.gpus_borrowed,
        waiting=use.gpus_waiting,
        guaranteed=project.quota.gpus,
        limit=project.limit.gpus,
    )


def in_all(department: Department, projects: Sequence[Project]) -> Project:
    """A department as one line: its own guarantee, and what its projects use together."""
    uses = [project.use for project in projects]
    allocated = sum(use.gpus_allocated for use in uses)
    guaranteed = department.quota.gpus
    use = ProjectUse(
        gpus_allocated=allocated,
        gpus_borrowed=0.0 if guaranteed is None else max(0.0, allocated - guaranteed),
        gpus_waiting=sum(use.gpus_waiting for use in uses),
    )
    return Project(
        name=department.name,
        quota=department.quota,
        limit=department.limit,
        color=NO_COLOR,
        use=use,
    )


def quota_text(project: Project) -> str:
    """``3 of 4 guaranteed · 2 borrowed · 5 pending``; parts that are zero are left out."""
    amounts = amounts_of(project)
    if amounts.guaranteed is None:
        parts = [f"{fmt.number(amounts.inside)} used, everything guaranteed"]
    elif amounts.guaranteed == 0 and amounts.inside == 0:
        parts = ["nothing guaranteed"]
    else:
        parts = [f"{fmt.number(amounts.inside)} of {fmt.number(amounts.guaranteed)} guaranteed"]
    if amounts.borrowed:
        parts.append(f"{fmt.number(amounts.borrowed)} borrowed")
    if amounts.waiting:
        parts.append(f"{fmt.number(amounts.waiting)} pending")
    return " · ".join(parts)


def scale_of(project: Project) -> float:
    """The number of GPUs of the bar's full width when the project is drawn alone."""
    amounts = amounts_of(project)
    used = amounts.inside + amounts.borrowed
    firm = max(amounts.guaranteed or 0.0, used, 1.0)
    return max(firm, min(used + amounts.waiting, firm * _LONGEST))


def quota_line(project: Project, scale: float | None = None) -> Markup:
    """The quota line as a picture with its text.

    Args:
        project: whose line.
        scale: GPUs of the full width, to draw several projects comparably.
    """
    text = quota_text(project)
    whole = scale or scale_of(project)
    picture = element(
        "svg",
        element("title", f"{project.name}: {text}"),
        *_bar(amounts_of(project), whole),
        class_=f"quota-bar {'p-other' if project.color == NO_COLOR else css_class(project.color)}",
        role="img",
        width="100%",
        height=HEIGHT,
    )
    return element("div", picture, element("span", text, class_="quota-text"), class_="quota-line")


def _bar(amounts: LineAmounts, whole: float) -> list[Markup]:
    used = amounts.inside + amounts.borrowed
    shapes = [element("rect", x=0, y=HEIGHT / 2 - 1, width="100%", height=2, class_="quota-track")]
    if amounts.waiting:
        cut = used + amounts.waiting > whole
        shapes.append(
            _rect(used, amounts.waiting, whole, "quota-waiting" + (" quota-open" if cut else ""))
        )
    if amounts.inside:
        shapes.append(_rect(0, amounts.inside, whole, "quota-used"))
    if amounts.borrowed:
        shapes.append(_rect(amounts.inside, amounts.borrowed, whole, "quota-used quota-borrowed"))
        shapes.append(_rect(amounts.inside, amounts.borrowed, whole, "hatched", fill="url(#hatch)"))
    if amounts.guaranteed:
        shapes.append(_mark(amounts.guaranteed, whole, "quota-guarantee"))
    if amounts.limit is not None and amounts.limit <= whole:
        shapes.append(_mark(amounts.limit, whole, "quota-limit"))
    return shapes


def _rect(
    start: float, length: float, whole: float, class_: str, fill: str | None = None
) -> Markup:
    return element(
        "rect",
        x=percent(start, whole),
        y=_BAR_TOP,
        width=percent(min(length, whole - start), whole),
        height=_BAR_HEIGHT,
        class_=class_,
        fill=fill,
    )


def _mark(at: float, whole: float, class_: str) -> Markup:
    x = percent(at, whole)
    return element("line", x1=x, x2=x, y1=0, y2=HEIGHT, class_=class_)
