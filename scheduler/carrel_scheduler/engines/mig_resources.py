"""MIG instances that a node offers by name: what part of a GPU each one is.

Nodes are divided by their admins; the device plugin offers ``nvidia.com/mig-1g.10gb``.
They are counted by name where pods are placed, and as their part of a GPU for the project: in its
quota, its limit, its fair share and the history of its use.
"""

from collections.abc import Iterable

from carrel_scheduler.core.mig import MEDIA, milli_of_profile
from carrel_schema.names import MIG_PREFIX


def profile_of(written: str) -> str:
    """A profile as the driver names it, from its own name or from a resource's."""
    return f"{written.removesuffix('.me')}{MEDIA}" if written.endswith(".me") else written


def milli_of(resource: str) -> int:
    """Thousandths of a GPU that one instance counts as; 0 for what is no instance.

    A profile that nobody knows counts as a whole GPU.
    """
    if not resource.startswith(MIG_PREFIX):
        return 0
    return milli_of_profile(resource.removeprefix(MIG_PREFIX))


def held_milli(extended: Iterable[tuple[str, int]]) -> int:
    """The thousandths of GPUs that counted resources amount to."""
    return sum(milli_of(name) * count for name, count in extended)
