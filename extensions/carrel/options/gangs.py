"""Options of distributed and elastic training."""

from typing import Final

from carrel.options.option import Option, Surface, of_field

GROUP: Final = "Distributed and elastic training"
TRAINING: Final = frozenset({"training"})
DISTRIBUTED: Final = frozenset({"distributed"})
GANG_KINDS: Final = TRAINING | DISTRIBUTED

GANGS: Final = (
    Option("distributed", "Several workers that find each other, start and end together.", GROUP,
           kinds=DISTRIBUTED, surfaces=Surface.CLI | Surface.MAGIC),
    of_field("workers", GROUP, "tasks", text="So many workers, together or not at all.",
             kinds=DISTRIBUTED),
    of_field("max-workers", GROUP, "tasks", kinds=DISTRIBUTED,
             text="Elastic: as many workers as there is room for, up to this."),
    Option("elastic", "Start with less, grow into idle room, shrink first: workers down to one, "
           "or the GPUs of a single task.", GROUP, fields=("elastic.min_tasks",),
           kinds=DISTRIBUTED, sets=1, default=0),
    Option("elastic", "", GROUP, fields=("elastic.gpus_of_task",), kinds=TRAINING, default=False),
    of_field("min-workers", GROUP, "elastic.min_tasks", kinds=DISTRIBUTED,
             text="Elastic: starts with so few, and shrinks to no fewer."),
    of_field("topology-required", GROUP, "topology_required", shown="LEVEL", kinds=GANG_KINDS),
    of_field("topology-preferred", GROUP, "topology_preferred", shown="LEVEL", kinds=GANG_KINDS),
    of_field("restart-when-stalled", GROUP, "restart_when_stalled", off="tell-when-stalled",
             kinds=GANG_KINDS,
             text="When it stands still, without work on its GPUs and without a report, it starts "
             "again from its last checkpoint, or its owner is only told. By default as the "
             "cluster does, which looks at work of several tasks only."),
    of_field("stall-after", GROUP, "stall_after_seconds", kinds=GANG_KINDS,
             text="So long without work on its GPUs and without a report it stands still. By "
             "default as the cluster counts, 30m unless an admin chose otherwise."),
    of_field("launcher", GROUP, "rendezvous.launcher", kinds=DISTRIBUTED),
    of_field("join-timeout", GROUP, "rendezvous.join_timeout_seconds", kinds=DISTRIBUTED),
    of_field("tasks", GROUP, "tasks", kinds=TRAINING,
             text="Start so many together, without a word about each other."),
)  # fmt: skip
