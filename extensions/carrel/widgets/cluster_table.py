"""The GPUs of a cluster as a table, where no picture can be: terminals, saved notebooks."""

from collections.abc import Iterator, Sequence

from typing_extensions import override

from carrel.models import Device, Node
from carrel.notebook import words
from carrel.widgets import page


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

    def html(self) -> str:
        """The table for web pages."""
        rows: list[list[str]] = [[page.escape(cell) for cell in row] for row in self.rows()]
        return page.table("GPUs", self.COLUMNS, rows) if rows else "There are no GPUs."


def holders(device: Device) -> str:
    """``vision/train-7 (ada), borrowed`` or ``free``."""
    found = [
        f"{holder.project}/{holder.name} ({holder.user})" if holder.name else holder.project
        for holder in device.holders
    ]
    borrowed = ", borrowed" if any(holder.borrowed for holder in device.holders) else ""
    return ", ".join(found) + borrowed if found else "free"
