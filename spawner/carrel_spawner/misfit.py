"""What could not be had of a choice, found where it was to run.

The engine refuses folders before anything begins, in a message that starts with the field. The
workspace's own start looks at the rest as the user, who sees what the Hub may not, and writes one
line into its log.
"""

from typing import Final

from carrel.models import Workload
from carrel_spawner.bad_option import BadOption

_MARK: Final = "The workspace cannot start: "
_FIELDS: Final = ("volumes",)


def line(error: BadOption) -> str:
    """The line of the log."""
    return f"{_MARK}{error}"


def sentence(workload: Workload, log: str) -> str:
    """What was unfit; empty when the workspace ended for another reason."""
    for task in workload.status.tasks:
        field, sign, rest = task.message.partition("=")
        if sign and field in _FIELDS:
            return f"{field} cannot be had: {rest}."
    marked = [text for text in log.splitlines() if text.startswith(_MARK)]
    return marked[-1].removeprefix(_MARK) if marked else ""
