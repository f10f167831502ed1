"""What magics return or print, besides live views."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import override

from carrel.models import Forecast
from carrel.notebook import words


class Printed:
    """Text that shows itself as it is, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    @override
    def __repr__(self) -> str:
        return self.text


def foretold(body: Mapping[str, Any], answer: Forecast, size: int = 0) -> str:
    """A dry run in words, and the specification."""
    inputs = ", ".join(body.get("inputs", ()))
    lines = [
        answer.forecast.sentence or "It would be accepted.",
        f"project: {body['project']}, {words.gpus(float(body.get('gpus', 0)))}",
    ]
    if inputs:
        lines.append(f"variables: {inputs} ({size:,} bytes)")
    shown = {key: value for key, value in body.items() if key not in ("files", "project", "inputs")}
    shown["secret_environment"] = dict.fromkeys(body.get("secret_environment", ()), "…")
    lines += [f"{key}: {value}" for key, value in shown.items() if value not in ({}, [], "", None)]
    lines.append("Nothing was sent.")
    return "\n".join(lines)


def stream(pieces: Iterable[str], name: str) -> None:
    """Print pieces as they come; the stop button ends it and says what goes on."""
    last = "\n"
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            last = piece
    except KeyboardInterrupt:
        sys.stdout.write(f"\n`{name}` goes on; only the output stopped here.\n")
        return
    if not last.endswith("\n"):
        sys.stdout.write("\n")
