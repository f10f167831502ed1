"""What sentences are made of: for whom they are, and how somebody's work is called."""

from dataclasses import dataclass

MOST = 5
"""So many holders a reason names at most."""


@dataclass(frozen=True, slots=True)
class Reader:
    """For whom a sentence is.

    Attributes:
        project: the project of the workload that it is about.
        names: whether names of other projects' workloads may be told.
    """

    project: str
    names: bool


def member(project: str) -> str:
    """How somebody else's work is called where its name may not be told."""
    return f"a member of `{project}`"


def who(name: str, owner: str, reader: Reader) -> str:
    """A workload as its reader may know it."""
    if owner == reader.project:
        return f"`{name}`"
    return f"`{name}` of `{owner}`" if reader.names else member(owner)


def join(parts: list[str]) -> str:
    """A list in words; not empty."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
