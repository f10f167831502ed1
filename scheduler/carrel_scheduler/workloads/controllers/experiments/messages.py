"""What experiments say of themselves and of their trials."""

from typing import Final

from carrel_scheduler.workloads.controllers.experiments.contract import Standing
from carrel_schema.objects import ReasonInfo
from carrel_schema.sections import ExperimentSpec

DELETED: Final = "Its workload was deleted."
GIVEN_UP: Final = "Stopped: too many other trials of its experiment have failed."
LONGEST_ERROR: Final = 4000
LINES: Final = 30


def error(why: str, log: str) -> str:
    """Why a trial failed: the sentence, and the end of its log, where a traceback stands."""
    kept = log.strip()[-LONGEST_ERROR:]
    return "\n".join(text for text in (why, kept) if text)


def too_many_failed(spec: ExperimentSpec, standing: Standing) -> ReasonInfo:
    """The experiment ends because of its trials."""
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


def none_completed(standing: Standing) -> ReasonInfo:
    """It made all its trials, and none has a value."""
    return ReasonInfo(
        token="NoTrialCompleted",  # noqa: S106 - a reason's name
        cls="failed",
        sentence=f"None of its {standing.made} trials came to an end with a value.",
        help="Read the trials' errors; a trial needs a reported value to count.",
        data={"made": standing.made},
    )
