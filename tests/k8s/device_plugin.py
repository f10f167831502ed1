"""A device plugin of GPUs that are not there: it registers with a kubelet as NVIDIA's does.

Its socket lies in the folder that the kubelet of a node watches for plugins, so each node of a run
has its own; what the kubelet gives a container is told it in `NVIDIA_VISIBLE_DEVICES`. The messages
are few and small, so they are written here by hand.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from k8s.cluster import node as nodes
from k8s.cluster.infrastructure import Infrastructure
from k8s.cluster.node import Node
from k8s.cluster.waiting import wait_for

RESOURCE: Final = "nvidia.com/gpu"
UUIDS: Final = ("GPU-one", "GPU-two")
"""Of the GPUs of the tests' node."""
FIRST_FIELD, SECOND_FIELD, THIRD_FIELD, FOURTH_FIELD = 10, 18, 26, 34
"""Tags of fields whose values have a length."""


def _text(tag: int, value: bytes) -> bytes:
    assert len(value) < 128, "one byte of length"
    return bytes((tag, len(value))) + value


def _parts(message: bytes) -> Iterator[bytes]:
    """Values of fields that all have a length, below 128 bytes."""
    at = 0
    while at < len(message):
        size = message[at + 1]
        yield message[at + 2 : at + 2 + size]
        at += 2 + size


class DevicePlugin:
    """Offers GPUs by UUID until it is closed.

    Args:
        folder: of the kubelet.
        uuids: of the GPUs, short ones.
    """

    def __init__(self, folder: Path, uuids: Sequence[str]) -> None:
        self.uuids = uuids
        self._ended = threading.Event()
        self._socket = folder / "plugins_registry" / "gpus.sock"
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        registration = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(self._info),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(self._nothing),
        }
        devices = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(self._nothing),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
            "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
        }
        for service, methods in (
            ("pluginregistration.Registration", registration),
            ("v1beta1.DevicePlugin", devices),
        ):
            handler = grpc.method_handlers_generic_handler(service, methods)
            self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def close(self) -> None:
        """Offer nothing any more."""
        self._ended.set()
        self._server.stop(1).wait()
        self._socket.unlink(missing_ok=True)

    def _info(self, _request: bytes, _context: Any) -> bytes:
        return (
            _text(FIRST_FIELD, b"DevicePlugin")
            + _text(SECOND_FIELD, RESOURCE.encode())
            + _text(FOURTH_FIELD, b"v1beta1")
        )

    def _nothing(self, _request: bytes, _context: Any) -> bytes:
        return b""

    def _list(self, _request: bytes, _context: Any) -> Iterator[bytes]:
        yield b"".join(
            _text(FIRST_FIELD, _text(FIRST_FIELD, uuid.encode()) + _text(SECOND_FIELD, b"Healthy"))
            for uuid in self.uuids
        )
        self._ended.wait()

    def _allocate(self, request: bytes, _context: Any) -> bytes:
        """The variable with the devices that the kubelet chose, for each container."""
        answers = b""
        for container in _parts(request):
            given = ",".join(part.decode() for part in _parts(container)).encode()
            pair = _text(FIRST_FIELD, b"NVIDIA_VISIBLE_DEVICES") + _text(SECOND_FIELD, given)
            answers += _text(FIRST_FIELD, _text(FIRST_FIELD, pair))
        return answers


REMEMBERED: Final = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
"""Where any kubelet of the machine looks for the devices that plugins offered before it started."""


@contextmanager
def plugged_node(infrastructure: Infrastructure, name: str, uuids: Sequence[str]) -> Iterator[Node]:
    """A node of its own, whose GPUs a device plugin offers.

    Its kubelet ends with it: what it remembers of the plugin lies where others would find it, which
    would then take the plugin's devices for theirs, and for gone.
    """
    before = REMEMBERED.read_bytes() if REMEMBERED.exists() else None
    if before is None:
        infrastructure.record.leave("file", str(REMEMBERED))
    made = nodes.start(infrastructure, name)
    plugin = DevicePlugin(made.log.parent / "kubelet", uuids)
    try:
        wait_for(lambda: made.offered() == str(len(uuids)), made.agent, made.log)
        yield made
    finally:
        plugin.close()
        made.agent.terminate()
        made.agent.wait()
        if before is None:
            REMEMBERED.unlink(missing_ok=True)
        else:
            REMEMBERED.write_bytes(before)
        made.plane.ask("DELETE", made.path)


@contextmanager
def labelled(node: Node, labels: Mapping[str, str]) -> Iterator[None]:
    """A node has labels meanwhile."""
    node.plane.ask("PATCH", node.path, {"metadata": {"labels": dict(labels)}})
    try:
        yield
    finally:
        gone = dict.fromkeys(labels)
        node.plane.ask("PATCH", node.path, {"metadata": {"labels": gone}})
