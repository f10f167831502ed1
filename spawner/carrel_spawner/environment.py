"""The workspace's environment in two parts: what may be shown, and what is secret.

The scheduler stores and shows the one and hides the other, so everything that opens a door has to
be in the second: by name when we know it, by the look of its name otherwise.
"""

import re
from collections.abc import Mapping
from typing import Final

_SECRET: Final = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|PRIVATE|COOKIE|API_?KEY|ACCESS_?KEY)", re.IGNORECASE
)
_HARMLESS: Final = frozenset({"JUPYTERHUB_COOKIE_HOST_PREFIX_ENABLED"})


def split(environment: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """``(environment, secret_environment)``; values become strings, absent ones are left out."""
    shown: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for name, value in environment.items():
        if value is None:
            continue
        secret = name not in _HARMLESS and _SECRET.search(name)
        (hidden if secret else shown)[name] = str(value)
    return shown, hidden
