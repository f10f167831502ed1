"""Redacted reasons of work of other projects: the kind of reason without amounts and names.

Everybody sees a place in the queue and its token (:class:`Token`); the facts behind it belong to
the project. A sentence here says what the token says and nothing more.
"""

from typing import Final

from carrel_scheduler.core.reasons import Token

_QUOTA: Final = "The guaranteed quota of its project, or of a department above it, is used up."
_ROOM: Final = "It waits for room: what it asks for is not free in one place."
_NODES: Final = "No node that takes new work now meets its conditions."
_RETURNS: Final = "It was preempted and waits for its next start."

SENTENCES: Final[dict[Token, str]] = {
    Token.NEVER_FITS: "It asks for more than the cluster has.",
    Token.NO_ELIGIBLE_NODE: _NODES,
    Token.NODES_CLOSED: _NODES,
    Token.NO_NODE_FITS: _ROOM,
    Token.NO_MIG_INSTANCE: _ROOM,
    Token.TOPOLOGY_TOO_SMALL: _ROOM,
    Token.WAITS_FOR_ROOM: _ROOM,
    Token.QUOTA_USED: _QUOTA,
    Token.OVER_LIMIT: "The limit of its project, or of a department above it, is reached.",
    Token.OVER_GROUP_LIMIT: (
        "The limit of its project in a node group, or of a department above it, is reached."
    ),
    Token.NON_PREEMPTIBLE_BEYOND_QUOTA: f"{_QUOTA} It may not be preempted, so it borrows nothing.",
    Token.OVER_QUOTA_OFF: f"{_QUOTA} Its project does not borrow.",
    Token.HELD_FOR: "Room that would be enough is held for others before it.",
    Token.RESERVED: "Places are kept for it on which others still run.",
    Token.NO_VICTIMS_FOUND: _ROOM,
    Token.QUEUED_BEHIND: "Others are before it in the queue.",
    Token.PREEMPTION_DELAYED: "Others may be preempted for it, but not yet.",
    Token.WAITS_FOR_GANG: "Too few of its tasks may start for the gang to begin.",
    Token.GATED: "Whoever submitted it holds it back.",
    Token.GROWING: "It runs with some of its tasks and waits for room for more.",
    Token.STARTING: "It starts.",
    Token.RECLAIMED: _RETURNS,
    Token.PREEMPTED: _RETURNS,
    Token.CONSOLIDATED: _RETURNS,
    Token.GANG_INCOMPLETE: _RETURNS,
    Token.NODE_DRAINED: _RETURNS,
    Token.IMPROVED: _RETURNS,
}
_BY_TOKEN: Final = {token.value: words for token, words in SENTENCES.items()}
NAMELESS: Final = "The reason is told to the members of its project."


def sentence(token: str) -> str:
    """The message of a reason that any project may read.

    Args:
        token: of the reason; one that is not the core's, such as of a back-off, is not explained.
    """
    return _BY_TOKEN.get(token, NAMELESS)
