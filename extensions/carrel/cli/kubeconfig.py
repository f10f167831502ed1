"""A kubeconfig from what the service says of the cluster, alone or merged into a file.

Merging replaces the entries of the same names and keeps all others, as ``kubectl config`` does. The
file is written anew beside the old one, for its owner only, and put in its place at once.
"""

import base64
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from carrel.client.config import write_private
from carrel.errors import BadSetting
from carrel_schema.governance.kubeconfig import ClusterAccess

Document = dict[str, Any]
LISTS: Final = ("clusters", "users", "contexts")


def build(access: ClusterAccess, name: str, project: str | None) -> Document:
    """A kubeconfig with a context for each project.

    Args:
        access: what the service said.
        name: of the cluster and the user in it; contexts are ``name-project``.
        project: whose context is the current one.
    """
    cluster: Document = {"server": access.server}
    if access.certificate_authority:
        encoded = base64.b64encode(access.certificate_authority.encode()).decode()
        cluster["certificate-authority-data"] = encoded
    found: Document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [
            {
                "name": f"{name}-{one.project}",
                "context": {"cluster": name, "user": name, "namespace": one.namespace},
            }
            for one in access.namespaces
        ],
    }
    if access.sign_in is not None:
        command = {
            key: value
            for key, value in msgspec.to_builtins(access.sign_in).items()
            if value not in ("", [])
        }
        found["users"] = [{"name": name, "user": {"exec": command}}]
    if project is not None:
        found["current-context"] = f"{name}-{project}"
    return found


def usual_file() -> Path:
    """The file that ``kubectl`` writes: the first of ``KUBECONFIG``, else ``~/.kube/config``."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return Path(named[0]) if named else Path.home() / ".kube" / "config"


def merge_into(file: Path, added: Document) -> None:
    """Put the entries into a file. Raises ``BadSetting`` where that is no kubeconfig."""
    place = file.resolve()
    found = _read(place)
    for kind in LISTS:
        new = added.get(kind, [])
        names = {one["name"] for one in new}
        kept = [one for one in found.get(kind) or [] if one.get("name") not in names]
        found[kind] = [*kept, *new]
    current = added.get("current-context") or found.get("current-context", "")
    write_private(place, as_yaml({**added, **found, "current-context": current}).encode())


def as_yaml(document: Document) -> str:
    """The text of a kubeconfig."""
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def _read(file: Path) -> Document:
    import yaml

    if not file.exists():
        return {}
    try:
        found = yaml.safe_load(file.read_bytes()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise BadSetting(f"{file} cannot be read as a kubeconfig: {error}.") from error
    if not isinstance(found, dict) or not all(_is_list(found.get(kind)) for kind in LISTS):
        raise BadSetting(
            f"{file} is not a kubeconfig, so nothing was written; name another with --file."
        )
    return dict(found)


def _is_list(entries: Any) -> bool:
    """Whether these are entries of a kubeconfig; none at all are."""
    return entries is None or (
        isinstance(entries, list) and all(isinstance(one, dict) for one in entries)
    )
