"""Ports of nodes that pods take: two pods on a node never share one.

The same port of the same protocol is taken if the addresses are equal, or either is all of them.
"""

from collections.abc import Iterable
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.types import Pod

Taken = tuple[str, str, int]
"""Address, protocol, port."""
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - compared with, never bound


def ports_of(pod: Pod) -> frozenset[Taken]:
    """The ports of its node that a pod takes."""
    return frozenset(
        (port.host_ip or EVERYWHERE, port.protocol, port.host_port)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for port in container.ports
        if port.host_port
    )


class HostPorts:
    """The ports that placed pods take; ``version`` changes with them."""

    def __init__(self) -> None:
        self.version = 0
        self._pods: dict[str, tuple[str, frozenset[Taken]]] = {}
        self._nodes: dict[tuple[str, int], dict[str, list[str]]] = {}

    def put(self, pod: Pod, node: str = "") -> None:
        """A pod is on a node, or will be."""
        uid, node = pod.metadata.uid, node or pod.spec.node_name
        ports = ports_of(pod) if node and not pod.ended else frozenset()
        if self._pods.get(uid, ("", frozenset())) == (node if ports else "", ports):
            return
        self.drop(uid)
        if ports:
            self._pods[uid] = (node, ports)
            for address, protocol, port in ports:
                on_node = self._nodes.setdefault((protocol, port), {})
                on_node.setdefault(node, []).append(address)
            self.version += 1

    def drop(self, uid: str) -> None:
        """A pod is gone from its node."""
        node, ports = self._pods.pop(uid, ("", frozenset[Taken]()))
        for address, protocol, port in ports:
            on_node = self._nodes[protocol, port]
            on_node[node].remove(address)
            if not on_node[node]:
                del on_node[node]
            if not on_node:
                del self._nodes[protocol, port]
        self.version += bool(ports)

    def taken(self, ports: Iterable[Taken]) -> frozenset[str]:
        """The nodes where one of these ports is taken."""
        return frozenset(
            node
            for address, protocol, port in ports
            for node, others in self._nodes.get((protocol, port), {}).items()
            if EVERYWHERE in (address, *others) or address in others
        )
