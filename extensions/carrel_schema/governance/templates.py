"""Templates: values for requests, under a name, in a scope.

A template fills what a request leaves open. One that is ``default`` does so for all work of its
kinds in its scope, without being named; the narrowest counts where several say a field.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, ShortText, Text
from carrel_schema.governance.catalogue import CatalogueModel
from carrel_schema.kinds import WorkloadKind

NOT_IN_TEMPLATES: Final = frozenset(
    {"name", "name_prefix", "project", "template", "user", "server_name", "hold_for_claim"}
    | {"external", "secret_environment"}
)
"""Fields that say which work it is, or that a template would show to others."""


class TemplateFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A template as it is written.

    Attributes:
        description: for people.
        kinds: the kinds of work it is for; none: all.
        default: whether it counts without being named; only administrators say so.
        fields: of a request, as ``POST /workloads`` takes them.
        model: which model it serves; makes a template of endpoints an entry of the catalogue.
        expected_version: refused unless this is the stored version; 0: it has to be new.
    """

    description: Annotated[Text, Constraint(max_length=1000)] = ""
    kinds: Annotated[list[WorkloadKind], Constraint(max_length=16)] = []
    default: bool = False
    fields: Annotated[dict[ShortText, Any], Constraint(min_length=1, max_length=100)] = {}
    model: CatalogueModel | None = None
    expected_version: int | None = None


class TemplateOut(Answer, frozen=True, kw_only=True):
    """A template as it is stored; ``scope`` in the form ``project/NAME``."""

    name: str
    scope: str
    version: int = 0
    description: str = ""
    kinds: Sequence[str] = ()
    default: bool = False
    fields: Mapping[str, Any] = {}
    model: CatalogueModel | None = None
    changed_at: float = 0.0
    changed_by: str = ""


class TemplateList(Answer, frozen=True, kw_only=True):
    """Templates from the widest scope to the narrowest."""

    items: Sequence[TemplateOut] = ()
