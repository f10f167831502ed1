"""Files of JupyterLab's page, served so that browsers may cache them.

JupyterLab lets a browser ask for every file of an extension anew, dozens of requests to the one
thread that also answers the page's first questions. Files whose names have a hash never change, so
browsers keep them; ours have none, and are served below an address that has the hash of all of
them. JupyterLab's look for extensions that it would have to be built with is left out: in a
workspace it cannot be built.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jupyter_core.paths import jupyter_path
from jupyter_server.base.handlers import FileFindHandler
from jupyter_server.utils import url_path_join
from jupyterlab_server.config import get_federated_extensions

from carrel.workspace import LABEXTENSIONS

OWN: Final = LABEXTENSIONS / "carrel" / "static"
OPTION: Final = "carrelFiles"
"""The page's option that tells our container (``remoteEntry.js``) where the rest of it lies."""
_HASHED: Final = re.compile(r"^(?:\./)?(static/)remoteEntry\.[0-9a-f]{8,}\.js$")


def install(web_app: Any, base_url: str) -> None:
    """Set the cache headers of a Jupyter server's static files.

    Args:
        web_app: the server's Tornado application.
        base_url: what all its addresses begin with.
    """
    own = url_path_join(base_url, "carrel", "static", own_hash(OWN))
    address = f"{re.escape(own)}/(?:try[0-9]/)?(.*)"  # a retry has addresses of its own
    web_app.add_handlers(".*$", [(address, FileFindHandler, {"path": str(OWN)})])
    installed = get_federated_extensions(jupyter_path("labextensions"))
    kept = web_app.settings.setdefault("static_immutable_cache", [])
    web_app.settings["static_immutable_cache"] = [
        *kept, f"{own}/", *hashed_folders(base_url, installed)
    ]  # fmt: skip
    page = web_app.settings.setdefault("page_config_data", {})
    page |= {OPTION: f"{own}/", "buildCheck": False}


def hashed_folders(base_url: str, installed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Paths below which every name has a hash: of extensions that a bundler made.

    Args:
        base_url: what all addresses of the server begin with.
        installed: by name, as ``get_federated_extensions`` tells of them.
    """
    found = []
    for name, facts in installed.items():
        load = facts.get("jupyterlab", {}).get("_build", {}).get("load", "")
        hashed = _HASHED.match(load)
        if hashed:
            found.append(url_path_join(base_url, "lab", "extensions", name, hashed[1]))
    return found


def own_hash(folder: Path) -> str:
    """16 digits for the names and contents of all files of a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]
