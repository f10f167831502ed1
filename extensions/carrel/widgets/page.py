"""Static HTML of the views, for saved notebooks and web viewers.

Styles are inline, as these keep nothing else.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

COLOURS: Final = {
    "pending": "#8a5a00",
    "starting": "#1559b3",
    "running": "#1559b3",
    "preempting": "#6a3fb5",
    "stopping": "#5f6368",
    "succeeded": "#1b7a3d",
    "failed": "#b3261e",
    "stopped": "#5f6368",
    "deleted": "#5f6368",
}


def state(phase: str, icon: str, word: str) -> str:
    """Icon and word in the state's colour."""
    colour = COLOURS.get(phase, "#5f6368")
    return f'<span style="color:{colour};font-weight:600">{escape(icon)} {escape(word)}</span>'


def job_card(job: Mapping[str, Any], lines: Iterable[str], pictures: str = "") -> str:
    """One piece of work; ``pictures`` are HTML already."""
    where = f"{escape(job['project'])} · {escape(job['gpus'])}"
    shown = state(job["phase"], job["icon"], job["word"])
    parts = [f"<div>{shown} <b>{escape(job['name'])}</b> · {where}</div>"]
    if job["reason"]:
        parts.append(f"<div>{sentence(job['reason'])} {sentence(job['help'])}</div>")
    progress = job["progress"]
    if progress and progress["total"]:
        parts.append(
            f"<div>{progress['done']:,.0f} of {progress['total']:,.0f} "
            f"{escape(progress['unit'])}s</div>"
        )
    if job["members"]:
        members = (f"{one['index']}: {one['where']} {one['told']}" for one in job["members"])
        parts.append(f"<div>{escape('; '.join(members))}</div>")
    if pictures:
        parts.append(f"<div>{pictures}</div>")
    text = "\n".join(lines)
    if text:
        parts.append(f'<pre style="margin:4px 0">{escape(text)}</pre>')
    return "".join(parts)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML already."""
    head = "".join(f'<th style="text-align:left">{escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption style='text-align:left'>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def sentence(text: str) -> str:
    """A sentence with its `names` set off."""
    parts = escape(text).split("`")
    return "".join(f"<b>{part}</b>" if index % 2 else part for index, part in enumerate(parts))


def escape(value: Any) -> str:
    """Text for HTML."""
    return html.escape(str(value))
