"""A trial as a workload, and the messages of experiments.

A trial is the experiment's own work with one configuration filled in.

A configuration reaches any program, in whichever way suits it:

* ``{name}`` in the command becomes the parameter's value; other braces stay as they are;
* ``CARREL_PARAM_<NAME>`` holds one value, ``CARREL_PARAMETERS`` all of them as JSON;
* ``parameters.json`` lies in the task's folder, unless the experiment brought a file of that name.

Texts are written as they are, all else as in JSON (``0.001``, ``true``, ``null``).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from carrel_scheduler.workloads.controllers.contract import NewPart
from carrel_scheduler.workloads.controllers.experiments.contract import StudyState
from carrel_schema.objects import ReasonInfo, Workload
from carrel_schema.sections import ExperimentSpec, TrialSpec

PARAMETER_FILE: Final = "parameters.json"
LONGEST_NAME: Final = 63


def new_part(owner: Workload, number: int, parameters: Mapping[str, Any]) -> NewPart:
    """The workload of one trial. A crash is not repeated: it is a result of its parameters."""
    spec = owner.spec
    told = json.dumps(parameters)
    return NewPart(
        number=number,
        name=part_name(owner.meta.name, number),
        spec=msgspec.structs.replace(
            spec,
            kind="trial",
            command=filled(spec.command, parameters),
            environment={**spec.environment, **environment(owner, number, parameters)},
            files={PARAMETER_FILE: told, **spec.files},
            trial=TrialSpec(number=number, parameters=dict(parameters)),
            experiment=None,
            restart_policy="never",
            suspend=False,
            delete=False,
            resumes=0,
        ),
        labels=owner.meta.labels,
    )


def part_name(experiment: str, number: int | str) -> str:
    """``sweep-3``, of a worker ``sweep-w0``; a long name is cut so that it stays a name."""
    end = f"-{number}"
    return experiment[: LONGEST_NAME - len(end)].rstrip("-") + end


def filled(command: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """The command with the parameters' values in place of ``{name}``."""
    if not parameters:
        return list(command)
    names = "|".join(re.escape(name) for name in parameters)
    places = re.compile(rf"\{{({names})\}}")
    return [places.sub(lambda place: text(parameters[place[1]]), word) for word in command]


def environment(owner: Workload, number: int, parameters: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables and files that give a trial's parameters to its program."""
    own = {f"CARREL_PARAM_{_variable(name)}": text(value) for name, value in parameters.items()}
    experiment = owner.spec.experiment
    return own | {
        "CARREL_EXPERIMENT": owner.meta.name,
        "CARREL_TRIAL": str(number),
        "CARREL_METRIC": "" if experiment is None else experiment.metric,
        "CARREL_PARAMETERS": json.dumps(parameters),
    }


def text(value: Any) -> str:
    """A value as text for a command line."""
    return value if isinstance(value, str) else json.dumps(value)


def _variable(name: str) -> str:
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())


DELETED: Final = "Its workload was deleted."
GIVEN_UP: Final = "Stopped: too many other trials of its experiment have failed."
LONGEST_ERROR: Final = 4000
LINES: Final = 30


def error(why: str, log: str) -> str:
    """The error of a trial: the sentence, and the end of its log, where a traceback is."""
    kept = log.strip()[-LONGEST_ERROR:]
    return "\n".join(text for text in (why, kept) if text)


def too_many_failed(spec: ExperimentSpec, standing: StudyState) -> ReasonInfo:
    """The reason of an experiment that ends because too many trials failed."""
    last = standing.last_error.rstrip().rpartition("\n")[2]
    return ReasonInfo(
        token="TooManyFailedTrials",  # noqa: S106 - a reason's name
        cls="failed",
        sentence=(
            f"{standing.failed} trials have failed, more than the {spec.max_failed_trials} that "
            f"it allows. The last one said: {last}"
        ),
        help="Read the failed trials' errors; allow more with `max_failed_trials`.",
        data={"failed": standing.failed, "max_failed_trials": spec.max_failed_trials},
    )


def items_failed(standing: StudyState) -> ReasonInfo:
    """The reason of a map of which some calls failed."""
    last = standing.last_error.rstrip().rpartition("\n")[2]
    return ReasonInfo(
        token="ItemsFailed",  # noqa: S106 - a reason's name
        cls="failed",
        sentence=f"{standing.failed} of its {standing.made} items failed. The last one: {last}",
        help="Read the items' errors with `carrel trials`.",
        data={"failed": standing.failed, "made": standing.made},
    )


def none_completed(standing: StudyState) -> ReasonInfo:
    """The reason of an experiment whose trials all ended without a value."""
    return ReasonInfo(
        token="NoTrialCompleted",  # noqa: S106 - a reason's name
        cls="failed",
        sentence=f"None of its {standing.made} trials came to an end with a value.",
        help="Read the trials' errors; a trial needs a reported value to count.",
        data={"made": standing.made},
    )
