"""Sentences for those who had to give way."""

from carrel_scheduler.core.reasons import Reason
from carrel_scheduler.core.words.sentence_parts import Reader, join, member, who


def reclaimed(reason: Reason, reader: Reader) -> str:
    """Another project claimed its rights."""
    right = "guaranteed quota" if reason.bound else "fair share"
    if not reader.names:
        return f"Gave way to {member(reason.project)}, which claimed its {right}."
    return f"Gave way to `{reason.project}`, which claimed its {right} for `{reason.workload}`."


def preempted(reason: Reason, reader: Reader) -> str:
    """Its own project has something of higher priority."""
    return f"Gave way to `{reason.workload}`, which has a higher priority in `{reader.project}`."


def consolidated(reason: Reason, reader: Reader) -> str:
    """It moves so that something larger fits."""
    return f"Moves to another place so that {_for_whom(reason, reader)} fits."


def _for_whom(reason: Reason, reader: Reader) -> str:
    if not reason.workload:
        return "larger work"
    return who(reason.workload, reason.project, reader)


def gang_incomplete(_reason: Reason, _reader: Reader) -> str:
    """It ran with too few tasks."""
    return "Fewer of its tasks were left than it can run with, and no others came in time."


def node_drained(reason: Reason, _reader: Reader) -> str:
    """Its node is being emptied."""
    if not reason.nodes:
        return "Its node is being emptied."
    are = "is" if len(reason.nodes) == 1 else "are"
    return f"{join([f'`{node}`' for node in reason.nodes])} {are} being emptied."
