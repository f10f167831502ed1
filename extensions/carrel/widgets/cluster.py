"""The live map of all GPUs: a row a node, a cell a device; as a table where no widget can be."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import traitlets
from typing_extensions import override

from carrel import wording
from carrel.client import AsyncClient, Client
from carrel.models import Device, Holder, Node
from carrel.widgets import bundle, static_html
from carrel.widgets.live import QueryView


class GpuTable:
    """The GPUs as a table."""

    COLUMNS = ("Node", "GPU", "Kind", "Held by", "Use", "Memory")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def rows(self) -> Iterator[tuple[str, ...]]:
        """A row for each GPU, in words."""
        for node in self.nodes:
            for device in node.devices:
                memory, work = device.memory_used_mib, device.utilization
                used = "?" if memory is None else wording.mebibytes(memory)
                yield (
                    node.name,
                    str(device.index),
                    f"{device.name} (simulated)" if device.simulated else device.name,
                    device.message or "broken" if device.broken else holders(device),
                    "not measured" if work is None else f"{100 * work:.0f} %",
                    f"{used} of {wording.mebibytes(device.memory_mib)}",
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
        rows: list[list[str]] = [[static_html.escape(cell) for cell in row] for row in self.rows()]
        return static_html.table("GPUs", self.COLUMNS, rows) if rows else "There are no GPUs."


def holders(device: Device) -> str:
    """``vision/train-7 (ada), borrowed`` or ``free``."""
    found = [
        f"{holder.project}/{holder.name} ({holder.user})" if holder.name else holder.project
        for holder in device.holders
    ]
    borrowed = ", borrowed" if any(holder.borrowed for holder in device.holders) else ""
    return ", ".join(found) + borrowed if found else "free"


WHOLE = 1000


class ClusterView(QueryView):
    """Nodes, devices and holders.

    Attributes:
        nodes: one mapping for each node, its devices among it.
    """

    _esm = bundle.module("words.js", "quota.js", "server.js", "parts.js", "gpus.js")
    _css = bundle.text("views.css")

    nodes: Any = traitlets.List().tag(sync=True)

    def __init__(self, client: Client, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)
        super().__init__(client, **self.present())

    @override
    def present(self) -> Mapping[str, Any]:
        return {"nodes": [_node(node) for node in self._nodes]}

    @override
    async def ask(self, client: AsyncClient) -> None:
        self._nodes = await client.nodes()

    @override
    def fallback(self) -> dict[str, Any]:
        table = GpuTable(self._nodes)
        return {"text/plain": repr(table), "text/html": table.html()}


def _node(node: Node) -> dict[str, Any]:
    held = (
        f"{wording.amount(node.gpu_allocated_milli / WHOLE)} of {wording.gpus(len(node.devices))}"
    )
    return {
        "name": node.name,
        "words": f"{held} in use" if node.devices else "no GPU",
        "devices": [
            {
                "index": device.index,
                "words": device_words(device),
                "broken": device.broken,
                "holders": [_holder(holder) for holder in device.holders],
            }
            for device in node.devices
        ],
    }


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "label": holder.name or holder.project,
        "milli": holder.gpu_milli,
        "borrowed": holder.borrowed,
        "state": holder.state,
        "color": holder.color,
    }


def device_words(device: Device) -> str:
    """``GPU 1: train-7 (vision), borrowed; 0.5 free``."""
    if device.broken:
        return f"GPU {device.index}: {device.message or 'broken'}"
    parts = [_holding(holder) for holder in device.holders]
    free = WHOLE - sum(holder.gpu_milli for holder in device.holders)
    if free > 0:
        parts.append("free" if free == WHOLE else f"{wording.amount(free / WHOLE)} free")
    simulated = " (simulated)" if device.simulated else ""
    return f"GPU {device.index}{simulated}: {'; '.join(parts)}"


def _holding(holder: Holder) -> str:
    who = f"{holder.name} ({holder.project})" if holder.name else f"a member of {holder.project}"
    share = "" if holder.gpu_milli >= WHOLE else f"{wording.amount(holder.gpu_milli / WHOLE)} "
    notes = {"held": ", held", "releasing": ", preempting"}.get(holder.state, "")
    return f"{share}{who}{', borrowed' if holder.borrowed else ''}{notes}"
