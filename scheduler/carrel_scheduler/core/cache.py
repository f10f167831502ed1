"""What decisions keep for later decisions: results that cannot have changed.

Each result is kept with what it depends on and used only while that is equal, so a decision with
the cache and one without are equal. It is no part of the state: never saved, and dropped at any
time.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from carrel_scheduler.core.capacity.views import CapacityViews
from carrel_scheduler.core.devices.device_choice import Hardware
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.resources import Triple


@dataclass(frozen=True, slots=True)
class FailedSearch:
    """A search for victims that found nothing.

    Attributes:
        stamp: what it followed from; see ``in_vain``.
        fair: the fair shares that were asked for, by slot.
        moment: the time, and how many checkpoints were seen until then, if the time was asked for
            on the way.
        plainly: it was found out at a glance.
        not_found: it ended at its limits.
    """

    stamp: tuple[object, ...]
    fair: tuple[tuple[int, Triple], ...]
    moment: tuple[float, int] | None
    plainly: bool
    not_found: bool


@dataclass(slots=True)
class DecisionCache:
    """All that is remembered.

    Attributes:
        searches: what was searched for in vain, and what that followed from.
        searched_as_of: ``QueueColumns.changes`` at these searches.
        failed: how many searches found nothing since the start.
        behind: slot of a queue -> what ``starving`` found to run behind someone there.
        largest: resource and key of nodes -> what was running, and who held most of it there.
        hardware: slot of a node -> what was told of it, and its hardware.
        total: version of the nodes, and what they have in all; ``None`` while some take no work.
        empty: class -> how many of its tasks empty nodes would hold, as of ``empty_version``.
        views: which nodes there were, and views of them as if nobody held anything.
    """

    searches: dict[Hashable, FailedSearch] = field(default_factory=dict)
    searched_as_of: int = -1
    failed: int = 0
    behind: dict[int, tuple[tuple[object, ...], Triple]] = field(default_factory=dict)
    largest: dict[Hashable, tuple[tuple[int, int], tuple[tuple[int, int], ...]]] = field(
        default_factory=dict
    )
    hardware: dict[int, tuple[NodeSet, Hardware]] = field(default_factory=dict)
    total: tuple[int, Triple] | None = None
    empty: dict[int, int] = field(default_factory=dict)
    empty_version: int = -1
    views: tuple[Hashable, CapacityViews] | None = None

    def forget(self) -> None:
        """Drop everything."""
        self.searches.clear()
        self.behind.clear()
        self.largest.clear()
        self.empty.clear()
        self.hardware.clear()
        self.total = self.views = None

    def note(self, key: Hashable, found: FailedSearch, as_of: int) -> None:
        """Remember a search in vain; those of another count of changes hold no more."""
        if as_of != self.searched_as_of:
            self.searches.clear()
            self.searched_as_of = as_of
        self.searches[key] = found
        self.failed += 1
