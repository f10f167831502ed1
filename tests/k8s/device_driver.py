"""A driver of GPUs that are not there, beside a kubelet: claims for its devices are prepared.

What a container was given it finds in its variables ``FAKE_GPU_<number>``. The program is
``cluster/modules/devices``; here it is started, killed and started again.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from k8s.cluster import containerd
from k8s.cluster import node as nodes
from k8s.cluster.infrastructure import Infrastructure
from k8s.cluster.node import Node
from k8s.cluster.waiting import Process, wait_for

DRIVER: Final = "gpu.nvidia.com"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"


@dataclass
class DeviceDriver:
    """A driver of one node's devices.

    Attributes:
        names: of the devices.
        options: more of the program's.
    """

    infrastructure: Infrastructure
    node: Node
    names: Sequence[str]
    options: Sequence[str] = ()
    _process: Process | None = field(init=False, default=None)

    @property
    def folder(self) -> Path:
        """The folder of the node."""
        return self.node.log.parent

    def start(self) -> None:
        """Start it, and wait until the kubelet knows it and its devices are offered."""
        log = self.folder / "devices.log"
        command = [
            str(self.infrastructure.programs["devices"]),
            f"--driver={DRIVER}",
            f"--node={self.node.name}",
            f"--kubeconfig={self.node.kubeconfig}",
            f"--kubelet={self.folder / 'kubelet'}",
            f"--specs={self.folder / containerd.DEVICES}",
            f"--devices={','.join(self.names)}",
            *self.options,
        ]
        self._process = self.infrastructure.record.start(command, log)
        wait_for(lambda: self._is_ready(log), self._process, log)

    def _is_ready(self, log: Path) -> bool:
        known = "registered" in log.read_text(errors="replace").splitlines()
        return known and set(self.names) <= set(self.offered())

    def kill(self) -> None:
        """End it without notice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it, and take its offer back."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        for one in self._slices():
            self.node.plane.ask("DELETE", f"{SLICES}/{one['metadata']['name']}")

    @contextmanager
    def offering(self, names: Sequence[str], *options: str) -> Iterator[None]:
        """Offer other devices meanwhile."""
        before = self.names, self.options
        self._begin_with(names, options)
        try:
            yield
        finally:
            self._begin_with(*before)

    def _begin_with(self, names: Sequence[str], options: Sequence[str]) -> None:
        self.close()
        self.names, self.options = names, options
        self.start()

    def offered(self) -> list[str]:
        """Names of the devices that the cluster knows of."""
        return sorted(
            device["name"] for one in self._slices() for device in one["spec"].get("devices", ())
        )

    def prepared(self) -> set[str]:
        """The claims that are prepared, by uid."""
        return {file.stem for file in (self.folder / containerd.DEVICES).glob("*.json")}

    def _slices(self) -> list[Mapping[str, Any]]:
        found = self.node.plane.get(SLICES)["items"]
        return [one for one in found if one["spec"].get("nodeName") == self.node.name]


@contextmanager
def driven_node(
    infrastructure: Infrastructure, name: str, devices: Sequence[str], options: Sequence[str] = ()
) -> Iterator[DeviceDriver]:
    """A node of its own, whose GPUs such a driver offers; it ends with the driver."""
    made = nodes.start(infrastructure, name)
    driver = DeviceDriver(infrastructure, made, devices, options)
    try:
        driver.start()
        yield driver
    finally:
        driver.close()
        made.agent.terminate()
        made.agent.wait()
        made.plane.ask("DELETE", made.path)
