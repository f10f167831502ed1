"""The live map of all GPUs: one row a node, one cell a device, filled by who holds it."""

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets
from typing_extensions import override

from carrel.client import AsyncClient, Client
from carrel.models import Device, Holder, Node
from carrel.notebook import words
from carrel.widgets import bundle
from carrel.widgets.asking import AskingView
from carrel.widgets.cluster_table import Cluster

WHOLE = 1000


class ClusterView(AskingView):
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
        table = Cluster(self._nodes)
        return {"text/plain": repr(table), "text/html": table.html()}


def _node(node: Node) -> dict[str, Any]:
    held = f"{words.amount(node.gpu_allocated_milli / WHOLE)} of {words.gpus(len(node.devices))}"
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
        parts.append("free" if free == WHOLE else f"{words.amount(free / WHOLE)} free")
    simulated = " (simulated)" if device.simulated else ""
    return f"GPU {device.index}{simulated}: {'; '.join(parts)}"


def _holding(holder: Holder) -> str:
    who = f"{holder.name} ({holder.project})" if holder.name else f"a member of {holder.project}"
    share = "" if holder.gpu_milli >= WHOLE else f"{words.amount(holder.gpu_milli / WHOLE)} "
    notes = {"held": ", held", "releasing": ", giving way"}.get(holder.state, "")
    return f"{share}{who}{', borrowed' if holder.borrowed else ''}{notes}"
