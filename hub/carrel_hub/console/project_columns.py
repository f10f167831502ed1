"""The table of projects: its columns, the same in the console and in the CSV file, and the search.

Some columns are hidden until somebody chooses them; the choice is the browser's (``columns.js``).
"""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from carrel.models import Project
from carrel_hub.console import words
from carrel_hub.console.format import number
from carrel_schema.text import group_amounts
from carrel_schema.text.csv_cells import csv_cell


@dataclass(frozen=True, slots=True)
class Column:
    """A column beside the name and the quota line.

    Attributes:
        key: stable, for the browser's choice.
        label: its head.
        value: what stands in a cell; ``None`` is a bound that is not set.
        numeric: to the right.
        chosen: shown unless somebody chooses otherwise.
    """

    key: str
    label: str
    value: Callable[[Project], float | str | None]
    numeric: bool = True
    chosen: bool = False

    def text(self, project: Project) -> str:
        """The cell in the console."""
        value = self.value(project)
        if value is None:
            return "none"
        return value if isinstance(value, str) else number(value)


COLUMNS: Final = (
    Column("fair-share", "Fair share", lambda one: one.use.fair_share_gpus, chosen=True),
    Column("running", "Running", lambda one: one.use.running, chosen=True),
    Column("pending", "Pending", lambda one: one.use.waiting, chosen=True),
    Column("workspaces", "Workspaces", lambda one: words.interactive_short(one.interactive),
           numeric=False, chosen=True),
    Column("quota-gpus", "Guaranteed GPUs", lambda one: one.quota.gpus),
    Column("group-quotas", "Guaranteed GPUs in node groups",
           lambda one: group_amounts.spell(one.node_group_quotas) or None, numeric=False),
    Column("allocated-gpus", "Allocated GPUs", lambda one: one.use.gpus_allocated),
    Column("borrowed-gpus", "Borrowed GPUs", lambda one: one.use.gpus_borrowed),
    Column("pending-gpus", "Pending GPUs", lambda one: one.use.gpus_waiting),
    Column("limit-gpus", "GPU limit", lambda one: one.limit.gpus),
    Column("group-limits", "GPU limits in node groups",
           lambda one: group_amounts.spell(one.node_group_limits) or None, numeric=False),
    Column("user-gpus", "GPUs of each user", lambda one: one.max_gpus_per_user),
    Column("user-order", "Order of users",
           lambda one: "fair share" if one.user_order == "fair-share" else "submission",
           numeric=False),
    Column("over-quota", "Over quota", lambda one: "yes" if one.over_quota else "no",
           numeric=False),
    Column("weight", "Weight", lambda one: "by quota" if one.weight is None else one.weight),
    Column("rank", "Rank", lambda one: one.rank),
    Column("description", "Description", lambda one: one.description, numeric=False),
)  # fmt: skip


def found(projects: Iterable[Project], search: str) -> list[Project]:
    """The projects whose name, department or description has a text, whatever its case."""
    wanted = search.casefold()
    return [
        one
        for one in projects
        if wanted in f"{one.name}\n{one.department or ''}\n{one.description}".casefold()
    ]


def csv_text(projects: Iterable[Project]) -> str:
    """The whole table, all columns; an empty cell is a bound that is not set."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["Project", "Department", *(column.label for column in COLUMNS)])
    for one in projects:
        cells = [one.name, one.department or "", *(column.value(one) for column in COLUMNS)]
        writer.writerow(map(csv_cell, cells))
    return text.getvalue()
