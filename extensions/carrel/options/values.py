"""Types of the values of options: how texts are read, and what the API accepts.

A value knows its JSON type and its bounds, so that a test can hold it to the API's schema, and a
refusal here says the same as one there, only sooner.
"""

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from carrel import units
from carrel.errors import BadSetting
from carrel_schema.constraints import (
    LEAST_MEMORY_BYTES,
    MOST_CPU_MILLICORES,
    MOST_GPUS,
    MOST_MEMORY_BYTES,
    MOST_SECONDS,
    bare,
    constraints,
)
from carrel_schema.objects import FailureClass


@dataclass(frozen=True, slots=True)
class OptionValue:
    """A type of value.

    Attributes:
        read: text to value; raises ``BadSetting`` whose sentence begins with the refused text.
        shown: how it is written in help texts.
        json: its type in the API.
        least: the smallest the API takes, ``most`` the largest; ``None``: no bound.
        choices: all words that the API takes; empty: any.
        spell: value to text, so that reading it gives the value again.
        separator: stands between several values in one text; empty: a text is one value.
    """

    read: Callable[[str], Any]
    shown: str
    json: str = "string"
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    spell: Callable[[Any], str] = str
    separator: str = ""

    def read_each(self, found: str) -> list[Any]:
        """The values of a text. Raises ``BadSetting``."""
        parts = found.split(self.separator) if self.separator else [found]
        return [self.read(part) for part in parts]


def whole(least: int, most: int, shown: str = "N") -> OptionValue:
    """A whole number."""
    return OptionValue(partial(_whole, least, most), shown, "integer", least, most)


def span(least: float = 0.0, most: float = MOST_SECONDS) -> OptionValue:
    """A time span in seconds: ``30``, ``45s``, ``5m``, ``2h``, ``1d``."""
    return OptionValue(
        partial(_span, least, most), "TIME", "number", least, most, spell=_spell_span
    )


def choice(*words: str) -> OptionValue:
    """A value that is one of some words."""
    return OptionValue(partial(_choice, words), "|".join(words), choices=words)


def text(shown: str) -> OptionValue:
    """A text that is not empty."""
    return OptionValue(_text, shown)


def of_hint(hint: Any, shown: str) -> OptionValue | None:
    """The value of a field with this type and these bounds; ``None``: a switch."""
    kind, bounds = bare(hint), list(constraints(hint))
    if kind is bool:
        return None
    if kind is int:
        return whole(int(bounds[-1].ge or 0), int(bounds[-1].le or 0))
    if kind is float:
        return span(float(bounds[-1].ge or 0), float(bounds[-1].le or 0))
    return choice(*get_args(kind)) if get_origin(kind) is Literal else text(shown)


def _refuse(found: str, expected: str, right: str) -> BadSetting:
    return BadSetting(f"{found!r} is no {expected}; write {right}.", code="bad_value")


def bounded(
    found: str,
    value: float,
    least: float,
    most: float,
    spell: Callable[[Any], str] = "{:,.15g}".format,
) -> None:
    """Refuse what is out of bounds. Raises ``BadSetting``."""
    if value < least:
        raise BadSetting(f"{found!r} is too small; write {spell(least)} or more.", code="too_small")
    if value > most:
        raise BadSetting(f"{found!r} is too large; write at most {spell(most)}.", code="too_big")


def _whole(least: int, most: int, found: str) -> int:
    try:
        value = int(found)
    except ValueError:
        example = max(least, 1)
        raise _refuse(found, "whole number", f"one such as {example}") from None
    bounded(found, value, least, most)
    return value


def _span(least: float, most: float, found: str) -> float:
    seconds = units.seconds(found, "")
    bounded(found, seconds, least, most, _spell_span)
    return seconds


def _choice(words: tuple[str, ...], found: str) -> str:
    if found in words:
        return found
    listed = f"{', '.join(words[:-1])} or {words[-1]}"
    raise BadSetting(f"{found!r} is not known here; write {listed}.", code="unknown_value")


def _text(found: str) -> str:
    if not found.strip():
        raise BadSetting("'' says nothing; write a word or leave it out.", code="bad_value")
    return found


def _gpus(found: str) -> float:
    try:
        gpus = float(found)
    except ValueError:
        gpus = math.nan
    if not gpus >= 0 or math.isinf(gpus):
        raise _refuse(found, "number of GPUs", "0, 1 or 0.5")
    bounded(found, gpus, 0, MOST_GPUS)
    return gpus


def _processors(least: int, found: str) -> int:
    millicores = units.cpu_millicores(found, "")
    bounded(found, millicores, least, MOST_CPU_MILLICORES, "{}m".format)
    return millicores


def _memory(least: int, most: int, found: str) -> int:
    amount = units.memory_bytes(found, "")
    bounded(found, amount, least, most, _spell_memory)
    return amount


def _assignment(found: str) -> tuple[str, str]:
    name, sign, value = found.partition("=")
    if not name or not sign:
        raise BadSetting(f"{found!r} should be NAME=VALUE.", code="bad_value")
    return name, value


def _variable(found: str) -> tuple[str, str | None]:
    """``K=V``; a bare ``K`` has no value yet: the surface takes the present one along."""
    name, sign, value = found.partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise BadSetting(
            f"{found!r} should be NAME=VALUE, where NAME has letters, digits and underscores.",
            code="bad_environment_name",
        )
    return name, value if sign else None


def _names(found: str) -> list[str]:
    names = [part.strip() for part in found.split(",") if part.strip()]
    if not names or not all(part.isidentifier() for part in names):
        raise _refuse(found, "list of variables", "their names as a,b")
    return names


def _types(found: str) -> list[str]:
    types = [part.strip() for part in found.split(",") if part.strip()]
    if not types:
        raise _refuse(found, "list of GPU types", "the best first, as A100,H100")
    return types


def _words(found: str) -> list[str]:
    names = [part.strip() for part in found.split(",") if part.strip()]
    if not names:
        raise _refuse(found, "list of jobs", "their names as train-7,train-8")
    return names


def _priority(found: str) -> str | int:
    return int(found) if found.lstrip("-").isdigit() else _text(found)


def _volume(found: str) -> dict[str, Any]:
    source, _, behind = found.partition(":")
    destination, _, mode = behind.partition(":")
    if not mode and destination in ("ro", "rw"):
        destination, mode = "", destination
    if not source or mode not in ("", "ro", "rw"):
        raise BadSetting(f"{found!r} should be SOURCE[:DESTINATION][:ro].", code="bad_path")
    if _is_claim(source):
        volume: dict[str, Any] = {"source": source, "destination": destination}
    else:
        full = str(Path(source).expanduser().absolute())
        volume = {"source": full, "destination": destination or full}
    return volume | ({"read_only": True} if mode == "ro" else {})


def _is_claim(source: str) -> bool:
    """Whether a volume of a cluster is meant: what cannot be a path, or is no folder here."""
    if not re.fullmatch(r"[a-z0-9][-.a-z0-9]*(/.*)?", source):
        return False
    return "KUBERNETES_SERVICE_HOST" in os.environ or not Path(source).exists()


def _route(found: str) -> dict[str, Any]:
    """``8080`` or ``NAME=8080``."""
    name, sign, port = found.rpartition("=")
    if sign and not re.fullmatch(r"[a-z0-9][-a-z0-9]{0,31}", name):
        raise BadSetting(
            f"{found!r}: a port's name has small letters, digits and hyphens, as in ui=8080.",
            code="bad_name",
        )
    return {"port": _whole(0, 65_535, port)} | ({"name": name} if name else {})


def _parameter(found: str) -> tuple[str, Any]:
    """``K=V`` of a notebook: V is JSON where it can be read so, else a text."""
    name, value = _assignment(found)
    if not name.isidentifier():
        raise BadSetting(f"{found!r}: {name!r} is no name of a variable.", code="bad_value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _cron(found: str) -> str:
    if len(found.split()) != 5:
        raise _refuse(
            found, "schedule", "five fields, as in '0 3 * * 1-5' (at 3:00, Monday to Friday)"
        )
    return found


def _spell_span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _spell_memory(amount: int) -> str:
    for power, unit in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if amount >= 1024**power and amount % 1024**power == 0:
            return f"{amount // 1024**power}{unit}"
    return str(amount)


def _retry(found: str) -> tuple[str, int]:
    """``CLASS=N``."""
    name, sign, number = found.partition("=")
    if not sign or name not in FAILURES:
        listed = f"{', '.join(FAILURES[:-1])} or {FAILURES[-1]}"
        raise BadSetting(
            f"{found!r} should be CLASS=N, where CLASS is {listed}.", code="unknown_value"
        )
    return name, _whole(0, 1000, number)


def _git(found: str) -> dict[str, str]:
    """``URL@REV``."""
    parts = GIT.fullmatch(found)
    if parts is None:
        raise BadSetting(
            f"{found!r} should be URL[@REVISION], as https://host/group/project.git@main, without "
            "a password.",
            code="bad_value",
        )
    return {"git": parts["url"], **({"revision": parts["rev"]} if parts["rev"] else {})}


def _spell_git(source: dict[str, Any]) -> str:
    """``URL@REV``; empty for code that is not from Git."""
    url, revision = source.get("git") or "", source.get("revision") or ""
    return f"{url}@{revision}" if url and revision else url


def _repository(found: str) -> dict[str, str]:
    """``FOLDER=URL@REV,SECRET``."""
    folder, sign, rest = found.partition("=")
    url, _, secret = rest.partition(",")
    if not folder or not sign:
        raise BadSetting(
            f"{found!r} should be FOLDER=URL[@REVISION][,SECRET], as "
            "lib/tool=https://host/group/tool.git@main.",
            code="bad_value",
        )
    return {"destination": folder, **_git(url), **({"secret": secret} if secret else {})}


def _spell_repository(found: dict[str, Any]) -> str:
    """``FOLDER=URL@REV,SECRET``."""
    secret = f",{found['secret']}" if found.get("secret") else ""
    return f"{found['destination']}={_spell_git(found)}{secret}"


def _dependency(found: str) -> dict[str, str]:
    """``NAME[:ok|any]``."""
    name, sign, condition = found.partition(":")
    if not name or (sign and condition not in ("ok", "any")):
        raise BadSetting(f"{found!r} should be NAME, NAME:ok or NAME:any.", code="bad_value")
    return {"name": name, **({"condition": condition} if sign else {})}


def _spell_dependency(found: dict[str, Any]) -> str:
    """``NAME[:any]``."""
    return f"{found['name']}:any" if found.get("condition") == "any" else str(found["name"])


FAILURES: Final = get_args(FailureClass)
GIT: Final = re.compile(
    r"(?P<url>(?:https?|git)://[^/@\s-][^/@\s]*/[^@\s]+|ssh://(?:[\w.-]+@)?[^/@\s-][^/@\s]*/[^@\s]+"
    r"|\w[\w.-]*@[^/@:\s-][^/@:\s]*:[^@\s]+)(?:@(?P<rev>[^\s-]\S*))?"
)
DEPENDENCY: Final = OptionValue(_dependency, "NAME[:ok|any]", "array", spell=_spell_dependency)
RETRY: Final = OptionValue(_retry, "CLASS=N[,CLASS=N]", "object", separator=",")
REPOSITORY: Final = OptionValue(
    _repository, "FOLDER=URL[@REV][,SECRET]", "array", spell=_spell_repository
)
EACH_NAME: Final = OptionValue(str, "NAME", "array")
GIT_SOURCE: Final = OptionValue(_git, "URL[@REV]", "object", spell=_spell_git)
GPUS: Final = OptionValue(_gpus, "N", "number", 0, MOST_GPUS, spell="{:g}".format)
CPU: Final = OptionValue(
    partial(_processors, 1), "N", "integer", 1, MOST_CPU_MILLICORES, spell="{}m".format
)
CPU_LIMIT: Final = OptionValue(partial(_processors, 10), "N", "integer", 10, MOST_CPU_MILLICORES)
MEMORY: Final = OptionValue(
    partial(_memory, LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES),
    "SIZE",
    "integer",
    LEAST_MEMORY_BYTES,
    MOST_MEMORY_BYTES,
    spell=_spell_memory,
)
GPU_MEMORY: Final = OptionValue(
    partial(_memory, 0, MOST_MEMORY_BYTES),
    "SIZE",
    "integer",
    0,
    MOST_MEMORY_BYTES,
    spell=_spell_memory,
)
REQUEST_SIZE: Final = OptionValue(
    partial(_memory, 1, 2**40), "SIZE", "integer", 1, 2**40, spell=_spell_memory
)
LABEL: Final = OptionValue(_assignment, "K=V", "object")
VARIABLE: Final = OptionValue(_variable, "K=V", "object")
VARIABLES: Final = OptionValue(_names, "A,B", "array")
GPU_TYPES: Final = OptionValue(_types, "TYPE,...", "array", spell=",".join)
JOBS: Final = OptionValue(_words, "JOB,...", "array")
PRIORITY: Final = OptionValue(_priority, "LEVEL", "integer|string")
VOLUME: Final = OptionValue(_volume, "SOURCE[:DESTINATION][:ro]", "array")
ROUTE: Final = OptionValue(_route, "[NAME=]PORT", "integer", 0, 65_535)
PARAMETER: Final = OptionValue(_parameter, "K=V", "object")
CRON: Final = OptionValue(_cron, "CRON")
