"""Text and HTML for people: templates with every value escaped, amounts, times, redacted reasons.

The spawner sees everything, its users do not: whatever a reason says passes ``readable_by`` before
it is shown.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jupyterhub import utils
from markupsafe import Markup, escape

from carrel.models import Reason, Workload

_NAME: Final = re.compile(r"`([^`]+)`")


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plain=plain, said=said)
    return environment


def said(sentence: str) -> Markup:
    """A sentence with its ``names`` set as such; everything else is escaped."""
    return Markup(_NAME.sub(r"<code>\1</code>", str(escape(sentence))))  # noqa: S704 - escaped


def render(template: str, **facts: Any) -> str:
    """Render a template of this package."""
    return _templates().get_template(template).render(**facts)


def plain(amount: float) -> str:
    """A number without trailing zeros: ``2``, ``0.5``."""
    return f"{amount:g}"


def gpus(amount: float) -> str:
    """``1 GPU``, ``0.5 GPU``, ``2 GPUs``."""
    return f"{amount:g} GPU" if 0 < amount <= 1 else f"{amount:g} GPUs"


def gib(amount_bytes: float) -> str:
    """Bytes in GiB, one decimal at most."""
    return f"{round(amount_bytes / 1024**3, 1):g} GiB"


def cores(millicores: float) -> str:
    """``0.5 cores``, ``1 core``."""
    amount = round(millicores / 1000, 2)
    return f"{amount:g} core" if amount == 1 else f"{amount:g} cores"


def amount(resource: str, quantity: float) -> str:
    """A holder's amount in the unit of the reason: thousandths of a GPU, millicores, MiB."""
    if resource == "cpu":
        return cores(quantity)
    if resource == "memory":
        return gib(quantity * 1024**2)
    return gpus(quantity / 1000)


def readable_by(workload: Workload, projects: Collection[str]) -> Workload:
    """The workload with a sentence that a member of ``projects`` may read."""
    reason = workload.status.reason
    if reason is None or not _names_others(reason, projects):
        return workload
    sentence = str(reason.data.get("sentence_without_names") or reason.sentence)
    told = msgspec.structs.replace(reason, sentence=sentence)
    status = msgspec.structs.replace(workload.status, reason=told)
    return msgspec.structs.replace(workload, status=status)


def holders(reason: Reason) -> list[Mapping[str, Any]]:
    """The holders of a scarce resource, from the reason."""
    found = reason.data.get("holders") or ()
    return [one for one in found if isinstance(one, Mapping)]


def _names_others(reason: Reason, projects: Collection[str]) -> bool:
    told = [str(one.get("project", "")) for one in holders(reason)]
    told.append(str(reason.data.get("project") or ""))
    return any(project and project not in projects for project in told)


_utils: Any = utils


def join_url(*parts: str) -> str:
    """Parts of a URL joined by single slashes."""
    return str(_utils.url_path_join(*parts))


def escape_path(part: str) -> str:
    """A path segment, quoted as the Hub does."""
    return str(_utils.url_escape_path(part))
