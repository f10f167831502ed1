"""What magics return or print, besides live views."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from carrel.models import Device, Forecast, Node
from carrel.notebook import words
from carrel.widgets import page


class Printed:
    """Text that shows itself as it is, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    @override
    def __repr__(self) -> str:
        return self.text


class Cluster:
    """Nodes and GPUs at one moment."""

    COLUMNS = ("Node", "GPU", "Kind", "Held by", "Use", "Memory")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def rows(self) -> Iterator[tuple[str, ...]]:
        """One row per GPU, in words."""
        for node in self.nodes:
            for device in node.devices:
                used = words.mebibytes(device.memory_used_mib)
                yield (
                    node.name,
                    str(device.index),
                    f"{device.name} (simulated)" if device.simulated else device.name,
                    device.message or "broken" if device.broken else holders(device),
                    f"{100 * device.utilization:.0f} %",
                    f"{used} of {words.mebibytes(device.memory_mib)}",
                )

    @override
    def __repr__(self) -> str:
        rows = [self.COLUMNS, *self.rows()]
        if len(rows) == 1:
            return "There are no GPUs."
        widths = [max(len(row[index]) for row in rows) for index in range(len(self.COLUMNS))]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows: list[list[str]] = [[page.escape(cell) for cell in row] for row in self.rows()]
        return page.table("GPUs", self.COLUMNS, rows) if rows else "There are no GPUs."


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


def holders(device: Device) -> str:
    """``vision/train-7 (ada), borrowed`` or ``free``."""
    found = [
        f"{holder.project}/{holder.name} ({holder.user})" if holder.name else holder.project
        for holder in device.holders
    ]
    borrowed = ", borrowed" if any(holder.borrowed for holder in device.holders) else ""
    return ", ".join(found) + borrowed if found else "free"


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
