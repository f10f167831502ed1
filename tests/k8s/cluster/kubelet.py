"""A kubelet of a run, beside its containerd."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k8s.cluster.containerd import Containerd
from k8s.cluster.infrastructure import Infrastructure
from k8s.cluster.waiting import Process, free_port


def start(infrastructure: Infrastructure, runtime: Containerd, name: str, folder: Path) -> Process:
    """Start it; it registers its node by itself.

    It is told of a cloud because it refuses a loopback address as its own; whoever made the node
    then plays the cloud's part and names its address.
    """
    for group in infrastructure.network.groups():  # its own: a kubelet ends what it finds of others
        (group / name).mkdir()
    file = folder / "kubelet.json"
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {infrastructure.network.address}\n")
    file.write_text(json.dumps(_settings(infrastructure, runtime, folder, resolver)))
    access = infrastructure.plane.kubeconfig(
        folder / "access.json", infrastructure.plane.node_tokens[name]
    )
    command = [
        str(infrastructure.programs["kubelet"]),
        f"--config={file}",
        f"--kubeconfig={access}",
        f"--hostname-override={name}",
        f"--root-dir={folder / 'kubelet'}",
        f"--cert-dir={folder / 'certificates'}",
        "--cloud-provider=external",
    ]
    return infrastructure.record.start(command, folder / "kubelet.log")


def _settings(
    infrastructure: Infrastructure, runtime: Containerd, folder: Path, resolver: Path
) -> Mapping[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": free_port(),
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(infrastructure.plane.issuer)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{runtime.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{infrastructure.network.interface}/{folder.name}",
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
        "podLogsDir": str(folder / "logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "resolvConf": str(resolver),
        "clusterDNS": [infrastructure.network.address],
        "clusterDomain": "cluster.local",
    }
