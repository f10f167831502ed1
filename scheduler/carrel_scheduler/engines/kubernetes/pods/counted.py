"""What a pod was counted as when it was bound, written into its binding.

Labels of a pod and of its owners can change while it runs. After a restart the scheduler counts a
pod that runs by this annotation and not by its labels, so that nobody gets out of a quota by taking
a label away. Only the scheduler may write it (``deploy/kubernetes/policies``).
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.engines.kubernetes.pods.grouped import Grouping
from carrel_schema.names import COUNTED


class Counted(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The parts of a grouping that decide what a pod may have."""

    project: str
    user: str = ""
    priority: int = 50
    preemptible: Preemptibility = Preemptibility.YES
    interactive: bool = False


def written(grouping: Grouping) -> str:
    """The annotation's text."""
    counted = Counted(
        grouping.project,
        grouping.user,
        grouping.priority,
        grouping.preemptible,
        grouping.interactive,
    )
    return msgspec.json.encode(counted).decode()


def read(annotations: Mapping[str, str]) -> Counted | None:
    """What the annotation says; ``None`` where it is missing or means nothing."""
    try:
        return msgspec.json.decode(annotations.get(COUNTED, ""), type=Counted)
    except msgspec.DecodeError:
        return None


def applied(grouping: Grouping, counted: Counted) -> Grouping:
    """A grouping as it was when its pod was bound."""
    return replace(
        grouping,
        project=counted.project,
        user=counted.user,
        priority=counted.priority,
        preemptible=counted.preemptible,
        interactive=counted.interactive,
    )
