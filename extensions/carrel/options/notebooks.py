"""Options of notebooks that run as jobs, of work begun by the clock, and of TensorBoard."""

from typing import Final

from carrel.options import values
from carrel.options.option import Option, Surface, of_field

GROUP, CLOCK, TENSORBOARD = "Notebooks", "By the clock", "TensorBoard"
NOTEBOOK: Final = frozenset({"notebook", "schedule"})
SCHEDULE: Final = frozenset({"schedule"})
CURVES: Final = frozenset({"tensorboard"})

NOTEBOOKS: Final = (
    of_field("notebook", GROUP, "notebook.path", text="The notebook to run as a job.", shown="PATH",
             kinds=NOTEBOOK, surfaces=Surface.CLI | Surface.FORM),
    of_field("output", GROUP, "notebook.output", shown="PATH", kinds=NOTEBOOK),
    Option("param", "Of a notebook: a variable as K=VALUE, set behind the cell tagged "
           "`parameters`.", GROUP, values.PARAMETER, ("notebook.parameters",), NOTEBOOK,
           many="mapping"),
    of_field("kernel", GROUP, "notebook.kernel", kinds=NOTEBOOK),
    of_field("cell-timeout", GROUP, "notebook.cell_timeout_seconds", kinds=NOTEBOOK),
)  # fmt: skip

SCHEDULES: Final = (
    of_field("schedule", CLOCK, "schedule.cron", value=values.CRON, kinds=SCHEDULE,
             text="Run the notebook or command by the clock: five cron fields."),
    of_field("runs", CLOCK, "schedule.runs", text="What is run by the clock.", kinds=SCHEDULE),
    of_field("time-zone", CLOCK, "schedule.time_zone", text="Of the schedule: Europe/Berlin.",
             shown="ZONE", kinds=SCHEDULE),
    of_field("overlap", CLOCK, "schedule.overlap", kinds=SCHEDULE),
    of_field("keep", CLOCK, "schedule.keep", kinds=SCHEDULE),
    of_field("starting-deadline", CLOCK, "schedule.starting_deadline_seconds", kinds=SCHEDULE),
)  # fmt: skip

BOARDS: Final = (
    of_field("tensorboard", TENSORBOARD, "tensorboard.jobs", text="A TensorBoard over these jobs.",
             value=values.JOBS, kinds=CURVES, surfaces=Surface.CLI | Surface.FORM),
    of_field("tensorboard-idle", TENSORBOARD, "tensorboard.idle_seconds", kinds=CURVES,
             surfaces=Surface.CLI | Surface.FORM),
)  # fmt: skip
