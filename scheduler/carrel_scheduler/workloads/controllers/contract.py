"""What a controller is asked, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Workload, WorkloadSpec, WorkloadStatus

OWNER_LABEL: Final = "carrel.dev/owner"


@dataclass(frozen=True, slots=True)
class NewPart:
    """A part to make.

    Attributes:
        number: its number; a part with that number that is there already is left as it is.
        name: of the workload, free in the project; the manager gives it owner and number.
        spec: complete but for ``owner``, ``part`` and ``user``.
    """

    number: int
    name: str
    spec: WorkloadSpec
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Wanted:
    """What there should be after one look. Everything is done in this order, and may be repeated.

    Attributes:
        status: the composite workload's new status; one that equals the stored one is not written.
        changed: parts with a changed specification (the same uid).
        deleted: uids of parts to end and remove.
        created: parts to make.
        look_again_at: look by then, even if nothing happens; epoch seconds.
    """

    status: WorkloadStatus
    changed: list[Workload] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    created: list[NewPart] = field(default_factory=list)
    look_again_at: float | None = None


class Controller(Protocol):
    """One kind of composite work."""

    @property
    def kind(self) -> WorkloadKind:
        """The kind that it looks after."""
        ...

    async def look(self, owner: Workload, parts: Sequence[Workload], now: float) -> Wanted:
        """Say what there should be.

        Args:
            owner: the composite workload; not to be changed.
            parts: all of its parts in the order of their numbers, ended ones too; not to be
                changed (``msgspec.structs.replace`` and ``copy.deepcopy`` make new ones).
            now: epoch seconds.

        Never called for one that is being deleted: the manager ends its parts and removes it.
        """
        ...

    async def removed(self, owner: Workload) -> None:
        """It is gone: let go of what was kept for it."""
        ...
