"""Names that a project may have: the same on one machine and on a cluster, where state may move to.

A project's namespace is ``carrel-<project>``, and names of namespaces have at most 63 characters.
Reserved are names whose namespace would be the installation's own, or read as a part of Kubernetes.
"""

import re
from typing import Final

PATTERN: Final = "^[a-z0-9]([-a-z0-9]{0,54}[a-z0-9])?$"
RESERVED: Final = "^(system|default|carrel|(kube|openshift)(-.*)?)$"
"""Regular expressions for Python and for CEL alike."""
WORDS: Final = (
    "1 to 56 lower-case letters, digits and hyphens, beginning and ending with a letter or digit"
)
RESERVED_WORDS: Final = (
    "a name other than `system`, `default`, `carrel` and what begins with `kube-` or `openshift-`"
)


def is_formed(name: str) -> bool:
    """Whether a name has the characters and the length of a project's name."""
    return re.fullmatch(PATTERN.removesuffix("$"), name) is not None


def is_reserved(name: str) -> bool:
    """Whether a name is not given to projects."""
    return re.fullmatch(RESERVED.removesuffix("$"), name) is not None


def expected(name: str) -> str:
    """What would be right instead of a name; empty for one that is right."""
    if not is_formed(name):
        return WORDS
    return RESERVED_WORDS if is_reserved(name) else ""
