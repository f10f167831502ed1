"""etcd, kube-apiserver and kube-controller-manager on loopback, with tokens of one run.

Their ports are held for them from when they are chosen.
"""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from k8s.cluster import authority
from k8s.cluster.plane import ControlPlane, Refused
from k8s.cluster.records import Record
from k8s.cluster.waiting import NotReady, Process, free_port, wait_for

__all__ = ["ControlPlane", "NotReady", "Refused", "start"]

NODES: Final = tuple(f"worker-{number}" for number in range(1, 5))
"""Names of the nodes that may join."""
FEATURES: Final = (
    "GenericWorkload",
    "TopologyAwareWorkloadScheduling",
    "PodGroupPreemptionPolicy",
    "CompositePodGroup",
)
"""What is off in Kubernetes unless it is switched on: its own groups of pods, with all fields."""
_GATES: Final = "--feature-gates=" + ",".join(f"{name}=true" for name in FEATURES)
_VERSIONS: Final = "--runtime-config=" + ",".join(
    f"scheduling.k8s.io/{version}=true" for version in ("v1beta1", "v1alpha3")
)


def start(
    programs: Mapping[str, Path],
    record: Record,
    controllers: str = "*",
    options: Sequence[str] = (),
) -> ControlPlane:
    """Start all three and wait until the API server is ready. Raises ``NotReady``.

    ``controllers`` are those that the controller-manager runs, as its option says; ``options`` are
    more of its options.
    """
    folder = record.folder / "plane"
    folder.mkdir()
    clients, peers = free_port(), free_port()
    _run_etcd(programs["etcd"], record, folder, clients, peers)
    key = _service_account_key(folder)
    plane = _run_server(programs["kube-apiserver"], record, folder, clients, key)
    manager = _run(
        record,
        folder,
        programs["kube-controller-manager"],
        f"--kubeconfig={plane.kubeconfig(folder / 'admin.json')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder / 'manager'}",
        f"--service-account-private-key-file={key}",
        f"--root-ca-file={plane.authority}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        f"--controllers={controllers}",
        _GATES,
        *options,
    )
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_for(lambda: bool(plane.get(account)), manager, folder / "kube-controller-manager.log")
    return plane


def _run_server(program: Path, record: Record, folder: Path, store: int, key: Path) -> ControlPlane:
    """Start the API server on the store's port and wait until it is ready."""
    secure = free_port()
    token = secrets.token_urlsafe(24)
    nodes = {name: secrets.token_urlsafe(24) for name in NODES}
    services, service = _service_network()
    known = authority.make(folder)
    server = _run(
        record,
        folder,
        program,
        f"--etcd-servers=http://127.0.0.1:{store}",
        "--bind-address=127.0.0.1",
        f"--secure-port={secure}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={_token_file(folder, token, nodes)}",
        f"--client-ca-file={known.certificate}",
        f"--kubelet-client-certificate={known.client}",
        f"--kubelet-client-key={known.client_key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={services}",
        "--allow-privileged",
        _GATES,
        _VERSIONS,
    )
    trusted = folder / "certificates" / "apiserver.crt"
    plane = ControlPlane(
        f"https://127.0.0.1:{secure}", trusted, token, nodes, service, known.certificate
    )
    wait_for(lambda: plane.get("/readyz") == "ok", server, folder / "kube-apiserver.log")
    return plane


def _run_etcd(program: Path, record: Record, folder: Path, clients: int, peers: int) -> None:
    here = f"http://127.0.0.1:{clients}"
    among = f"http://127.0.0.1:{peers}"
    _run(
        record,
        folder,
        program,
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={here}",
        f"--advertise-client-urls={here}",
        f"--listen-peer-urls={among}",
        f"--initial-advertise-peer-urls={among}",
        f"--initial-cluster=default={among}",
    )


def _run(record: Record, folder: Path, program: Path, *options: str) -> Process:
    log = folder / f"{program.name}.log"
    return record.start([str(program), *options], log)


def _service_network() -> tuple[str, str]:
    """A network for services, hardly that of another run, and its first address."""
    chosen = f"10.{96 + secrets.randbelow(32)}.{16 * secrets.randbelow(16)}"
    return f"{chosen}.0/20", f"{chosen}.1"


def _token_file(folder: Path, admin: str, nodes: Mapping[str, str]) -> Path:
    to = folder / "tokens.csv"
    to.touch(mode=0o600)
    lines = [f'{admin},admin,admin,"system:masters"']
    for name, token in nodes.items():
        lines.append(f'{token},system:node:{name},{name},"system:nodes"')
    to.write_text("".join(f"{line}\n" for line in lines))
    return to


def _service_account_key(folder: Path) -> Path:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    to = folder / "service-accounts.key"
    to.touch(mode=0o600)
    to.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return to
