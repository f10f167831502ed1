"""A cluster that runs already, named by ``CARREL_TEST_KUBECONFIG``: its current context is used.

The tests make and delete namespaces, nodes and resource definitions there: it has to be a cluster
for tests. Only a token or a client's certificate is understood, which is what such clusters have.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from k8s.cluster.plane import ControlPlane
from k8s.cluster.waiting import NotReady


def read(file: Path, folder: Path) -> ControlPlane:
    """The control plane of a configuration file.

    Args:
        file: as kubectl reads it.
        folder: where certificates that it holds are written.

    Raises:
        NotReady: when it has none of what is understood.
    """
    parts = yaml.safe_load(file.read_text())
    context = _named(parts["contexts"], parts["current-context"])["context"]
    cluster = _named(parts["clusters"], context["cluster"])["cluster"]
    user = _named(parts["users"], context["user"])["user"]
    authority = _file(cluster, "certificate-authority", folder)
    certificate, key = (_file(user, part, folder) for part in ("client-certificate", "client-key"))
    if authority is None or not (user.get("token") or (certificate and key)):
        raise NotReady(f"{file}: needs an authority, and a token or a client's certificate")
    own = (certificate, key) if certificate and key else None
    return ControlPlane(cluster["server"], authority, user.get("token", ""), certificate=own)


def _named(parts: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(part for part in parts if part["name"] == name)


def _file(part: Mapping[str, Any], name: str, folder: Path) -> Path | None:
    """A file that is named, or one with what is given in the configuration itself."""
    if name in part:
        return Path(part[name])
    if f"{name}-data" not in part:
        return None
    to = folder / name
    to.touch(mode=0o600)
    to.write_bytes(base64.b64decode(part[f"{name}-data"]))
    return to
