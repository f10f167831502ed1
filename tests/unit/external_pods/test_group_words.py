"""What the status of groups says."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.external_pods import group_words
from carrel_scheduler.engines.kubernetes.external_pods.members import Member, PodRef
from carrel_scheduler.engines.kubernetes.external_pods.teams import GuestPlace, Slot, Team
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping, Role
from carrel_scheduler.engines.kubernetes.pods.types import NodeGroup, PodGroup
from unit.external_pods.world import node, pod

NOW = 1_000_000.0


def group(least: int = 2, **status: Any) -> PodGroup:
    told = {
        "metadata": {"name": "pair", "uid": "g", "generation": 3},
        "spec": {"minMember": least},
        "status": status,
    }
    return msgspec.convert(told, PodGroup)


def team(pods: int, placed: int = 0, waits: str = "") -> Team:
    grouping = Grouping("g", "pair", "a", roles=(Role("", 2),))
    made = Team("g-gang", grouping, loose=False)
    for number in range(pods):
        one = Member(PodRef("a", f"p{number}", f"u{number}"), grouping, pod(f"p{number}"))
        slot = Slot("", member=one, waits=waits)
        slot.place = GuestPlace("n0", (number,)) if number < placed else None
        made.slots.append(slot)
    return made


@pytest.mark.parametrize(
    ("teams", "phase", "reason"),
    [
        ([], "pending", "It starts with 2 pods at once, and none of its pods is there."),
        ([team(1)], "pending", "It starts with 2 pods at once, and only 1 of them there."),
        ([team(2)], "pending", "It is in the queue."),
        ([team(2, waits="It waits: no claim.")], "pending", "It waits: no claim."),
        ([team(3, placed=2)], "placed", ""),
    ],
)
def test_a_group_of_pods_says_what_became_of_it(teams: list[Team], phase: str, reason: str) -> None:
    told = group_words.of_pods(group(), teams, (), NOW)
    assert (told["phase"], told["reason"]) == (phase, reason)
    assert told["observedGeneration"] == 3
    (condition,) = told["conditions"]
    assert (condition["type"], condition["status"]) == ("Scheduled", str(phase == "placed"))


def test_the_queues_reason_and_a_missing_project_are_told() -> None:
    waiting = team(2)
    waiting.why = ("QuotaUsed", "The quota is used.")
    assert group_words.of_pods(group(), [waiting], (), NOW)["reason"] == "The quota is used."
    (one, _) = (slot.member for slot in team(2).slots)
    assert one is not None
    told = group_words.of_pods(group(), [], [one], NOW)
    assert (told["pods"], "no project `a`" in told["reason"]) == (1, True)


def test_what_has_ended_stays_so_and_keeps_its_times() -> None:
    first = group_words.of_pods(group(), [team(2, placed=2)], (), NOW)
    again = group_words.of_pods(group(**first), [team(2, placed=2)], (), NOW + 60)
    assert again == first
    ended = group_words.of_pods(group(**first), [], (), NOW + 90)
    assert (ended["phase"], ended["placed"]) == ("ended", 0)
    assert [one["type"] for one in ended["conditions"]] == ["Scheduled", "Complete"]
    assert group_words.of_pods(group(**ended), [], (), NOW + 99) == ended


def test_a_group_of_nodes_counts_them() -> None:
    of_nodes = msgspec.convert({"metadata": {"name": "a100", "generation": 1}}, NodeGroup)
    told = group_words.of_nodes(of_nodes, [node("n0", 4), node("n1", 8, ready=False)], NOW)
    assert (told["nodes"], told["available"], told["gpus"]) == (2, 1, 12)
    assert told["conditions"][0]["message"] == "2 nodes, of which 1 may be given new work."
    empty = group_words.of_nodes(of_nodes, [], NOW)["conditions"][0]
    assert (empty["status"], empty["reason"]) == ("False", "NoNodes")
