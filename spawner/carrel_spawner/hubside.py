"""JupyterHub's helpers with types."""

from typing import Any

from jupyterhub import utils

_utils: Any = utils


def join_url(*parts: str) -> str:
    """Parts of a URL joined by single slashes."""
    return str(_utils.url_path_join(*parts))


def escape(part: str) -> str:
    """One piece of a path, quoted as the Hub does it."""
    return str(_utils.url_escape_path(part))
