"""The bridge of one run: pods hang on it, and its address is how they reach the host.

It is made before anything talks to it, with a blackhole route for the pods' network below its own,
or what goes there would leave by the machine's default route while no pod is there yet. Nothing is
forwarded: pods reach each other and the host only.
"""

import fcntl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from k8s.cluster import controllers
from k8s.cluster.leftovers import hierarchies
from k8s.cluster.records import Record

HIGHEST: Final = 255
PODS_OF_A_NODE: Final = 36


@dataclass(frozen=True, slots=True)
class Network:
    """The network of a run on this machine.

    Attributes:
        number: distinguishes the runs of this machine.
        interface: name of the bridge; the runs' control groups have the same name.
        address: of the host on the bridge.
    """

    number: int

    @property
    def interface(self) -> str:
        return f"carrel{self.number}"

    @property
    def address(self) -> str:
        return f"10.224.{self.number}.1"

    @property
    def pods(self) -> str:
        return f"10.224.{self.number}.0/24"

    def groups(self) -> list[Path]:
        """Control groups of the run, one in each hierarchy."""
        return [hierarchy / self.interface for hierarchy in hierarchies()]

    def configuration(self, node: int, leases: Path) -> dict[str, Any]:
        """The configuration of the network plugins for the pods of one node, counted from 0."""
        first = 2 + node * PODS_OF_A_NODE
        span = {
            "subnet": self.pods,
            "rangeStart": f"10.224.{self.number}.{first}",
            "rangeEnd": f"10.224.{self.number}.{first + PODS_OF_A_NODE - 1}",
            "gateway": self.address,
        }
        addresses = {
            "type": "host-local",
            "dataDir": str(leases),
            "ranges": [[span]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": self.interface, "ipam": addresses}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def make(record: Record) -> Network:
    """Make the bridge and the control groups of a run, which is told before each is made."""
    with Path(tempfile.gettempdir(), "carrel-test-networks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        network = next(
            one
            for one in map(Network, range(HIGHEST))
            if not Path("/sys/class/net", one.interface).exists()
            and not any(group.exists() for group in one.groups())
        )
        record.leave("interface", network.interface)
        _ip("link", "add", network.interface, "type", "bridge")
    for group in network.groups():
        make_group(group, record)
    _ip("address", "add", f"{network.address}/24", "dev", network.interface)
    _ip("link", "set", network.interface, "up")
    record.leave("route", network.pods)
    _ip("route", "add", "blackhole", network.pods, "metric", "4096")
    return network


def make_group(group: Path, record: Record) -> None:
    """Make a control group of a run that has, and hands on, all that its parent has."""
    parent = group.parent
    for name in controllers.kept_back(parent):
        record.leave("controller", name, str(parent))
    controllers.hand_on(parent)
    record.leave("group", str(group))
    group.mkdir()
    controllers.hand_on(group)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
