"""Workload policies: what an administrator says about the fields of requests, in a scope.

A policy holds for all work of its scope and of the kinds it names. Each rule is about one field of
a request, by its path: ``gpus``, ``experiment.parallelism``, ``environment.HTTP_PROXY``. What
several policies say of a field holds together: the smallest maximum, the values that all allow. Of
defaults the one of the narrowest scope counts, unless a wider one locks the field.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, Name, Number, Text
from carrel_schema.kinds import WorkloadKind

FieldPath = Annotated[
    str, Constraint(max_length=256, pattern=r"^[a-z_]+(\.[A-Za-z0-9_./-]+)?$", min_length=1)
]


class FieldRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rule of a policy for one field.

    Attributes:
        default: taken when a request does not say the field; null: nothing.
        min: the least number that is allowed.
        max: the greatest number that is allowed; where null would mean no bound, a request has to
            say one.
        required: whether a request (or a template) has to say the field.
        locked: whether it is the default and nothing else.
        allowed: the values that are allowed, of a list those of each item; in texts `*` stands for
            anything; none: all.
        message: told to whom it refuses, beside the rule itself.
    """

    default: Any = None
    min: Number | None = None
    max: Number | None = None
    required: bool = False
    locked: bool = False
    allowed: Annotated[list[Any], Constraint(max_length=256)] = []
    message: Annotated[Text, Constraint(max_length=500)] = ""


class PolicyFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A policy as it is written.

    Attributes:
        description: for people.
        kinds: the kinds of work it is for; none: all.
        rules: by the path of a field.
        expected_version: refused unless this is the stored version; 0: it has to be new.
    """

    description: Annotated[Text, Constraint(max_length=1000)] = ""
    kinds: Annotated[list[WorkloadKind], Constraint(max_length=16)] = []
    rules: Annotated[dict[FieldPath, FieldRule], Constraint(min_length=1, max_length=100)] = {}
    expected_version: int | None = None


class ManifestRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The rules of all policies for one field of a manifest.

    Attributes:
        field: as people are told.
        path: where it is in the specification; ``labels`` and a name: that label.
        kinds: plurals of the kinds of work, of a schedule with that of its runs.
        section: the first part of the path is a section: without it there is no such field.
        quantity: its values are amounts, as ``500m`` and ``8Gi``.
        required_said: what is told when it is not given; empty: it need not be.
        max: the greatest value, with what is told; ``bounded``: it has to be given.
        min: the least value, with what is told.
        locked: the only value, with what is told.
        allowed: values that are no texts, ``patterns`` are those of texts, with what is told.
    """

    field: str
    path: list[str]
    kinds: list[str] = []
    section: bool = False
    quantity: bool = False
    required_said: str = ""
    max: Any = None
    max_said: str = ""
    bounded: bool = False
    min: Any = None
    min_said: str = ""
    locked: Any = None
    locked_said: str = ""
    allowed: list[Any] = []
    patterns: list[str] = []
    allowed_said: str = ""


class WorkloadPolicySpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The rules of policies for a namespace; the scheduler writes them for admission.

    Attributes:
        rules: all that hold in this project.
    """

    rules: list[ManifestRule] = []


class WorkloadPolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Reserved for controllers."""

    observed_generation: int = 0


class RefusedWork(Answer, frozen=True, kw_only=True):
    """Live work that a policy would refuse now; it goes on."""

    project: str
    name: str
    sentence: str


class PolicyOut(Answer, frozen=True, kw_only=True):
    """A policy as it is stored.

    Attributes:
        scope: ``platform``, ``department/NAME`` or ``project/NAME``.
        would_refuse: after a change, live work that it does not allow; it goes on.
    """

    name: str
    scope: str
    version: int = 0
    description: str = ""
    kinds: Sequence[str] = ()
    rules: Mapping[str, FieldRule] = {}
    changed_at: float = 0.0
    changed_by: str = ""
    would_refuse: Sequence[RefusedWork] = ()


class PolicyList(Answer, frozen=True, kw_only=True):
    """Policies from the widest scope to the narrowest."""

    items: Sequence[PolicyOut] = ()


class Bound(Answer, frozen=True, kw_only=True):
    """A part of a rule for a field, and the policy that it is from.

    Attributes:
        policy: name of the policy; ``scope`` is where it is.
        message: what its author adds.
    """

    value: Any = None
    policy: Name = ""
    scope: str = ""
    message: str = ""

    @property
    def said_by(self) -> str:
        """The policy and its scope, for a sentence."""
        return f"policy `{self.policy}` of {self.scope}"


class EffectiveRule(Answer, frozen=True, kw_only=True):
    """The rule for a field, of all policies together."""

    default: Bound | None = None
    min: Bound | None = None
    max: Bound | None = None
    allowed: Bound | None = None
    required: Bound | None = None
    locked: Bound | None = None


class EffectivePolicy(Answer, frozen=True, kw_only=True):
    """The rules for work of a kind in a project, by the path of a field."""

    project: str = ""
    kind: str = ""
    rules: Mapping[str, EffectiveRule] = {}
