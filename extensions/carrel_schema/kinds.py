"""The kinds of work, as one table: everything that depends on the kind alone is read here.

*Composite* kinds hold no resources: a controller makes workloads for them (their *parts*), which
are scheduled like any other. Parts are made by controllers only and are listed on request only.
"""

from dataclasses import dataclass
from typing import Final, Literal

WorkloadKind = Literal[
    "training",
    "workspace",
    "distributed",
    "experiment",
    "trial",
    "inference",
    "replica",
    "notebook",
    "schedule",
    "tensorboard",
]
Rules = Literal["interactive", "training", "none"]


@dataclass(frozen=True, slots=True)
class KindFacts:
    """The properties of a kind of work.

    Attributes:
        priority: the named level that it has by default, see ``core.settings``.
        preemptible: whether it may be preempted, unless its owner says otherwise.
        rules: which of its project's limits apply to it.
        composite: it has parts instead of tasks.
        part: only controllers make it.
        gang: it may have several tasks, which start together.
        may_choose: whether its owner may say ``preemptible``.
        required: sections that its specification has to have.
        allowed: further sections that it may have.
        command: whether it needs a command; otherwise Carrel sets one.
    """

    priority: str = "train"
    preemptible: bool = True
    rules: Rules = "training"
    composite: bool = False
    part: bool = False
    gang: bool = False
    may_choose: bool = True
    required: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    command: bool = True

    @property
    def sections(self) -> frozenset[str]:
        """The sections that work of the kind may have."""
        return frozenset(self.required + self.allowed)


KINDS: Final[dict[WorkloadKind, KindFacts]] = {
    "training": KindFacts(gang=True, allowed=("elastic",)),
    "workspace": KindFacts("build", preemptible=False, rules="interactive"),
    "distributed": KindFacts(gang=True, allowed=("rendezvous", "elastic")),
    "experiment": KindFacts(composite=True, required=("experiment",)),
    "trial": KindFacts(part=True, required=("trial",)),
    "inference": KindFacts(
        "inference",
        preemptible=False,
        rules="none",
        composite=True,
        may_choose=False,
        required=("inference",),
    ),
    "replica": KindFacts(
        "inference",
        preemptible=False,
        rules="none",
        part=True,
        may_choose=False,
        allowed=("inference",),
    ),
    "notebook": KindFacts(required=("notebook",), command=False),
    "schedule": KindFacts(
        composite=True, rules="none", required=("schedule",), allowed=("notebook",), command=False
    ),
    "tensorboard": KindFacts(
        "build", preemptible=False, rules="none", required=("tensorboard",), command=False
    ),
}
SECTIONS: Final = frozenset[str]().union(*(facts.sections for facts in KINDS.values()))
PARTS: Final = frozenset(kind for kind, facts in KINDS.items() if facts.part)
COMPOSITES: Final = frozenset(kind for kind, facts in KINDS.items() if facts.composite)
