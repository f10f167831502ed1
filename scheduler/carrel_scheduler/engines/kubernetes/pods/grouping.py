"""Which workload a pod belongs to: the walk up its owners, and the rules for their kinds.

A pod may name its group itself; else the topmost owner whose kind starts its pods together makes
one; else each pod is a workload of its own. Equal groupings are one object, while it is used.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.engines.kubernetes.pods.errors import PodRefused
from carrel_scheduler.engines.kubernetes.pods.grouped import Grouped, Grouping, Role
from carrel_scheduler.engines.kubernetes.pods.grouping_rules import (
    POD_GROUPS,
    RULES,
    How,
    PodGroupRule,
    Rule,
)
from carrel_scheduler.engines.kubernetes.pods.levels import structure_of
from carrel_scheduler.engines.kubernetes.pods.owners import MOST_KEPT, Owners
from carrel_scheduler.engines.kubernetes.pods.rule_reading import (
    RoleCount,
    at,
    holds,
    number,
    roles_of,
)
from carrel_scheduler.engines.kubernetes.pods.standing import (
    PRIORITY,
    SAID_QUEUE,
    Projects,
    Standing,
    count_of_pods,
)
from carrel_scheduler.engines.kubernetes.pods.types import Meta, Owned, Owner, Pod

_BY_KIND: Final[Mapping[tuple[str, str], Rule]] = {(rule.group, rule.kind): rule for rule in RULES}
_POD: Final = _BY_KIND["", "Pod"]
Level = tuple[Owner, Owned | None, Rule | None]


def rule_for(owner: Owner) -> Rule | None:
    """The rule of an owner's kind, in whatever version; ``None`` for a kind nobody knows."""
    group, _, version = owner.api_version.rpartition("/")
    return _BY_KIND.get((group if version else "", owner.kind))


class Grouper:
    """See the module."""

    def __init__(self, owners: Owners, projects: Projects) -> None:
        self._owners = owners
        self._projects = projects
        self._shared: dict[Grouping, Grouping] = {}

    async def group(self, pod: Pod) -> Grouped:
        """The group of a pod and its role there.

        Raises:
            PodRefused: the pod can not be placed as it is: its kind is not ours, its labels
                contradict each other, or its group is not known.
        """
        chain: list[Level] = [
            (owner, found, rule_for(owner)) for owner, found in await self._owners.chain(pod)
        ]
        for owner, _, rule in chain:
            if rule is not None and rule.how is How.NEVER:
                expected = "another scheduler's, left out: each node has a pod of its own"
                raise PodRefused("not_ours", "spec.schedulerName", owner.kind, expected)
        for named in POD_GROUPS:
            if name := _group_name(pod, named):
                return self._share(await self._named_group(pod, chain, named, name))
        return self._share(_Reading(pod, chain, self._projects).grouped())

    async def _named_group(
        self, pod: Pod, chain: list[Level], rule: PodGroupRule, name: str
    ) -> Grouped:
        if not rule.group:
            total = pod.metadata.annotations.get(rule.total, "")
            least = count_of_pods(rule.total, total, "bad_group_total") if total else 1
            key = f"{pod.metadata.namespace}/{name}"
            reading = _Reading(pod, chain, self._projects)
            return reading.gang(key, name, rule.kind, None, (Role("", least),), "")
        owner = Owner(f"{rule.group}/{rule.version}", rule.kind, name, "")
        found = await self._owners.look_up(owner, pod.metadata.namespace)
        if found is None:
            expected = "the name of a PodGroup in the pod's namespace"
            raise PodRefused("no_pod_group", rule.keys[0], name, expected)
        says = msgspec.structs.asdict(found)
        fields = {SAID_QUEUE: _text(says, rule.queue), PRIORITY: _text(says, rule.priority)}
        reading = _Reading(pod, chain, self._projects, (fields,), (found.metadata,))
        roles = (Role("", number(says, rule.least) or 1),)
        return reading.gang(found.metadata.uid, name, rule.kind, found.metadata, roles, "")

    def _share(self, grouped: Grouped) -> Grouped:
        if len(self._shared) > MOST_KEPT:
            self._shared.clear()
        shared = self._shared.setdefault(grouped.grouping, grouped.grouping)
        return Grouped(shared, grouped.role)

    def forget(self, uid: str) -> None:
        """An owner changed, or is gone."""
        self._owners.forget(uid)
        for grouping in [one for one in self._shared if one.uid.startswith(uid)]:
            del self._shared[grouping]


def _said(found: Owned | None, rule: Rule | None) -> dict[str, str]:
    """What an owner says in fields of its kind, as if it were labels."""
    if found is None or rule is None or not rule.queue:
        return {}
    return {SAID_QUEUE: _text(msgspec.structs.asdict(found), rule.queue)}


def _text(owner: Mapping[str, Any], path: str) -> str:
    found = at(owner, path)
    return found if isinstance(found, str) else ""


def _group_name(pod: Pod, rule: PodGroupRule) -> str:
    meta = pod.metadata
    given = (meta.labels.get(key) or meta.annotations.get(key, "") for key in rule.keys)
    return next((name for name in given if name), "")


class _Reading:
    """One pod with all that is known of its owners."""

    def __init__(
        self,
        pod: Pod,
        chain: Sequence[Level],
        projects: Projects,
        said: Sequence[Mapping[str, str]] = (),
        beside: Sequence[Meta] = (),
    ) -> None:
        """Of a pod.

        Args:
            pod: the pod.
            chain: its owners with the rules of their kinds, the nearest first.
            projects: what is known of projects.
            said: what a group that it names says, as if it were labels.
            beside: the metadata of such a group.
        """
        self.pod = pod
        metas = [found.metadata for _, found, _ in chain if found is not None]
        fields = [_said(found, rule) for _, found, rule in chain]
        self._standing = Standing(pod, [*beside, *metas], [*said, *fields])
        self._chain = chain
        self._projects = projects

    def grouped(self) -> Grouped:
        """By the topmost owner that starts its pods together, else the pod for itself."""
        for owner, found, rule in reversed(self._chain):
            if rule is not None and rule.how is How.TOGETHER and found is not None:
                return self._together(owner, found, rule) or self._each()
        return self._each()

    def _together(self, owner: Owner, found: Owned, rule: Rule) -> Grouped | None:
        """The gang of an owner; ``None`` where its pods start each by itself."""
        said: dict[str, Any] = msgspec.structs.asdict(found)
        total = self._standing.min_members
        if total is None and not all(holds(when, said) for when in rule.only_when):
            return None
        counts = roles_of(rule, said, total)
        role = self._role(rule, counts)
        if role is None:
            return None
        uid, name = owner.uid, owner.name
        if rule.split and (part := self.pod.metadata.labels.get(rule.split, "")):
            uid, name = f"{uid}-{part}", f"{name}-{part}"
        if role.apart:
            uid, name = f"{uid}-{role.name}", f"{name}-{role.name}"
        beside = [role] if role.apart else [count for count in counts if not count.apart]
        roles = tuple(Role(count.name, count.least) for count in beside)
        if sum(one.least for one in roles) <= 1:
            return None
        return self.gang(uid, name, owner.kind, found.metadata, roles, role.name)

    def _role(self, rule: Rule, counts: Sequence[RoleCount]) -> RoleCount | None:
        """The pod's role; ``None`` where its owner does not speak of it."""
        labels = self.pod.metadata.labels
        value = next((labels[key] for key in rule.role_labels if key in labels), "")
        name = dict(rule.lead).get(value, rule.others) if rule.lead else value.lower()
        found = next((count for count in counts if count.name == name), None)
        if found is None and not value and len(counts) == 1:
            return counts[0]
        return found

    def gang(
        self,
        uid: str,
        name: str,
        kind: str,
        meta: Meta | None,
        roles: tuple[Role, ...],
        role: str,
    ) -> Grouped:
        """The pod in a gang."""
        return Grouped(self._grouping(uid, name, kind, meta, roles), role)

    def _each(self) -> Grouped:
        """The pod for itself, named after the topmost owner whose kind is known."""
        meta = self.pod.metadata
        for owner, found, rule in reversed(self._chain):
            if rule is not None and rule.how is not How.BELOW:
                above = None if found is None else found.metadata
                return Grouped(self._grouping(owner.uid, owner.name, owner.kind, above))
        return Grouped(self._grouping(meta.uid, meta.name, "Pod", meta))

    def _grouping(
        self,
        uid: str,
        name: str,
        kind: str,
        meta: Meta | None,
        roles: tuple[Role, ...] = (),
    ) -> Grouping:
        standing = self._standing
        priority = standing.priority(self._default_priority())
        created = (meta or self.pod.metadata).creation_timestamp
        interactive = any(rule is not None and rule.interactive for _, _, rule in self._chain)
        return Grouping(
            uid=uid,
            name=name,
            project=standing.project(self._projects),
            user=standing.user,
            kind=kind,
            priority=priority,
            preemptible=_preemptible(standing, priority, roles),
            interactive=interactive,
            controlled=bool(self._chain),
            created_at=0.0 if created is None else created.timestamp(),
            roles=roles,
            structure=structure_of(name, roles, self.pod, standing.of_owners) if roles else None,
            preemption_delay_s=standing.preemption_delay_s,
        )

    def _default_priority(self) -> str:
        rules = [rule for _, _, rule in reversed(self._chain) if rule is not None]
        own = _POD.priority
        return next((rule.priority for rule in rules if rule.priority != own), own)


def _preemptible(standing: Standing, priority: int, roles: tuple[Role, ...]) -> Preemptibility:
    """Protecting a minimum means something for gangs only."""
    said = standing.preemptible(priority)
    return Preemptibility.NO if said is Preemptibility.SURPLUS and not roles else said
