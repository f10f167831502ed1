"""Options of every kind of work: its name, what each task gets, its surroundings, its rules."""

from typing import Final

from carrel.options import values
from carrel.options.option import Option, Surface, of_field

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
    of_field("template", WHAT, "template",
             text="A template, whose values it takes where nothing is said.",
             surfaces=Surface.CLI | Surface.MAGIC),
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
    Option("follow", "Print its output until it ends; exit code 1 unless it succeeded.", WHAT,
           surfaces=Surface.CLI),
)  # fmt: skip

MACHINE: Final = (
    of_field("gpus", RESOURCES, "gpus", text="GPUs of each task.", value=values.GPUS, short="g",
             also=("gpu",)),
    of_field("gpu-memory", RESOURCES, "gpu_memory_bytes", value=values.GPU_MEMORY,
             text="Memory of a GPU that it shares, in place of GPUs: 5G."),
    of_field("gpu-devices", RESOURCES, "gpu_devices",
             text="Of how many GPUs of one node it has that share each: 2, with 0.25 GPUs."),
    of_field("mig-profile", RESOURCES, "mig_profile", shown="PROFILE",
             text="A MIG instance in place of GPUs: 1g.10gb."),
    of_field("cpu", RESOURCES, "cpu_millicores", value=values.CPU,
             text="Its share of a busy machine: 2, 0.5 or 500m."),
    of_field("cpu-limit", RESOURCES, "cpu_limit_millicores", value=values.CPU_LIMIT,
             text="Never more processors than this."),
    of_field("memory", RESOURCES, "memory_bytes", text="Memory: 512M, 4G.", value=values.MEMORY),
    of_field("large-shm", RESOURCES, "large_shm"),
)  # fmt: skip

PLACE: Final = (
    Option("environment", "K=V, or K to take yours along; may be repeated.", SURROUNDINGS,
           values.VARIABLE, ("environment",), short="e", also=("env",), many="mapping"),
    Option("secret", "K=V or K, never shown again anywhere; may be repeated.", SURROUNDINGS,
           values.VARIABLE, ("secret_environment",), many="mapping"),
    Option("volume", "A folder to see, and where; ro: only to read; may be repeated.", SURROUNDINGS,
           values.VOLUME, ("volumes",), short="v", many="list"),
    of_field("environment-asset", SURROUNDINGS, "assets.environment", value=values.text("NAME"),
             text="An environment, by name: image, command and variables."),
    of_field("compute", SURROUNDINGS, "assets.compute", value=values.text("NAME"),
             text="A compute resource, by name: GPUs, cores and memory."),
    Option("data", "A data source, by name; may be repeated.", SURROUNDINGS, values.EACH_NAME,
           ("assets.data_sources",), many="list"),
    of_field("image", SURROUNDINGS, "image", shown="IMAGE", short="i"),
    of_field("node-group", SURROUNDINGS, "node_group", shown="GROUP", also=("node-type",)),
    Option("gpu-type", "Models of GPUs that will do, the best first: A100,H100.", SURROUNDINGS,
           values.GPU_TYPES, ("gpu_types",)),
    of_field("move-to-better-type", SURROUNDINGS, "move_to_better_type"),
    Option("label", "K=V, to find it by; may be repeated.", SURROUNDINGS, values.LABEL,
           ("labels",), short="l", many="mapping"),
    of_field("working-dir", SURROUNDINGS, "working_dir", shown="FOLDER", short="w",
             text="The folder to start in; by default the present one in a workspace."),
    Option("code", "A folder to take along; by default the present one where the command names a "
           "file in it that jobs do not see.", SURROUNDINGS, values.text("FOLDER"),
           surfaces=Surface.CLI),
    Option("no-code", "Take no folder along.", SURROUNDINGS, surfaces=Surface.CLI),
    Option("git", "A Git repository to take the code from.", SURROUNDINGS, values.GIT_SOURCE,
           ("code",)),
    Option("git-secret", "The secret that the repository of the code asks for: a password or an "
           "SSH key.", SURROUNDINGS, values.text("NAME"), ("code.secret",)),
    Option("repository", "A further Git repository, and the folder for it; may be repeated.",
           SURROUNDINGS, values.REPOSITORY, ("repositories",), many="list"),
)  # fmt: skip

LIFE: Final = (
    of_field("priority", RULES, "priority", value=values.PRIORITY,
             text="Its place among the project's own: very-low to very-high, or a number."),
    of_field("preemptible", RULES, "preemptible", off="non-preemptible"),
    of_field("backoff-limit", RULES, "backoff_limit"),
    Option("after", "Work of the project that has to succeed before it starts, with `:any` only to "
           "end; may be repeated.", RULES, values.DEPENDENCY, ("after",), many="list"),
    Option("retry", "How many failures of a class it may have: application (errors of its own, by "
           "default 0), memory, crash, stalled, gpu, node, lost; several as gpu=3,node=5; may be "
           "repeated.", RULES, values.RETRY, ("retries",), many="mapping"),
    of_field("avoid-failed-nodes", RULES, "avoid_failed_nodes", off="reuse-failed-nodes"),
    of_field("restart", RULES, "restart_policy"),
    of_field("checkpoint-every", RULES, "checkpoint_every_seconds"),
    of_field("continue-from", RULES, "continue_from",
             also=("from-checkpoint",),
             text="Work of yours in the project whose checkpoints it begins with, or JOB:NAME of "
             "one of them."),
    of_field("model", RULES, "model",
             text="A model of the project, NAME or NAME@VERSION, that it finds at CARREL_MODEL."),
    of_field("time-limit", RULES, "time_limit_seconds",
             text="Stop it after so long in running: 45m, 8h, 2d."),
    of_field("idle-timeout", RULES, "idle_timeout_seconds",
             text="Stop it after so long without activity; a training, without work on its GPUs."),
    of_field("grace-period", RULES, "grace_seconds", also=("grace",)),
)  # fmt: skip

# Options of `docker run` lines that are for the submitter's terminal.
TERMINAL: Final = (
    Option("tty", "Run the command in this terminal, as interactive work that ends with it.", WHAT,
           short="t", also=("stdin", "-it"), surfaces=Surface.CLI),
    Option("rm", "With -it: delete the job at its end, in place of suspending it.", WHAT,
           surfaces=Surface.CLI),
)  # fmt: skip
