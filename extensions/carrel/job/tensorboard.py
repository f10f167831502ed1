"""``python -m carrel.job.tensorboard``: the program of a TensorBoard over event files of jobs.

The real TensorBoard takes this process's place. It reads the files itself: its faster reader would
answer on a port without asking who reads.
"""

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from carrel.job.task import warn

ORDER: Final = Path(".carrel/tensorboard.json")
RELOAD_SECONDS: Final = 5
NOT_STARTED: Final = 2
PROGRAM: Final = (
    "from tensorboard import default, main; default.get_dynamic_plugins = list; main.run_main()"
)
"""TensorBoard without installed plugins: the projector reads whatever an event file names."""


class NothingToShow(Exception):  # noqa: N818 - an outcome to report
    """No TensorBoard can be started; the message says why."""


def prepare(env: Mapping[str, str]) -> list[str]:
    """Lay out the jobs' event files by name; returns what is to be run.

    Raises ``NothingToShow``, or ``OSError`` when the task's folder cannot be written.
    """
    task_dir = Path(env.get("CARREL_TASK_DIR") or ".").absolute()
    try:
        order = json.loads((task_dir / ORDER).read_text(encoding="utf-8"))
        jobs = dict(zip(order["jobs"], order["events"], strict=True))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NothingToShow(
            f"{task_dir / ORDER} does not say what to show; start one with "
            "`carrel tensorboard JOB`."
        ) from error
    if not env.get("PORT") or not env.get("CARREL_EVENTS_DIR"):
        raise NothingToShow("PORT and CARREL_EVENTS_DIR are not set: this is no TensorBoard's job.")
    runs, events = task_dir / "runs", Path(env["CARREL_EVENTS_DIR"]).parent
    runs.mkdir(exist_ok=True)
    for name, place in jobs.items():
        (runs / name).unlink(missing_ok=True)
        (runs / name).symlink_to(events / place)
    return [
        *(sys.executable, "-I", "-c", PROGRAM, "--logdir", str(runs)),
        *("--host", env.get("CARREL_HOST") or "127.0.0.1", "--port", env["PORT"]),
        *("--load_fast", "false", "--reload_interval", str(RELOAD_SECONDS)),
        *("--window_title", f"TensorBoard: {', '.join(jobs)}"),
        *(("--path_prefix", env["CARREL_PREFIX"]) if env.get("CARREL_PREFIX") else ()),
    ]


def main() -> int:
    """Run the TensorBoard; returns an exit code only when that cannot be."""
    if find_spec("tensorboard") is None:
        warn("This Python lacks tensorboard: `pip install jupyter-carrel[jobs]`.")
        return NOT_STARTED
    try:
        program = prepare(os.environ)
        os.execv(program[0], program)  # noqa: S606 - a program of ours, without a shell
    except NothingToShow as problem:
        warn(str(problem))
    except OSError as error:
        warn(f"{error.filename} cannot be used: {error.strerror}.")
    return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
