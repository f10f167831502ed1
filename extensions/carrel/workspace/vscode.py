"""VS Code beside JupyterLab, where the program ``code-server`` is installed.

``jupyter-server-proxy`` starts it when somebody opens it, on a socket file that only the
workspace's own account can open, and passes on requests of those whom the workspace's server lets
in. Nobody else reaches it, so it asks for no password of its own.

What happens inside it cannot be seen from here. It touches a file about once a minute while a page
of it is connected, and such a page counts as somebody at work.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = "code-server"
START_SECONDS: Final = 60


def server() -> dict[str, Any]:
    """The entry for ``jupyter-server-proxy``; read at the start of a server."""
    return {
        "command": [
            PROGRAM,
            "--auth=none",
            "--disable-telemetry",
            "--disable-update-check",
            "--disable-workspace-trust",
            "--socket={unix_socket}",
            str(Path.cwd()),
        ],
        "unix_socket": True,
        "timeout": START_SECONDS,
        "new_browser_tab": True,
        "launcher_entry": {
            "title": "VS Code",
            "enabled": shutil.which(PROGRAM) is not None,
            "path_info": "vscode/",
        },
    }


def last_connected(environment: Mapping[str, str] = os.environ) -> float:
    """The time at which a page of VS Code was last open, epoch seconds; 0: never."""
    home = environment.get("XDG_DATA_HOME") or str(Path(environment["HOME"]) / ".local" / "share")
    try:
        return (Path(home) / PROGRAM / "heartbeat").stat().st_mtime
    except OSError:
        return 0.0
