"""The messages of reasons of work whose tasks failed, were lost or could not begin.

Like those of ``reasons``: what happened, then what helps.
"""

from collections.abc import Sequence
from typing import Final

from carrel_scheduler.workloads.state.reasons import START_AGAIN, duration
from carrel_schema.objects import Failure, LossCause, ReasonInfo

STALLED: Final = "Stalled"
GANG_LOST: Final = "GangLost"


def workspace_ended(exit_code: int | None, signal: int, message: str) -> ReasonInfo:
    """A workspace's server ended by itself."""
    return ReasonInfo(
        token="WorkspaceEnded",
        cls="stopped",
        sentence=f"The workspace ended: {how_it_ended(exit_code, signal, message)}.",
        help="Start it again.",
        data={"exit_code": exit_code, "signal": signal},
    )


def how_it_ended(exit_code: int | None, signal: int, message: str, cause: str = "") -> str:
    """The end of a process in a few words; ``cause``: what it printed at its end."""
    if message:
        return message.rstrip(".")
    if exit_code is None and not signal:
        return "nobody saw how"
    if signal:  # somebody else's doing, of which its output knows nothing
        return f"signal {signal}"
    code = f"exit code {exit_code}"
    return f"{cause.rstrip('.')} ({code})" if cause else code


def failed(how: str, failures: int, limit: int, policy: str, failure: Failure) -> ReasonInfo:
    """The last attempt failed and no other follows."""
    times = "once" if failures == 1 else f"{failures} times"
    tries = f"It failed {times}; its back-off limit is {limit}."
    if policy == "never":
        tries = "It is not run again (restart policy `never`)."
    elif failure.again:
        tries = "It ended in the same way twice within seconds, so it is not run again."
    elif failure.cls == "application" and not limit:
        tries = "It is not run again: it would fail in the same way."
    return ReasonInfo(
        token="Failed",
        cls="failed",
        sentence=f"Failed: {how}. {tries}",
        help="Read its log for the cause.",
        data={"failures": failures, "backoff_limit": limit, "class": failure.cls},
    )


def member_ended(index: int, how: str) -> str:
    """The end of a member of a gang in words, with its index."""
    return f"worker {index}: {how}"


def gang_lost(
    how: str,
    *,
    lost: bool,
    loss: LossCause = "",
    stalled: bool = False,
    alone: bool = False,
    index: int | None = None,
    devices: Sequence[str] = (),
) -> ReasonInfo:
    """A gang, or a task ``alone``, cannot go on; what of it still runs is being ended."""
    return ReasonInfo(
        token=GANG_LOST,
        sentence=f"It is being stopped ({how})."
        if alone
        else f"The workers are being stopped together ({how}).",
        help="It starts again from its last checkpoint."
        if alone
        else "They start again together from the last checkpoint.",
        data={
            "how": how,
            "lost": lost,
            "loss": loss,
            "stalled": stalled,
            "index": index,
            "devices": list(devices),
        },
    )


def stood_still(seconds: float) -> str:
    """The duration of stalled work, as a phrase."""
    return f"no GPU work and no report for {duration(seconds)}"


def stalled(seconds: float) -> ReasonInfo:
    """The reason of running work that is stalled."""
    return ReasonInfo(
        token=STALLED,
        sentence=f"It stands still: {stood_still(seconds)}.",
        help="Look at its log, and restart it if its processes wait for each other; with "
        "`--restart-when-stalled` that happens by itself.",
        data={"seconds": seconds},
    )


def gpus_lost(indices: Sequence[int], node: str) -> str:
    """The reason of work whose GPUs were lost."""
    which = ", ".join(map(str, indices))
    return (
        f"GPU {which} of {node} was lost"
        if len(indices) == 1
        else f"GPUs {which} of {node} were lost"
    )


def gpu_cordoned(index: int, node: str, why: str) -> str:
    """The reason of work whose GPU was cordoned."""
    return f"GPU {index} of {node} was taken out of service ({why})"


def stopped_by_loss(how: str) -> ReasonInfo:
    """Work that is not started again by itself was on a GPU that went away."""
    return ReasonInfo(token="Lost", cls="stopped", sentence=f"Stopped: {how}.", help=START_AGAIN)


def never_joined(indices: Sequence[int], port: int, seconds: float) -> str:
    """The reason of a gang some of whose members did not join the rendezvous."""
    who = ", ".join(map(str, indices))
    who, met = (f"worker {who}", "has") if len(indices) == 1 else (f"workers {who}", "have")
    return f"{who} {met} not met the others at port {port} within {duration(seconds)}"


def back_off(
    how: str, failures: int, limit: int, seconds: float, *, stalled: bool = False
) -> ReasonInfo:
    """An attempt failed and another follows after a pause."""
    began = "It stood still" if stalled else "Crashed"
    return ReasonInfo(
        token="BackOff",
        cls="held-back",
        sentence=(
            f"{began}: {how}. This was attempt {failures} of {limit + 1}; "
            f"the next one begins after {duration(seconds)}."
        ),
        help="Read its log for the cause.",
        data={"failures": failures, "backoff_limit": limit, "seconds": seconds},
    )


def not_begun(how: str) -> ReasonInfo:
    """The reason where no task could start at its place, without a failure; it is placed again."""
    return ReasonInfo(
        token="NotBegun",
        cls="held-back",
        sentence=f"It could not begin there ({how}); it waits for another place.",
    )


def not_begun_yet(what: str) -> ReasonInfo:
    """The message of the engine about what the start of a task waits for."""
    return ReasonInfo(token="Starting", cls="starting", sentence=f"Starting: {what}.")


def lost(how: str, pause: float) -> ReasonInfo:
    """The task vanished without anybody seeing how; it runs again, after a pause if need be."""
    when = f" after {duration(pause)}" if pause else ""
    return ReasonInfo(
        token="Lost",
        cls="held-back",
        sentence=f"Its process was lost ({how}); it starts again{when} from its last checkpoint.",
        data={"seconds": pause},
    )


def lost_too_often(how: str, losses: int) -> ReasonInfo:
    """The reason of work that was lost so often in a row that it fails."""
    return ReasonInfo(
        token="LostTooOften",
        cls="failed",
        sentence=f"Failed: its process was lost ({how})."
        if losses == 1
        else f"Failed: its process was lost {losses} times in a row, lastly because: {how}.",
        help="An administrator should look at the nodes and GPUs that it ran on.",
        data={"losses": losses},
    )
