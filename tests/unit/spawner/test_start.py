"""What a state means for somebody who waits, and the words of a refusal."""

from typing import Any

import pytest

from carrel.errors import ApiError, Unreachable
from carrel.models import Reason, Workload, WorkloadStatus
from carrel_schema.objects import Phase
from carrel_spawner import refusal
from carrel_spawner.options import WorkspaceChoice
from carrel_spawner.rendering import readable_by
from carrel_spawner.start import StartStage, start_status

CHOICE = WorkspaceChoice("vision", 1, 1.0, 2.0)


def workload(
    phase: Phase = "pending", token: str = "", cls: str = "not-now", **data: Any
) -> Workload:
    reason = Reason(token=token, cls=cls, sentence=f"It is {token}.", help="Wait.", data=data)
    status = WorkloadStatus(phase=phase, reason=reason if token else None)
    return Workload(name="workspace-ada", project="vision", status=status)


@pytest.mark.parametrize(
    ("one", "outcome", "because"),
    [
        (workload(), StartStage.WAIT, ""),
        (workload("starting"), StartStage.PLACED, ""),
        (workload("running"), StartStage.UP, ""),
        (workload(token="Starting", cls="starting"), StartStage.WAIT, ""),
        (workload(token="WaitsForRoom", nominated=True), StartStage.WAIT, ""),
        (workload(token="WaitsForRoom", nominated=False), StartStage.REFUSED, "capacity"),
        (workload(token="NoNodeFits"), StartStage.REFUSED, "capacity"),
        (workload(token="HeldFor"), StartStage.REFUSED, "capacity"),
        (workload(token="QueuedBehind"), StartStage.REFUSED, "capacity"),
        (workload(token="QuotaUsed"), StartStage.REFUSED, "quota"),
        (workload(token="NonPreemptibleBeyondQuota"), StartStage.REFUSED, "quota"),
        (workload(token="OverLimit"), StartStage.REFUSED, "quota"),
        (workload(token="NeverFits", cls="never"), StartStage.REFUSED, "never"),
        (workload("failed", "Failed"), StartStage.ENDED, "exited"),
        (workload("stopped", "Suspended"), StartStage.ENDED, "stopped"),
        (workload("stopping", "Suspended"), StartStage.ENDED, "stopped"),
        (workload("succeeded"), StartStage.ENDED, "exited"),
    ],
)
def test_judgement(one: Workload, outcome: StartStage, because: str) -> None:
    status = start_status(one)
    assert (status.stage, status.because) == (outcome, because)
    assert status.sentence
    if one.status.reason and outcome is StartStage.REFUSED:
        assert status.sentence == one.status.reason.sentence


HOLDERS = [
    {"project": "vision", "name": "train-7", "user": "linus", "amount": 1000, "since": 400.0},
    {"project": "speech", "name": "secret", "user": "grace", "amount": 2000, "since": 940.0,
     "borrowed": True},
]  # fmt: skip


def no_room(one: Workload, projects: list[str]) -> refusal.WorkspaceRefused:
    one = readable_by(one, projects)
    return refusal.no_room(
        start_status(one), one, choice=CHOICE, projects=projects, queue_url="/q", now=1000.0
    )


def test_foreign_names_stay_secret() -> None:
    one = workload(
        token="QuotaUsed", holders=HOLDERS, resource="gpu", sentence_without_names="Full."
    )
    said = no_room(one, ["vision"])
    html = said.jupyterhub_html_message or ""
    assert "linus of vision with train-7" in html
    assert "a member of speech" in html
    assert "2 GPUs (borrowed)" in html
    assert "for 10 min" in html
    for name in ("grace", "secret"):
        assert name not in html + said.jupyterhub_message
    assert said.jupyterhub_message == "Full. Wait."
    assert (said.reason, said.status_code) == ("quota", 409)


def test_a_promise_at_the_cost_of_others_names_nobody() -> None:
    one = workload(
        token="WaitsForRoom",
        nominated=True,
        project="speech",
        sentence_without_names="Taking back.",
    )
    assert start_status(readable_by(one, ["vision"])).sentence == "Taking back."
    assert start_status(readable_by(one, ["vision", "speech"])).sentence == "It is WaitsForRoom."


def test_own_names_are_told() -> None:
    one = workload(token="QuotaUsed", holders=HOLDERS, sentence_without_names="Full.")
    said = no_room(one, ["vision", "speech"])
    assert said.jupyterhub_message == "It is QuotaUsed. Wait."
    assert "grace of speech with secret" in (said.jupyterhub_html_message or "")


def test_the_button_carries_the_choice_and_never_leads_nowhere() -> None:
    html = no_room(workload(token="NoNodeFits"), ["vision"]).jupyterhub_html_message or ""
    assert 'action="/q"' in html
    assert 'name="gpus" value="1"' in html
    never = no_room(workload(token="NeverFits", cls="never"), ["vision"])
    assert "Put me in the queue" not in (never.jupyterhub_html_message or "")


def test_what_others_wrote_is_escaped() -> None:
    holder = {"project": "vision", "name": "<script>", "user": "u", "amount": 1, "since": 1.0}
    html = no_room(workload(token="QuotaUsed", holders=[holder]), ["vision"])
    assert "<script>" not in (html.jupyterhub_html_message or "")


def test_what_can_never_be_is_said_with_the_remedy() -> None:
    error = ApiError(
        422, "quota_never_met", "No", "It asks for 3 GPUs of 2.", [{"expected": "Ask for less."}]
    )
    said = refusal.unavailable(error)
    assert said.jupyterhub_message == "It asks for 3 GPUs of 2. Ask for less."
    assert (said.reason, said.status_code) == ("quota", 422)


def test_a_scheduler_that_is_away_is_said() -> None:
    said = refusal.unavailable(Unreachable("No answer from x: refused."))
    assert said.status_code == 503
    assert "No answer from x" in said.jupyterhub_message
