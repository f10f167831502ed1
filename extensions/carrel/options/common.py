"""Options of every kind of work: its name, what each task gets, its surroundings, its rules."""

from typing import Final

from carrel.options import values
from carrel.options.option import Option, Surface

WHAT, RESOURCES, SURROUNDINGS, RULES = (
    "What",
    "Each task gets",
    "Surroundings",
    "Its turn and its end",
)

IDENTITY: Final = (
    Option("name", "Its name; without one it is numbered.", WHAT, values.text("NAME"), ("name",),
           short="n"),
    Option("name-prefix", "Number it: PREFIX-1, PREFIX-2, ...", WHAT, values.text("PREFIX"),
           ("name_prefix",), also=("job-name-prefix",), surfaces=Surface.CLI | Surface.MAGIC),
    Option("project", "The project it belongs to.", WHAT, values.text("NAME"), ("project",),
           short="p"),
    Option("interactive", "A session for a person, not a training.", WHAT,
           kinds=frozenset({"workspace"}), surfaces=Surface.CLI),
    Option("in", "Variables to take along, beside those that the cell names.", WHAT,
           values.VARIABLES, ("inputs",), surfaces=Surface.MAGIC),
    Option("to", "A variable to put the job's handle in.", WHAT, values.text("NAME"),
           surfaces=Surface.MAGIC),
    Option("file", "Read the request from a YAML file, - for standard input; options count more.",
           WHAT, values.text("FILE"), short="f", surfaces=Surface.CLI),
    Option("replace", "Instead of the work of that name, which is cancelled.", WHAT,
           surfaces=Surface.CLI | Surface.MAGIC),
    Option("dry-run", "Say what would happen now and do nothing.", WHAT,
           surfaces=Surface.CLI | Surface.MAGIC),
    Option("wait", "Wait until it ends; the stop button leaves it running.", WHAT,
           surfaces=Surface.MAGIC),
)  # fmt: skip

MACHINE: Final = (
    Option("gpus", "GPUs of each task.", RESOURCES, values.GPUS, ("gpus",),
           short="g", also=("gpu",), default=0.0),
    Option("mig-profile", "A MIG instance in place of GPUs, on a cluster: 1g.10gb.", RESOURCES,
           values.text("PROFILE"), ("mig_profile",), default=""),
    Option("cpu", "Its share of a busy machine: 2, 0.5 or 500m.", RESOURCES, values.CPU,
           ("cpu_millicores",), default=100),
    Option("cpu-limit", "Never more processors than this.", RESOURCES, values.CPU_LIMIT,
           ("cpu_limit_millicores",)),
    Option("memory", "Memory: 512M, 4G.", RESOURCES, values.MEMORY, ("memory_bytes",),
           default=2**30),
    Option("large-shm", "Shared memory of its own, as large as its memory.", RESOURCES,
           fields=("large_shm",), default=False),
)  # fmt: skip

PLACE: Final = (
    Option("environment", "K=V, or K to take yours along; may be repeated.", SURROUNDINGS,
           values.VARIABLE, ("environment",), short="e", also=("env",), many="mapping"),
    Option("secret", "K=V or K, never shown again anywhere; may be repeated.", SURROUNDINGS,
           values.VARIABLE, ("secret_environment",), many="mapping"),
    Option("volume", "A folder to see, and where; ro: only to read; may be repeated.", SURROUNDINGS,
           values.VOLUME, ("volumes",), short="v", many="list"),
    Option("image", "Container image.", SURROUNDINGS, values.text("IMAGE"), ("image",), short="i",
           default=""),
    Option("node-group", "Only nodes of this group of the cluster.", SURROUNDINGS,
           values.text("GROUP"), ("node_group",), also=("node-type",), default=""),
    Option("label", "K=V, to find it by; may be repeated.", SURROUNDINGS, values.LABEL,
           ("labels",), short="l", many="mapping"),
    Option("working-dir", "The folder to start in; by default the present one in a workspace.",
           SURROUNDINGS, values.text("FOLDER"), ("working_dir",), short="w", default=""),
)  # fmt: skip

LIFE: Final = (
    Option("priority", "Its place among the project's own: very-low to very-high, or a number.",
           RULES, values.PRIORITY, ("priority",), default=""),
    Option("preemptible", "May it give way to others? Trainings may, interactive work may not, "
           "by default.", RULES, fields=("preemptible",), off="non-preemptible"),
    Option("backoff-limit", "How often to start it again when it fails.", RULES,
           values.whole(0, 1000), ("backoff_limit",), default=6),
    Option("restart", "When to start it again after its end.", RULES,
           values.choice("on-failure", "never", "always"), ("restart_policy",),
           default="on-failure"),
    Option("checkpoint-every", "How often it should save: 30, 5m.", RULES,
           values.span(1, 7 * 86_400), ("checkpoint_every_seconds",)),
    Option("continue-from", "Work of yours in the project whose checkpoints it begins with.", RULES,
           values.text("NAME"), ("continue_from",), default=""),
    Option("grace-period", "Time to save when it must stop: 30s.", RULES, values.span(0, 3600),
           ("grace_seconds",), also=("grace",), default=30.0),
)  # fmt: skip

# Of `docker run` lines: accepted, and said to have no effect.
IGNORED: Final = (
    Option("tty", "No effect.", WHAT, short="t", also=("stdin", "-it"), surfaces=Surface.CLI,
           hidden=True),
    Option("rm", "No effect.", WHAT, surfaces=Surface.CLI, hidden=True),
)  # fmt: skip
