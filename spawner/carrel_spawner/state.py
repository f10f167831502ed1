"""What the Hub keeps of a workspace between its own restarts: its address, or how it ended."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from carrel.models import Workload


@dataclass(frozen=True, slots=True)
class Address:
    """The workload that is the workspace, and the port its server listens on.

    ``attempt`` is the one that this start was for; a later one is another start's.
    """

    project: str
    name: str
    uid: str
    port: int
    attempt: int = 0

    @classmethod
    def of(cls, workload: Workload, port: int) -> Self:
        """Where a start of this workload is."""
        identity = (workload.project, workload.name, workload.uid)
        return cls(*identity, port, workload.status.attempt)

    def is_at(self, workload: Workload) -> bool:
        """Whether what was started there goes on; the workload may have been queued anew since."""
        same = (workload.uid, workload.status.attempt) == (self.uid, self.attempt)
        return same and not workload.at_rest

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """From JSON; ``None`` when there is none."""
        if not stored:
            return None
        where = (stored["project"], stored["name"], stored["uid"], int(stored["port"]))
        return cls(*where, int(stored.get("attempt", 0)))


@dataclass(frozen=True, slots=True)
class Ending:
    """How a workspace ended, for the page that offers to start it again."""

    sentence: str
    help: str
    at: float
    exit_code: int

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """From JSON; ``None`` when there is none."""
        if not stored:
            return None
        return cls(
            stored["sentence"], stored["help"], float(stored["at"]), int(stored["exit_code"])
        )

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """The ending of a workload that is at rest, or was and is queued again."""
        status = workload.status
        if not workload.at_rest:
            return cls(
                "It was stopped and queued again; it starts when it is its turn.", "", 0.0, 0
            )
        reason = status.reason
        codes = [task.exit_code for task in status.tasks if task.exit_code is not None]
        return cls(
            sentence=reason.sentence if reason else "The workspace ended.",
            help=reason.help if reason else "",
            at=status.ended_at or 0.0,
            exit_code=codes[0] if codes else 0,
        )
