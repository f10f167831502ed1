"""The workload's name of a user's workspace: a DNS label, different for every user and server.

``ada`` -> ``workspace-ada``; her server ``gpu-lab`` -> ``workspace-ada--gpu-lab``. A name that is
no DNS label, or that would make the result too long or ambiguous, is slugged and ends in ``---``
and a hash of the exact name. Server names never begin with a dash and never hold two in a row, so
the three forms cannot meet.
"""

import hashlib
import re
from typing import Final

PREFIX: Final = "workspace-"
LONGEST: Final = 63
_SAFE: Final = re.compile(r"[a-z0-9]([a-z0-9]|-(?!-))*(?<!-)\Z")
_HASH_LENGTH: Final = 8


def workspace_name(user: str, server_name: str = "") -> str:
    """The name of the workload that is this user's workspace, at most 63 characters."""
    plain = f"{PREFIX}{user}--{server_name}" if server_name else f"{PREFIX}{user}"
    safe = _SAFE.match(user) and (not server_name or _SAFE.match(server_name))
    if safe and len(plain) <= LONGEST:
        return plain
    ending = f"---{_digest(user, server_name)}"
    wanted = f"{user}-{server_name}" if server_name else user
    slug = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")
    slug = slug[: LONGEST - len(PREFIX) - len(ending)].rstrip("-") or "user"
    return f"{PREFIX}{slug}{ending}"


def _digest(user: str, server_name: str) -> str:
    """Of both names; the separator can be in neither."""
    exact = f"{user}\0{server_name}".encode()
    return hashlib.sha256(exact).hexdigest()[:_HASH_LENGTH]
