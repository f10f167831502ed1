"""Saying no: one exception that every page and the API of the Hub show as a plain sentence.

With it goes what helps: who holds what since when, and a button that puts the user into the queue.
Names of people and workloads of projects that the user is not in are left out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from jupyterhub.spawner import SpawnException

from carrel import wording
from carrel.errors import ApiError
from carrel.models import Workload
from carrel_spawner import rendering
from carrel_spawner.options import BadOption, WorkspaceChoice
from carrel_spawner.rendering import holders
from carrel_spawner.start import StartStatus

QUEUEABLE = frozenset({"quota", "capacity"})


class WorkspaceRefused(SpawnException):
    """The workspace cannot start now, though nothing failed. ``reason`` labels the Hub's metric.

    The Hub reads ``jupyterhub_message`` and ``jupyterhub_html_message`` for its pages.
    """

    def __init__(
        self, message: str, *, reason: str, html: str = "", status_code: int = 409
    ) -> None:
        base: Any = super()
        base.__init__(message, reason=reason, message_html=html, status_code=status_code)
        self.jupyterhub_message = message
        self.jupyterhub_html_message = html or None


@dataclass(frozen=True, slots=True)
class HolderLine:
    """A line about one holder of a scarce resource."""

    who: str
    what: str
    since: str
    borrowed: bool


def bad_option(error: BadOption) -> WorkspaceRefused:
    """The message of an unusable choice."""
    return WorkspaceRefused(str(error), reason="options", status_code=400)


def unfit(sentence: str) -> WorkspaceRefused:
    """A choice that its place could not fulfil, such as an environment that is not there."""
    html = rendering.render("ended.html", sentence=sentence, help="", log_tail="")
    return WorkspaceRefused(sentence, reason="options", html=html, status_code=400)


def no_room(
    status: StartStatus,
    workload: Workload,
    *,
    choice: WorkspaceChoice,
    projects: Collection[str],
    queue_url: str,
    now: float,
) -> WorkspaceRefused:
    """A start without capacity, now or ever: the shortage, its holders, and how to queue."""
    html = rendering.render(
        "refusal.html",
        sentence=status.sentence,
        help=status.help,
        holders=holdings(workload, projects, now),
        choice=choice,
        queue_url=queue_url if status.because in QUEUEABLE else "",
    )
    message = f"{status.sentence} {status.help}".strip()
    return WorkspaceRefused(message, reason=status.because, html=html)


def queued(place: int | None, sentence: str, queue_url: str) -> WorkspaceRefused:
    """The workspace waits in the queue already and starts by itself."""
    where = f"at place {place} " if place else ""
    message = f"This workspace is {where}in the queue and starts by itself when it is its turn."
    html = rendering.render("queued.html", message=message, sentence=sentence, queue_url=queue_url)
    return WorkspaceRefused(message, reason="queued", html=html)


def ended(status: StartStatus, log_tail: str) -> WorkspaceRefused:
    """The message of a workspace whose process ended before it answered."""
    html = rendering.render(
        "ended.html", sentence=status.sentence, help=status.help, log_tail=log_tail
    )
    message = f"{status.sentence} {status.help}".strip()
    return WorkspaceRefused(message, reason=status.because, html=html, status_code=500)


def too_slow(seconds: float, last: str) -> WorkspaceRefused:
    """The start took longer than allowed."""
    message = f"The workspace was not ready after {wording.duration(seconds)}; it was given up."
    html = rendering.render("ended.html", sentence=message, help=last, log_tail="")
    return WorkspaceRefused(message, reason="timeout", html=html, status_code=504)


def declined(error: ApiError) -> WorkspaceRefused:
    """The scheduler refuses the request itself: it could never be met, or not by this project."""
    helps = [str(one["expected"]) for one in error.errors if one.get("expected")]
    sentence = error.detail or error.title or str(error)
    html = rendering.render("ended.html", sentence=sentence, help=" ".join(helps), log_tail="")
    reason = "quota" if "quota" in error.code else "never"
    message = " ".join([sentence, *helps])
    return WorkspaceRefused(message, reason=reason, html=html, status_code=error.status)


def unavailable(error: Exception) -> WorkspaceRefused:
    """The scheduler does not answer, or cannot."""
    if isinstance(error, ApiError) and 400 <= error.status < 500:
        return declined(error)
    message = f"The scheduler could not be asked for a place: {error}"
    return WorkspaceRefused(message, reason="scheduler", status_code=503)


def holdings(workload: Workload, projects: Collection[str], now: float) -> list[HolderLine]:
    """The holders of a scarce resource, as far as the user may see them."""
    reason = workload.status.reason
    if reason is None:
        return []
    resource = str(reason.data.get("resource", "gpu"))
    return [_holding(holder, resource, projects, now) for holder in holders(reason)]


def _holding(
    holder: Mapping[str, Any], resource: str, projects: Collection[str], now: float
) -> HolderLine:
    project, user, name = (str(holder.get(key, "")) for key in ("project", "user", "name"))
    if project in projects and name:
        who = f"{user or 'a member'} of {project} with {name}"
    else:
        who = f"a member of {project}" if project else "another project"
    since = float(holder.get("since") or 0)
    return HolderLine(
        who=who,
        what=rendering.amount(resource, float(holder.get("amount") or 0)),
        since=f"for {wording.duration(now - since)}" if since else "",
        borrowed=bool(holder.get("borrowed")),
    )
