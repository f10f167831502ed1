"""Options of notebooks that run as jobs, of work begun by the clock, and of TensorBoard."""

from typing import Final

from carrel.options import values
from carrel.options.option import Option, Surface

GROUP, CLOCK, TENSORBOARD = "Notebooks", "By the clock", "TensorBoard"
NOTEBOOK: Final = frozenset({"notebook", "schedule"})
SCHEDULE: Final = frozenset({"schedule"})
CURVES: Final = frozenset({"tensorboard"})

NOTEBOOKS: Final = (
    Option("notebook", "The notebook to run as a job.", GROUP, values.text("PATH"),
           ("notebook.path",), NOTEBOOK, surfaces=Surface.CLI | Surface.FORM),
    Option("output", "Where the executed notebook is written, cell by cell.", GROUP,
           values.text("PATH"), ("notebook.output",), NOTEBOOK, default=""),
    Option("param", "Of a notebook: a variable as K=VALUE, set behind the cell tagged "
           "`parameters`.", GROUP, values.PARAMETER, ("notebook.parameters",), NOTEBOOK,
           many="mapping"),
    Option("kernel", "The kernel to run it with, if not its own.", GROUP, values.text("NAME"),
           ("notebook.kernel",), NOTEBOOK, default=""),
    Option("cell-timeout", "The longest that one cell may take.", GROUP, values.span(1),
           ("notebook.cell_timeout_seconds",), NOTEBOOK),
)  # fmt: skip

SCHEDULES: Final = (
    Option("schedule", "Run the notebook or command by the clock: five cron fields.", CLOCK,
           values.CRON, ("schedule.cron",), SCHEDULE),
    Option("runs", "What is run by the clock.", CLOCK, values.choice("notebook", "training"),
           ("schedule.runs",), SCHEDULE, default="notebook"),
    Option("time-zone", "Of the schedule: Europe/Berlin.", CLOCK, values.text("ZONE"),
           ("schedule.time_zone",), SCHEDULE, default="UTC"),
    Option("overlap", "When the run before still goes on: leave this one out, run both, or end "
           "the older.", CLOCK, values.choice("skip", "allow", "replace"), ("schedule.overlap",),
           SCHEDULE, default="skip"),
    Option("keep", "How many ended runs stay listed.", CLOCK, values.whole(1, 1000),
           ("schedule.keep",), SCHEDULE, default=5),
    Option("starting-deadline", "A run missed by more than this is left out.", CLOCK,
           values.span(1), ("schedule.starting_deadline_seconds",), SCHEDULE, default=3600.0),
)  # fmt: skip

BOARDS: Final = (
    Option("tensorboard", "A TensorBoard over these jobs.", TENSORBOARD, values.JOBS,
           ("tensorboard.jobs",), CURVES, surfaces=Surface.CLI | Surface.FORM),
    Option("tensorboard-idle", "Stop it when nobody has looked for so long.", TENSORBOARD,
           values.span(1), ("tensorboard.idle_seconds",), CURVES, default=1800.0,
           surfaces=Surface.CLI | Surface.FORM),
)  # fmt: skip
