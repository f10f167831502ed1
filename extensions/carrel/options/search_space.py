"""Search spaces as people type them: ``lr=log:1e-5..1e-1``, ``layers=int:1..4``, ``opt=adam,sgd``.

======================  ====================================================
``drop=0.0..0.5``       any number between
``drop=0.0..0.5:0.1``   numbers in steps
``lr=log:1e-5..1e-1``   any number between, evenly over orders of magnitude
``layers=int:1..4``     whole numbers, both ends included
``width=int:32..256:32``, ``width=int:log:16..1024``
``opt=adam,sgd``        one of these; numbers, true, false and null are themselves
``opt=choice:1..2,3``   the same for texts that look like a range
======================  ====================================================
"""

import json
import math
import re
from typing import Any, Final, NoReturn

from carrel.errors import BadSetting

NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE: Final = re.compile(rf"({NUMBER})\.\.({NUMBER})(?::({NUMBER}))?")
NAME: Final = re.compile(r"[\w.-]+")
SHAPES: Final = ("int", "float", "log", "choice")
EXAMPLE: Final = "lr=log:1e-5..1e-1, layers=int:1..4 or opt=adam,sgd"
Dimension = dict[str, Any]


def parse(text: str) -> tuple[str, Dimension]:
    """Parse a dimension into its name and the API's parameter. Raises ``BadSetting``."""
    name, sign, space = text.partition("=")
    name, space = name.strip(), space.strip()
    if not name or not sign or not space:
        _refuse(text, f"write NAME=SPACE, as in {EXAMPLE}")
    if not NAME.fullmatch(name):
        _refuse(text, f"a name has letters, digits, _, . and -, as in {EXAMPLE}")
    shapes: set[str] = set()
    while (head := space.partition(":"))[0] in SHAPES and head[1]:
        shapes.add(head[0])
        space = head[2].strip()
    if "choice" in shapes or ".." not in space:
        if shapes - {"choice"}:
            _refuse(text, "a range has two ends, as in layers=int:1..4")
        return name, _choices(text, space)
    return name, _numbers(text, space, shapes)


def _numbers(text: str, space: str, shapes: set[str]) -> Dimension:
    found = RANGE.fullmatch(space)
    if found is None:
        _refuse(text, "write a range of numbers as LOW..HIGH or LOW..HIGH:STEP")
    ends = [float(one) for one in found.groups() if one is not None]
    if not all(map(math.isfinite, ends)):
        _refuse(text, "both ends must be finite numbers")
    low, high, *step = ends
    looks_whole = all(re.fullmatch(r"[-+]?\d+", one) for one in found.groups() if one is not None)
    if looks_whole and not shapes:
        _refuse(text, f"whole numbers only? Write int:{space}, or float:{space} for any between")
    if low > high:
        _refuse(text, f"the lower end comes first: {found[2]}..{found[1]}")
    if step and step[0] <= 0:
        _refuse(text, "a step is more than 0")
    if "int" in shapes and any(one != int(one) for one in ends):
        _refuse(text, "an int has whole ends and steps, as in layers=int:1..4")
    if "log" in shapes and (low <= 0 or step):
        _refuse(text, "a logarithmic range begins above 0 and has no step, as in lr=log:1e-5..1e-1")
    made: Dimension = {"type": "int" if "int" in shapes else "float", "low": low, "high": high}
    return made | ({"step": step[0]} if step else {}) | ({"log": True} if "log" in shapes else {})


def _choices(text: str, space: str) -> Dimension:
    words = [word.strip() for word in space.split(",")]
    if not all(words):
        _refuse(text, "there is nothing between two commas; write opt=adam,sgd")
    return {"type": "categorical", "choices": [_scalar(word) for word in words]}


def _scalar(word: str) -> str | float | bool | None:
    try:
        found = json.loads(word)
    except ValueError:
        return word
    return found if found is None or isinstance(found, str | int | float | bool) else word


def _refuse(text: str, right: str) -> NoReturn:
    raise BadSetting(f"{text!r} is no search space: {right}.", code="bad_search_space")
