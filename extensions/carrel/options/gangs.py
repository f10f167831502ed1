"""Options of distributed and elastic training."""

from typing import Final

from carrel.options import values
from carrel.options.option import Option, Surface

GROUP: Final = "Distributed and elastic training"
TRAINING: Final = frozenset({"training"})
DISTRIBUTED: Final = frozenset({"distributed"})
TASKS: Final = values.whole(1, 10_000)

GANGS: Final = (
    Option("distributed", "Several workers that find each other, start and end together.", GROUP,
           kinds=DISTRIBUTED, surfaces=Surface.CLI | Surface.MAGIC),
    Option("workers", "So many workers, together or not at all.", GROUP, TASKS, ("tasks",),
           DISTRIBUTED, default=1),
    Option("max-workers", "Elastic: as many workers as there is room for, up to this.", GROUP,
           TASKS, ("tasks",), DISTRIBUTED, default=1),
    Option("elastic", "Start with less, grow into idle room, shrink first: workers down to one, "
           "or the GPUs of a single task.", GROUP, fields=("elastic.min_tasks",),
           kinds=DISTRIBUTED, sets=1, default=0),
    Option("elastic", "", GROUP, fields=("elastic.gpus_of_task",), kinds=TRAINING, default=False),
    Option("min-workers", "Elastic: starts with so few, and shrinks to no fewer.", GROUP,
           values.whole(0, 10_000), ("elastic.min_tasks",), DISTRIBUTED, default=0),
    Option("launcher", "each: every worker runs the command; mpi: the first one does, and reaches "
           "the others through a host file.", GROUP, values.choice("each", "mpi"),
           ("rendezvous.launcher",), DISTRIBUTED, default="each"),
    Option("join-timeout", "The gang ends when a worker has not joined by then.", GROUP,
           values.span(1), ("rendezvous.join_timeout_seconds",), DISTRIBUTED, default=600.0),
    Option("tasks", "Start so many together, without a word about each other.", GROUP, TASKS,
           ("tasks",), TRAINING, default=1),
)  # fmt: skip
