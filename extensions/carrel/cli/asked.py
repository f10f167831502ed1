"""The options of ``carrel submit``: how each is spelt, and the sentence that explains it."""

from typing import Annotated

from typer import Argument, Option

Texts = list[str] | None

Words = Annotated[
    Texts, Argument(metavar="[NAME] [-- COMMAND...]", help="Its name; then its command.")
]
Project = Annotated[str | None, Option("--project", "-p", help="The project.")]

Gpus = Annotated[float, Option("--gpus", "--gpu", "-g", help="GPUs of each task.")]
Cpu = Annotated[str | None, Option("--cpu", help="Its share of a busy machine: 2, 0.5 or 500m.")]
CpuLimit = Annotated[str | None, Option("--cpu-limit", help="Never more processors than this.")]
Memory = Annotated[str | None, Option("--memory", help="Memory: 512M, 4G.")]
LargeShm = Annotated[
    bool, Option("--large-shm", help="Shared memory of its own, as large as its memory.")
]

Environment = Annotated[Texts, Option("--environment", "-e", help="K=V, or K to take yours along.")]
Secret = Annotated[Texts, Option("--secret", help="K=V or K, never shown again anywhere.")]
Volume = Annotated[Texts, Option("--volume", "-v", help="SOURCE[:DESTINATION], a folder to see.")]
Image = Annotated[str, Option("--image", "-i", help="Container image.")]
WorkingDir = Annotated[
    str | None,
    Option("--working-dir", "-w", help="By default the present one in a workspace."),
]

Priority = Annotated[str, Option("--priority", help="A level such as low or high, or a number.")]
Preemptible = Annotated[
    bool | None,
    Option(
        "--preemptible/--non-preemptible",
        help="May it give way to others? Trainings may, interactive work may not, by default.",
    ),
]
Interactive = Annotated[
    bool, Option("--interactive", help="A session for a person, not a training.")
]
Tasks = Annotated[int, Option("--tasks", help="Start so many together.")]
BackoffLimit = Annotated[
    int, Option("--backoff-limit", help="How often to start it again when it fails.")
]
CheckpointEvery = Annotated[
    str | None, Option("--checkpoint-every", help="How often it should save: 30, 5m.")
]
Grace = Annotated[str | None, Option("--grace-period", help="Time to save when it must stop: 30s.")]

NamePrefix = Annotated[
    str, Option("--name-prefix", "--job-name-prefix", help="Number it: PREFIX-1, ...")
]
Label = Annotated[Texts, Option("--label", "-l", help="K=V, to find it by.")]
DryRun = Annotated[bool, Option("--dry-run", help="Say what would happen and do nothing.")]

# Of `docker run` lines: accepted, and said to have no effect.
Terminal = Annotated[bool, Option("--tty", "--stdin", "-t", "-it", hidden=True)]
Remove = Annotated[bool, Option("--rm", hidden=True)]
