"""Groups of nodes as people write and read them; the resource is ``groups.NodeGroupSpec``."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, LabelKey, LabelValue, Name, ProjectName, Text

_NODE = r"^[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?$"
NodeName = Annotated[str, Constraint(min_length=1, max_length=253, pattern=_NODE)]
GroupName = Annotated[
    str, Constraint(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]


class NodeGroupFields(msgspec.Struct, frozen=True, kw_only=True):
    """A group of nodes as it is written.

    Attributes:
        description: for people.
        match_labels: labels that a node of the group has, all of them.
        node_names: nodes that are in the group whatever their labels are.
        role: what its nodes are for; empty: for all work.
        projects: those whose work may go there; with no departments either: all.
        departments: those whose projects' work may go there.
    """

    description: Annotated[Text, Constraint(max_length=1000)] = ""
    match_labels: Annotated[dict[LabelKey, LabelValue], Constraint(max_length=64)] = {}
    node_names: Annotated[list[NodeName], Constraint(max_length=1024)] = []
    role: Literal["", "training", "interactive"] = ""
    projects: Annotated[list[ProjectName], Constraint(max_length=1024)] = []
    departments: Annotated[list[Name], Constraint(max_length=1024)] = []


class NodeGroupCreate(NodeGroupFields, frozen=True, kw_only=True):
    """A group of nodes to create."""

    name: GroupName


class NodeGroupChange(NodeGroupFields, frozen=True, kw_only=True):
    """A group of nodes to replace; refused unless ``expected_version`` is the stored version."""

    expected_version: Annotated[str, Constraint(max_length=64, pattern=r"^[0-9]*$")] | None = None


class NodeGroupOut(Answer, frozen=True, kw_only=True):
    """A group of nodes.

    Attributes:
        defined: it has a definition; else labels of nodes or the model of their GPUs make it.
        version: of the definition.
        nodes: those that are in it now.
        gpus, free_gpus: that they have together, and those of them that nothing is allocated of.
    """

    name: str
    description: str = ""
    match_labels: Mapping[str, str] = {}
    node_names: Sequence[str] = ()
    role: str = ""
    projects: Sequence[str] = ()
    departments: Sequence[str] = ()
    defined: bool = False
    version: str = ""
    nodes: Sequence[str] = ()
    gpus: float = 0.0
    free_gpus: float = 0.0


class NodeGroupList(Answer, frozen=True, kw_only=True):
    """The node groups, by name."""

    items: Sequence[NodeGroupOut] = ()
