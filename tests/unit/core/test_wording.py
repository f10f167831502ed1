"""The texts that people read, word for word."""

import json

import pytest

from carrel_scheduler.core.messages.amounts import amount
from carrel_scheduler.core.messages.render import data, help_text, sentence
from carrel_scheduler.core.reasons import Holder, Reason, ReasonClass, Token

NEVER, NOT_NOW = ReasonClass.NEVER, ReasonClass.NOT_NOW
HELD_BACK, EVICTED = ReasonClass.HELD_BACK, ReasonClass.EVICTED


def held(name: str, project: str, gpus: float, *, borrowed: bool = False) -> Holder:
    return Holder(project, f"uid-{name}", name, f"{name}-user", int(gpus * 1000), borrowed, 5.0)


TRAIN_7 = held("train-7", "speech", 1, borrowed=True)
TRAIN_8 = held("train-8", "speech", 1, borrowed=True)
OWN = held("mine", "vision", 2)
DESK = Holder("speech", "uid-desk", "desk", "desk-user", 98304, borrowed=False, since=5.0)

GOLDEN = [
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "gpu", 1000, 1000, 4000, holders=(TRAIN_7, TRAIN_8)),
        "Waiting for 1 GPU: all 4 are in use; `speech` holds 2 of them beyond its quota.",
        "It starts by itself as soon as enough is free.",
    ),
    (
        Reason(
            NOT_NOW,
            Token.WAITS_FOR_ROOM,
            "gpu",
            1000,
            1000,
            3000,
            holders=(TRAIN_7, held("talk", "nlp", 1, borrowed=True)),
        ),
        (
            "Waiting for 1 GPU: all 3 are in use; `speech` holds 1 and `nlp` holds 1 of them "
            "beyond their quotas."
        ),
        "It starts by itself as soon as enough is free.",
    ),
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "gpu", 1000, 1000, 1000, holders=(TRAIN_7,)),
        "Waiting for 1 GPU: the only one is in use; `speech` borrowed it.",
        "It starts by itself as soon as enough is free.",
    ),
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "gpu", 2000, 1000, 4000, holders=(OWN,)),
        "Waiting for 2 GPUs: 1 of 4 is free; `mine` holds 2.",
        "It starts by itself as soon as enough is free.",
    ),
    (
        Reason(
            NOT_NOW,
            Token.WAITS_FOR_ROOM,
            "memory",
            65536,
            61440,
            131072,
            holders=(DESK,),
            kept=True,
        ),
        (
            "Waiting for 64 GiB of memory: 4 GiB of 128 GiB is free; `desk` of `speech` holds "
            "96 GiB, and too little of it can be taken back."
        ),
        "It starts when work that holds it ends; asking for less of it may help.",
    ),
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "memory", 65536, 61440, 131072),
        "Waiting for 64 GiB of memory: 4 GiB of 128 GiB is free.",
        "It starts by itself as soon as enough is free.",
    ),
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "gpu", 1000, workload_uid="me", holders=(TRAIN_7,)),
        "Taking back 1 GPU that `speech` borrowed for `train-7`.",
        "Preempted work saves a checkpoint first; this starts by itself then.",
    ),
    (
        Reason(
            NOT_NOW,
            Token.WAITS_FOR_ROOM,
            "gpu",
            3000,
            workload_uid="me",
            holders=(TRAIN_7, TRAIN_8, held("talk", "nlp", 1, borrowed=True)),
        ),
        (
            "Taking back 3 GPUs that `speech` borrowed for `train-7` and `train-8` "
            "and `nlp` borrowed for `talk`."
        ),
        "Preempted work saves a checkpoint first; this starts by itself then.",
    ),
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "gpu", 2000, workload_uid="me", holders=(OWN,)),
        "Waiting for 2 GPUs that `mine` gives back.",
        "Its own project's work of lower priority saves its state and stops first.",
    ),
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "gpu", 2000, workload_uid="me"),
        "Its place is held; it starts as soon as the room is free.",
        "Preempted work saves a checkpoint first; this starts by itself then.",
    ),
    (
        Reason(NOT_NOW, Token.QUOTA_USED, "gpu", 1000, 1000, 2000, ahead=1),
        (
            "Waiting for 1 GPU: that is more than `vision` has left of its guaranteed 2 GPUs, "
            "and nothing is idle to borrow."
        ),
        (
            "It starts when work of `vision` ends or somebody leaves enough idle. "
            "1 workload of `vision` is served before it."
        ),
    ),
    (
        Reason(NOT_NOW, Token.QUOTA_USED, "cpu", 8000, 6000, -1, ahead=1200),
        (
            "Waiting for 8 CPU cores: that is more than `vision` has left of its guarantee, "
            "and only 2 CPU cores are idle to borrow."
        ),
        (
            "It starts when work of `vision` ends or somebody leaves enough idle. "
            "1,200 workloads of `vision` are served before it."
        ),
    ),
    (
        Reason(HELD_BACK, Token.OVER_LIMIT, "gpu", 2000, 1000, 4000),
        "With it `vision` would hold 5 GPUs, and its limit is 4 GPUs.",
        "It starts when work of `vision` ends, or when an admin raises the limit.",
    ),
    (
        Reason(NEVER, Token.OVER_LIMIT, "gpu", 5000, 1000, 4000),
        "It asks for 5 GPUs, and the limit of `vision` is 4 GPUs.",
        "Ask for less, or ask an admin to raise the limit of `vision`.",
    ),
    (
        Reason(HELD_BACK, Token.NON_PREEMPTIBLE_BEYOND_QUOTA, "gpu", 1000, 1000, 2000),
        (
            "It may not be interrupted, so it cannot borrow: with it such work of `vision` "
            "would hold 3 GPUs, and 2 GPUs are guaranteed."
        ),
        "Make it preemptible so that it may borrow, or stop such work of `vision`.",
    ),
    (
        Reason(NEVER, Token.NON_PREEMPTIBLE_BEYOND_QUOTA, "gpu", 2000, 1000, 1000),
        (
            "It may not be interrupted, so it cannot borrow: it asks for 2 GPUs, "
            "and `vision` is guaranteed 1 GPU."
        ),
        "Ask for less, make it preemptible so that it may borrow, or ask for more quota.",
    ),
    (
        Reason(HELD_BACK, Token.OVER_QUOTA_OFF, "gpu", 1000, 1000, 2000),
        "With it `vision` would hold 3 GPUs, and may not borrow beyond its 2 GPUs.",
        "It starts when work of `vision` ends, or when an admin lets the project borrow.",
    ),
    (
        Reason(NEVER, Token.OVER_QUOTA_OFF, "gpu", 3000, 1000, 2000),
        "It asks for 3 GPUs, and `vision` may not borrow beyond its 2 GPUs.",
        "Ask for less, or ask an admin to let `vision` borrow.",
    ),
    (
        Reason(NOT_NOW, Token.NO_NODE_FITS, "gpu", 4000, 2000, 2000),
        "No node has 4 GPUs free at once; the most on one node is 2 GPUs.",
        "Asking for 2 GPUs or less on a node would fit.",
    ),
    (
        Reason(NOT_NOW, Token.NO_NODE_FITS, "gpu", 2000, 0, 3000),
        "Free room is scattered: no set of nodes has enough for all its tasks at once.",
        "It starts when running work ends and leaves enough in one piece.",
    ),
    (
        Reason(NEVER, Token.NEVER_FITS, "gpu", 8000, 4000, 4000),
        "It asks for 8 GPUs, and the nodes it may use could never give it more than 4 GPUs.",
        "Ask for 4 GPUs or less.",
    ),
    (
        Reason(NOT_NOW, Token.HELD_FOR, "gpu", 1000, project="speech", workload="ada-workspace"),
        "The free room is held for `ada-workspace` of `speech`, served first.",
        "It starts when other room becomes free.",
    ),
    (
        Reason(NOT_NOW, Token.QUEUED_BEHIND, "gpu", 1000, ahead=2),
        "Waiting for 1 GPU: the free room went to work that is served before it.",
        (
            "It is tried again as soon as anything changes. "
            "2 workloads of `vision` are served before it."
        ),
    ),
    (
        Reason(ReasonClass.STARTING, Token.STARTING, nodes=("node-1", "node-2")),
        "Starting on `node-1` and `node-2`.",
        "Nothing is in the way.",
    ),
    (
        Reason(EVICTED, Token.RECLAIMED, bound=2000, project="speech", workload="ada-workspace"),
        "Preempted by `speech`, which reclaimed its guaranteed quota for `ada-workspace`.",
        "It goes on from its last checkpoint as soon as there is room again.",
    ),
    (
        Reason(EVICTED, Token.RECLAIMED, project="speech", workload="train-9"),
        "Preempted by `speech`, which reclaimed its fair share for `train-9`.",
        "It goes on from its last checkpoint as soon as there is room again.",
    ),
    (
        Reason(EVICTED, Token.PREEMPTED, project="vision", workload="ada-workspace"),
        "Preempted by `ada-workspace`, which has a higher priority in `vision`.",
        "It goes on from its last checkpoint as soon as there is room again.",
    ),
    (
        Reason(EVICTED, Token.CONSOLIDATED, project="speech", workload="train-9"),
        "Moves to another place so that `train-9` of `speech` fits.",
        "Its new place is held; it goes on there from its last checkpoint.",
    ),
    (
        Reason(EVICTED, Token.CONSOLIDATED),
        "Moves to another place so that larger work fits.",
        "Its new place is held; it goes on there from its last checkpoint.",
    ),
    (
        Reason(EVICTED, Token.GANG_INCOMPLETE),
        "Fewer of its tasks were left than it can run with, and no others came in time.",
        "It goes on from its last checkpoint as soon as there is room again.",
    ),
    (
        Reason(EVICTED, Token.NODE_DRAINED, nodes=("n1",)),
        "`n1` is being emptied.",
        "It goes on from its last checkpoint as soon as there is room again.",
    ),
    (
        Reason(EVICTED, Token.NODE_DRAINED),
        "Its node is being emptied.",
        "It goes on from its last checkpoint as soon as there is room again.",
    ),
    (
        Reason(EVICTED, Token.IMPROVED, nodes=("n1",)),
        "Moves to GPUs of a type that it prefers.",
        "Its new place is held; it goes on there from its last checkpoint.",
    ),
    (
        Reason(NEVER, Token.NO_ELIGIBLE_NODE, detail="`gpu` `h100`"),
        "No node satisfies what it asks of nodes: `gpu` `h100`.",
        "Ask less of the nodes, or ask an admin for a node like that.",
    ),
    (
        Reason(NOT_NOW, Token.NODES_CLOSED, nodes=("n1", "n2")),
        "`n1` and `n2` take no new work.",
        "It starts when they are back in service; asking less of nodes may help.",
    ),
    (
        Reason(NOT_NOW, Token.NODES_CLOSED, nodes=("n1",)),
        "`n1` is the only one that could hold it and takes no new work.",
        "It starts when they are back in service; asking less of nodes may help.",
    ),
    (
        Reason(NOT_NOW, Token.NODES_CLOSED),
        "The nodes it may use take no new work.",
        "It starts when they are back in service; asking less of nodes may help.",
    ),
    (
        Reason(NOT_NOW, Token.NO_MIG_INSTANCE, "mig", 2, 1, 8, detail="1g.10gb"),
        "Waiting for 2 instances `1g.10gb`: there is room for 1.",
        "It starts when instances end and leave their slots free; a smaller one may fit now.",
    ),
    (
        Reason(NOT_NOW, Token.NO_MIG_INSTANCE, "mig", 1, 1, 8, detail="3g.40gb"),
        "Waiting for 1 instance `3g.40gb`: no GPU has room for one.",
        "It starts when instances end and leave their slots free; a smaller one may fit now.",
    ),
    (
        Reason(NEVER, Token.NO_MIG_INSTANCE, "mig", 2, 1, 1, detail="7g.80gb"),
        "It asks for 2 instances `7g.80gb`, and the nodes it may use hold 1 instance at most.",
        "Ask for a smaller profile, or for fewer at once.",
    ),
    (
        Reason(NOT_NOW, Token.TOPOLOGY_TOO_SMALL, "tasks", 8, 2, 6, detail="rack"),
        "It wants 8 tasks in one domain of `rack`, and the most that one has room for now is 6.",
        "It starts when enough comes free in one domain; a wider level may do now.",
    ),
    (
        Reason(NOT_NOW, Token.TOPOLOGY_TOO_SMALL, "tasks", 8, 0, 8, detail="rack"),
        (
            "It wants 8 tasks in one domain of `rack`, and no domain has enough for all of them "
            "at once."
        ),
        "It starts when enough comes free in one domain; a wider level may do now.",
    ),
    (
        Reason(NEVER, Token.TOPOLOGY_TOO_SMALL, "tasks", 8, 2, 6, detail="rack"),
        "It wants 8 tasks in one domain of `rack`, and the largest could never hold more than 6.",
        "Ask for 6 tasks or fewer, or only prefer the level.",
    ),
    (
        Reason(NEVER, Token.TOPOLOGY_TOO_SMALL, "tasks", 8, 8, 0, detail="rack"),
        "It wants 8 tasks in one domain of `rack`, and the largest could never hold more than 0.",
        "Only prefer the level, or require a wider one.",
    ),
    (
        Reason(HELD_BACK, Token.PREEMPTION_DELAYED, "gpu", 2000, until=120.0),
        "Waiting for 2 GPUs: others would be preempted for it, but not yet.",
        "It starts when room comes free; others are preempted from 00:02 UTC on.",
    ),
    (
        Reason(HELD_BACK, Token.WAITS_FOR_GANG, "tasks", 4, 1, 3, tasks=5, there=3),
        "It starts with 4 tasks at once, and only 3 of them may start now.",
        "It starts when the missing tasks may start too.",
    ),
    (
        Reason(HELD_BACK, Token.GATED, tasks=1),
        "It was submitted on hold: its task is not to start yet.",
        "It takes its place in the queue when whoever submitted it lets it go.",
    ),
    (
        Reason(HELD_BACK, Token.GATED, tasks=3),
        "It was submitted on hold: its tasks are not to start yet.",
        "It takes its place in the queue when whoever submitted it lets it go.",
    ),
    (
        Reason(NOT_NOW, Token.GROWING, "gpu", 1000, 1000, 8000, tasks=4, there=2),
        "Runs with 2 of 4 tasks and grows when there is room: the next step takes 1 GPU.",
        "Nothing has to be done: it runs already.",
    ),
    (
        Reason(NOT_NOW, Token.GROWING, tasks=1200, there=1),
        "Runs with 1 of 1,200 tasks.",
        "Nothing has to be done: it runs already.",
    ),
    (
        Reason(NOT_NOW, Token.RESERVED, "gpu", 8000, holders=(OWN, TRAIN_7)),
        "Places for its 8 GPUs are kept for it until `mine` and `train-7` of `speech` end.",
        "Nobody else starts there; it starts elsewhere at once when there is room.",
    ),
    (
        Reason(NOT_NOW, Token.RESERVED, "gpu", 2000, holders=(OWN,)),
        "Places for its 2 GPUs are kept for it until `mine` ends.",
        "Nobody else starts there; it starts elsewhere at once when there is room.",
    ),
    (
        Reason(NOT_NOW, Token.RESERVED, "gpu", 2000),
        "Places for its 2 GPUs are kept for it; it starts as soon as they are free.",
        "Nobody else starts there; it starts elsewhere at once when there is room.",
    ),
    (
        Reason(NOT_NOW, Token.QUOTA_USED, "gpu", 1000, 1000, 2000, project="physics"),
        (
            "Waiting for 1 GPU: that is more than `physics`, to which `vision` belongs, has left "
            "of its guaranteed 2 GPUs, and nothing is idle to borrow."
        ),
        "It starts when work of `physics` ends or somebody leaves enough idle.",
    ),
    (
        Reason(HELD_BACK, Token.OVER_LIMIT, "gpu", 2000, 1000, 4000, project="physics"),
        "With it `physics`, to which `vision` belongs, would hold 5 GPUs, and its limit is 4 GPUs.",
        "It starts when work of `physics` ends, or when an admin raises the limit.",
    ),
    (
        Reason(
            NEVER, Token.NON_PREEMPTIBLE_BEYOND_QUOTA, "gpu", 2000, 1000, 1000, project="physics"
        ),
        (
            "It may not be interrupted, so it cannot borrow: it asks for 2 GPUs, "
            "and `physics`, to which `vision` belongs, is guaranteed 1 GPU."
        ),
        "Ask for less, make it preemptible so that it may borrow, or ask for more quota.",
    ),
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "example.com/nic", 3, 2, 4),
        "Waiting for 3 `example.com/nic`: 1 of 4 is free.",
        "It starts by itself as soon as enough is free.",
    ),
    (
        Reason(NOT_NOW, Token.NO_VICTIMS_FOUND, "gpu", 8000, 8000, 64_000),
        (
            "Waiting for 8 GPUs: all 64 are in use; no set of work that can be preempted was found "
            "within the limits of the search."
        ),
        "It is tried again whenever something changes; fewer or smaller tasks are found sooner.",
    ),
    (
        Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "memory", 4096, 4096, 1024),
        "Waiting for 4 GiB of memory: all is in use.",
        "It starts by itself as soon as enough is free.",
    ),
    (
        Reason(HELD_BACK, Token.OVER_GROUP_LIMIT, "gpu", 1000, 1000, 2000, detail="a100"),
        "With it `vision` would hold 3 GPUs in node group `a100`, and its limit there is 2 GPUs.",
        (
            "It starts when work of `vision` there ends, when an admin raises the limit, or "
            "elsewhere if it may run on other nodes too."
        ),
    ),
    (
        Reason(NEVER, Token.OVER_GROUP_LIMIT, "gpu", 3000, 1000, 2000, detail="a100"),
        "It asks for 3 GPUs, and the limit of `vision` in node group `a100` is 2 GPUs.",
        (
            "Ask for less, let it run on other nodes too, or ask an admin to raise the limit of "
            "`vision` in node group `a100`."
        ),
    ),
]


@pytest.mark.parametrize(("reason", "text", "advice"), GOLDEN)
def test_texts(reason: Reason, text: str, advice: str) -> None:
    assert sentence(reason, "vision") == text
    assert help_text(reason, "vision") == advice


def test_every_token_has_golden_texts() -> None:
    assert {reason.token for reason, _, _ in GOLDEN} == set(Token)


HIDDEN = [
    (GOLDEN[6][0], "Taking back 1 GPU that a member of `speech` borrowed."),
    (
        Reason(
            NOT_NOW, Token.WAITS_FOR_ROOM, "gpu", 1000, 1000, 1000, holders=(held("x", "b", 1),)
        ),
        "Waiting for 1 GPU: the only one is in use; a member of `b` holds 1.",
    ),
    (GOLDEN[21][0], "The free room is held for a member of `speech`, served first."),
    (GOLDEN[24][0], "Preempted by a member of `speech`, which reclaimed its guaranteed quota."),
]


@pytest.mark.parametrize(("reason", "text"), HIDDEN)
def test_names_that_may_not_be_told(reason: Reason, text: str) -> None:
    assert sentence(reason, "vision", names=False) == text


@pytest.mark.parametrize(("reason", "_text", "_advice"), GOLDEN)
def test_nothing_leaks_when_names_are_hidden(reason: Reason, _text: str, _advice: str) -> None:
    told = sentence(reason, "vision", names=False) + help_text(reason, "vision", names=False)
    told += json.dumps(data(reason, "vision", names=False))
    foreign = [h for h in reason.holders if h.project != "vision"]
    secrets = [part for h in foreign for part in (h.name, h.uid, h.user)]
    if reason.project not in ("", "vision"):
        secrets.append(reason.workload)
    assert [secret for secret in secrets if secret and f"{secret}" in told] == []


def test_own_names_are_told() -> None:
    reason = Reason(NOT_NOW, Token.WAITS_FOR_ROOM, "gpu", 1000, 1000, 2000, holders=(OWN,))
    assert "`mine`" in sentence(reason, "vision", names=False)
    assert data(reason, "vision", names=False)["holders"][0]["user"] == "mine-user"
    assert data(reason, names=False)["holders"][0]["name"] == "a member of `vision`"


def test_data_is_json_with_stable_tokens() -> None:
    reason = GOLDEN[0][0]
    facts = json.loads(json.dumps(data(reason, "vision")))
    assert (facts["class"], facts["token"]) == ("not-now", "WaitsForRoom")
    assert facts["holders"][0] == {
        "project": "speech",
        "uid": "uid-train-7",
        "name": "train-7",
        "user": "train-7-user",
        "amount": 1000,
        "borrowed": True,
        "since": 5.0,
    }


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("gpu", 0, "0 GPUs"),
        ("gpu", 500, "0.5 GPU"),
        ("gpu", 1000, "1 GPU"),
        ("gpu", 1_024_000, "1,024 GPUs"),
        ("cpu", 1500, "1.5 CPU cores"),
        ("memory", 512, "0.5 GiB of memory"),
        ("memory", 16384, "16 GiB of memory"),
        ("tasks", 1, "1 task"),
        ("tasks", 1200, "1,200 tasks"),
        ("mig", 2, "2 instances"),
        ("example.com/nic", 3, "3 `example.com/nic`"),
    ],
)
def test_amounts(resource: str, value: int, text: str) -> None:
    assert amount(resource, value) == text
