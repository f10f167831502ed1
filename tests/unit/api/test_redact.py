"""Names of foreign workloads and users never reach somebody who may not see them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.api import redact
from carrel_scheduler.api.principals.identity import ADMIN, USE, Principal, group_of
from carrel_schema.objects import (
    Meta,
    Preemption,
    ReasonInfo,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)

ADA = Principal("ada", "user", frozenset({group_of("vision")}), frozenset({USE}))
ROOT = Principal("root", "user", frozenset(), frozenset({ADMIN}))


def holder(project: str, name: str) -> dict[str, Any]:
    uid, user = f"uid-{name}", f"user-{name}"
    return {"project": project, "uid": uid, "name": name, "user": user, "amount": 1000}


def reason(**data: Any) -> ReasonInfo:
    return ReasonInfo(
        token="WaitsForRoom",
        cls="not-now",
        sentence="Waiting: alpha of user-alpha holds it.",
        help="It starts when alpha ends.",
        data={"sentence_without_names": "Waiting: a member of `speech` holds it.", **data},
    )


def test_who_sees_everything_gets_the_names_and_not_the_twin() -> None:
    found = reason(holders=[holder("speech", "alpha")])
    shown = redact.reason(found, ROOT)
    assert shown is not None
    assert shown.sentence == found.sentence
    assert shown.data == {"holders": [holder("speech", "alpha")]}


def test_holders_of_the_own_project_keep_their_names_beside_foreign_ones() -> None:
    shown = redact.reason(
        reason(holders=[holder("vision", "own"), holder("speech", "alpha")], short=1000), ADA
    )
    assert shown is not None
    assert shown.sentence == "Waiting: a member of `speech` holds it."
    assert shown.help == ""
    own, foreign = shown.data["holders"]
    assert own == holder("vision", "own")
    assert foreign == {"project": "speech", "uid": "", "name": "", "user": "", "amount": 1000}
    assert shown.data["short"] == 1000


def test_without_foreign_names_the_sentence_stays() -> None:
    found = reason(holders=[holder("vision", "alpha")], project="speech")
    shown = redact.reason(found, ADA)
    assert shown is not None
    assert (shown.sentence, shown.help) == (found.sentence, found.help)
    assert "sentence_without_names" not in shown.data


@pytest.mark.parametrize("project", ["speech", "", None])
def test_the_workload_a_place_is_held_for_is_hidden_with_its_project(project: str | None) -> None:
    shown = redact.reason(reason(project=project, workload="alpha", workload_uid="u-1"), ADA)
    assert shown is not None
    assert b"alpha" not in msgspec.json.encode(shown)
    assert b"u-1" not in msgspec.json.encode(shown)


def test_without_a_nameless_twin_nothing_is_told() -> None:
    bare = ReasonInfo(
        token="Preempted", sentence="For alpha.", data={"project": "speech", "workload": "alpha"}
    )
    shown = redact.reason(bare, ADA)
    assert shown is not None
    assert shown.sentence == redact.NAMELESS_SENTENCE


@given(
    st.dictionaries(
        st.text(max_size=12).filter(lambda key: "without_names" not in key),
        st.sampled_from(["SECRET", 5, None, ["SECRET"], {"name": "SECRET"}]),
        max_size=6,
    )
)
def test_data_that_nobody_thought_of_does_not_leak(data: dict[str, Any]) -> None:
    unsafe = {key: value for key, value in data.items() if key not in redact.SAFE_TEXTS}
    found = reason(**{**unsafe, "holders": [holder("speech", "SECRET")]})
    assert b"SECRET" not in msgspec.json.encode(redact.reason(found, ADA))


def test_whom_a_workload_gave_way_to() -> None:
    fact = Preemption(
        at=1.0, rule="reclaim", for_project="speech", for_workload="alpha", for_workload_uid="u-1"
    )
    workload = Workload(
        meta=Meta(name="mine", project="vision"),
        spec=WorkloadSpec(user="ada"),
        status=WorkloadStatus(last_preemption=fact),
    )
    hidden = redact.workload(workload, ADA).status.last_preemption
    assert hidden == msgspec.structs.replace(fact, for_workload="", for_workload_uid="")
    assert redact.workload(workload, ROOT).status.last_preemption == fact
    assert workload.status.last_preemption == fact
