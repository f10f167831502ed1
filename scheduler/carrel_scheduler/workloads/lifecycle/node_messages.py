"""What is told of nodes of a cluster to those whose work is there."""

from collections.abc import Mapping
from typing import Final

from carrel_scheduler.core.messages.sentences import join
from carrel_scheduler.engines.external import NodeHealth
from carrel_schema.objects import ReasonInfo

_MOST_NODES: Final = 5
_LATER: Final = "Save your work; started again, the workspace comes up on another node."
_NOW: Final = "Save your work now, and start the workspace again: it comes up on another node."
_WAIT: Final = "Its files are safe; if nothing is heard for long it ends, and can be started again."
_MOVES: Final = "If nothing is heard for long it starts elsewhere, from its last checkpoint."
_NO_ANSWER: Final = (
    (
        "{} does not answer; what runs there may be lost.",
        "{} do not answer; what runs there may be lost.",
    ),
    _WAIT,
    _MOVES,
)
_OF_NODES: Final[Mapping[NodeHealth, tuple[tuple[str, str], str, str]]] = {
    NodeHealth.GONE: _NO_ANSWER,
    NodeHealth.SILENT: _NO_ANSWER,
    NodeHealth.DRAINING: (
        ("{} is being emptied for maintenance.", "{} are being emptied for maintenance."),
        _LATER,
        "",
    ),
    NodeHealth.CORDONED: (
        (
            "{} takes no new work and may be emptied soon.",
            "{} take no new work and may be emptied soon.",
        ),
        _LATER,
        "",
    ),
}
"""Sentences about one node and several, help for who sits at a workspace, help for others; without
such help they are not told."""
OF_NODES: Final = frozenset(standing.value for standing in _OF_NODES)


def told_to_leave(node: str, how: str, *, desk: bool) -> ReasonInfo:
    """Somebody else has it end.

    Args:
        node: where it runs.
        how: in a few words, where the node is not just being emptied.
        desk: its owner sits at it.
    """
    emptied = f"`{node}` is being emptied for maintenance."
    return ReasonInfo(
        token="Evicted" if how else "NodeDrained",
        cls="evicted",
        sentence=f"It has to leave `{node}`: {how}." if how else emptied,
        help=_NOW if desk else "It goes on from its last checkpoint as soon as there is room.",
        data={"nodes": [node]},
    )


def node_trouble(
    standings: Mapping[str, NodeHealth], at: float, *, desk: bool
) -> ReasonInfo | None:
    """What its owner should know of its nodes while it runs; ``None`` when nothing.

    Args:
        standings: of its nodes, in order.
        at: since when that is so, epoch seconds.
        desk: its owner sits at it; other work moves by itself.
    """
    for standing, (said, at_desk, elsewise) in _OF_NODES.items():
        names = [name for name, one in standings.items() if one is standing][:_MOST_NODES]
        if names and (desk or elsewise):
            return ReasonInfo(
                token=standing.value,
                sentence=said[len(names) > 1].format(join([f"`{name}`" for name in names])),
                help=at_desk if desk else elsewise,
                data={"nodes": names, "at": at},
            )
    return None
