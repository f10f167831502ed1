"""Infrastructure that the nodes of a run share: bridge, DNS, and addresses of services.

CoreDNS answers pods for the names of services and pods, headless ones included, on the bridge's
address; ``services`` does what a kube-proxy does elsewhere.
"""

import os
import socket
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from k8s.cluster import leftovers, network
from k8s.cluster.network import Network
from k8s.cluster.plane import ControlPlane
from k8s.cluster.records import Record
from k8s.cluster.waiting import free_port, wait_for

DNS_PORT: Final = 53
SERVICE_PORT: Final = 443
ROOT: Final = Path(__file__).parents[3]
PYTHON_PATH: Final = os.pathsep.join((str(ROOT / "tests"), str(ROOT)))
"""Where programs of the tests find the tests' modules."""


@dataclass(frozen=True, slots=True)
class Infrastructure:
    """The parts that are needed to make nodes.

    Attributes:
        programs: of nodes, by name.
    """

    plane: ControlPlane
    record: Record
    network: Network
    programs: Mapping[str, Path]


def prepare(programs: Mapping[str, Path], plane: ControlPlane, record: Record) -> Infrastructure:
    """Make it. Raises ``NotReady``, and ``OSError`` with what the kernel refused."""
    made = bridge(programs, plane, record)
    _services(plane, record, made.network)
    _names(programs["names"], plane, record, made.network)
    return made


def bridge(programs: Mapping[str, Path], plane: ControlPlane, record: Record) -> Infrastructure:
    """Make the bridge only: its pods reach no service. Raises ``OSError``."""
    for name, value in leftovers.settings().items():
        record.leave("setting", name, value)
    return Infrastructure(plane, record, network.make(record), programs)


def _services(plane: ControlPlane, record: Record, made: Network) -> None:
    access = plane.kubeconfig(record.folder / "services.json")
    command = [sys.executable, "-m", "k8s.cluster.services", made.interface, str(access)]
    log = record.folder / "services.log"
    process = record.start(command, log, {**os.environ, "PYTHONPATH": PYTHON_PATH})
    wait_for(lambda: _answers(plane.service, SERVICE_PORT), process, log)


def _names(program: Path, plane: ControlPlane, record: Record, made: Network) -> None:
    ready = free_port()
    access = plane.kubeconfig(record.folder / "names.json")
    file = record.folder / "Corefile"
    file.write_text(
        f".:{DNS_PORT} {{\n"
        f"    bind {made.address}\n"
        "    errors\n"
        f"    ready 127.0.0.1:{ready}\n"
        f"    kubernetes cluster.local {{\n        kubeconfig {access}\n        ttl 1\n    }}\n"
        "}\n"
    )
    log = record.folder / "names.log"
    process = record.start([str(program), "-conf", str(file)], log)
    wait_for(lambda: _knows_all(ready), process, log)


def _knows_all(port: int) -> bool:
    """Whether it has heard of everything: it begins to answer before."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=10) as answer:
        return bool(answer.status == HTTPStatus.OK)


def _answers(address: str, port: int) -> bool:
    with socket.create_connection((address, port), timeout=10):
        return True
