"""The parts of ``map``: requests for calls, what became of them, and the bar that is shown."""

import base64
import os
import secrets
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from carrel.errors import BadSetting
from carrel.from_here import in_workspace, see

MOST_FILE_BYTES: Final = 2**20
LABEL: Final = "carrel.dev/map"
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended: with a value, or with an error."""

    index: int
    name: str
    value: Any = None
    error: BaseException | None = None


def call_bodies(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    project: str,
    name: str,
    gpus: float = 0,
    fields: Mapping[str, Any] | None = None,
) -> list[Body]:
    """The requests of calls. Raises ``BadSetting`` for what cannot be packed."""
    packed = _packed("The function", function)
    given = dict(fields or {})
    environment = {"PYTHONUNBUFFERED": "1", **given.pop("environment", {})}
    labels = {**given.pop("labels", {}), LABEL: secrets.token_hex(8)}
    common: Body = {
        "kind": "training",
        "project": project,
        "command": [sys.executable, "-m", "carrel.job.call", os.getcwd()],  # noqa: PTH109 - a string
        "environment": environment,
        "labels": labels,
        "gpus": gpus,
        "backoff_limit": 0,
        **given,
    }
    if in_workspace():
        see(common, os.getcwd())  # noqa: PTH109 - as in the command
    return [
        {
            **common,
            "name": f"{name}-{number}",
            "files": {"function.b85": packed, "item.b85": _packed(f"Item {number}", item)},
        }
        for number, item in enumerate(items, 1)
    ]


def in_order(outcomes: Iterable[Outcome], *, return_exceptions: bool) -> list[Any]:
    """Values in the order of the items; raises the first error unless errors are wanted, too."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.index)
    if not return_exceptions:
        for outcome in ordered:
            if outcome.error is not None:
                outcome.error.add_note(f"Item {outcome.index + 1} of carrel.map: {outcome.name}.")
                raise outcome.error
    return [outcome.value if outcome.error is None else outcome.error for outcome in ordered]


def bar(total: int, *, show: bool) -> Any:
    """A progress bar: a widget in a notebook, text elsewhere, silent when nobody looks."""
    from tqdm.auto import tqdm

    return tqdm(total=total, unit="job", disable=not show)


def _packed(what: str, value: object) -> str:
    cloudpickle: Any = import_module("cloudpickle")  # heavy, and it has no types
    try:
        packed = cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        # Objects decide themselves how they are pickled, and raise what they like.
        raise BadSetting(f"{what} cannot be packed: {error}.", code="not_picklable") from error
    text = base64.b85encode(zlib.compress(packed)).decode("ascii")
    if len(text) > MOST_FILE_BYTES // 2:
        size = len(text) / MOST_FILE_BYTES
        raise BadSetting(
            f"{what} takes {size:.1f} MiB, more than half a MiB; save large data to a file and "
            "hand over its path.",
            code="too_large",
        )
    return text
