"""A claim that every bound lets pass and no search settles is not called impossible."""

from benchmarks.decision_cases import borrowed, hard_no, reclaim
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.messages.render import sentence
from carrel_scheduler.core.reasons import ReasonClass, Token

NODES = 60


def reason_of(claim: borrowed.Claim) -> tuple[ReasonClass, Token, str]:
    state = reclaim.prepared(claim)
    reclaim.again(state, claim)
    plan = decide(state, borrowed.NOW)
    assert not plan.evictions
    reason = plan.reasons[claim.gang.uid]
    return reason.cls, reason.token, sentence(reason, claim.gang.project)


def test_a_puzzle_of_budgets_is_not_found() -> None:
    cls, token, text = reason_of(hard_no.puzzle(NODES))
    assert (cls, token) == (ReasonClass.NOT_NOW, Token.NO_VICTIMS_FOUND)
    assert text.endswith(
        "no set of work that can be preempted was found within the limits of the search."
    )


def test_what_a_bound_refuses_waits_for_room() -> None:
    for claim in (hard_no.nodes_short(NODES), hard_no.budgets_short(NODES)):
        assert reason_of(claim)[1] is Token.WAITS_FOR_ROOM
