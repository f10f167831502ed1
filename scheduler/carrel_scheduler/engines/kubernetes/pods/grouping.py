"""Grouping of pods into workloads: the chain of their owners, and the rules for their kinds.

A pod may name its group itself; else the topmost owner whose kind starts its pods together makes
one; else each pod is a workload of its own. Equal groupings are one object, while it is used.
Thousands of pods share a few owners, and owners change now and then, so they are cached for a
minute.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from cachetools import LRUCache

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.engines.kubernetes.pods.grouping_rules import (
    POD_GROUPS,
    RULES,
    GroupingRule,
    How,
    PodGroupRule,
)
from carrel_scheduler.engines.kubernetes.pods.labels import (
    PREEMPTIBLE,
    PRIORITY,
    SAID_QUEUE,
    GangRole,
    Grouped,
    Grouping,
    PodLabels,
    ProjectNamespaces,
    count_of_pods,
    structure_of,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.role_counts import (
    RoleCount,
    condition_holds,
    number,
    roles_of,
    value_at,
)
from carrel_scheduler.engines.kubernetes.pods.scheduling_groups import (
    GroupReference,
    read_group,
    reference_of,
)
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta, Owned, Owner, Pod

GetOwner = Callable[[Owner, str], Awaitable[Owned | None]]
"""Owner and namespace to the object; ``None`` where there is none, or it may not be read."""
MOST_LEVELS: Final = 10
MOST_KEPT: Final = 20_000
FRESH_SECONDS: Final = 60.0
MISSING_SECONDS: Final = 5.0
"""A group that is not there is asked for once in this time, however many pods name it."""


class GroupMissing(PodRefused):
    """A pod names a group that does not exist yet."""


class OwnerReader:
    """Reads owners of pods; concurrent requests for one owner are sent once.

    Args:
        get: looks one up.
        most: so many are remembered.
        now: seconds of any clock that never goes back.
    """

    def __init__(
        self,
        get: GetOwner,
        most: int = MOST_KEPT,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get = get
        self._now = now
        self._found: LRUCache[str, tuple[float, asyncio.Future[Owned | None]]] = LRUCache(most)

    async def chain(self, pod: Pod) -> list[tuple[Owner, Owned | None]]:
        """The controllers above a pod with what is known of them, the nearest first."""
        chain: list[tuple[Owner, Owned | None]] = []
        above, seen = pod.metadata.controller, {pod.metadata.uid}
        while above is not None and above.uid not in seen and len(chain) < MOST_LEVELS:
            seen.add(above.uid)
            found = await self.look_up(above, pod.metadata.namespace)
            chain.append((above, found))
            above = None if found is None else found.metadata.controller
        return chain

    async def look_up(self, owner: Owner, namespace: str) -> Owned | None:
        """The object that a reference means; ``None`` where another one has its name by now."""
        key = owner.uid or f"{owner.api_version}/{owner.kind}/{namespace}/{owner.name}"
        at, known = self._found.get(key, (0.0, None))
        asked = known
        if asked is None or self._now() - at > _fresh_seconds(asked):
            asked = asyncio.ensure_future(self._get(owner, namespace))
            self._found[key] = (self._now(), asked)
        try:
            found = await asyncio.shield(asked)
        except Exception:
            self._found.pop(key, None)
            if known is None or known is asked:
                raise
            # What was true a minute ago is better than nothing while the server does not answer.
            found = await known
        if found is None and owner.uid:
            self._found.pop(key, None)
        elif found is not None and owner.uid and found.metadata.uid != owner.uid:
            return None
        return found

    def forget(self, uid: str) -> None:
        """Drop the cached owner, because it has changed."""
        self._found.pop(uid, None)


def _fresh_seconds(asked: asyncio.Future[Owned | None]) -> float:
    done = asked.done() and not asked.cancelled() and asked.exception() is None
    return MISSING_SECONDS if done and asked.result() is None else FRESH_SECONDS


_BY_KIND: Final[Mapping[tuple[str, str], GroupingRule]] = {
    (rule.group, rule.kind): rule for rule in RULES
}
_POD: Final = _BY_KIND["", "Pod"]
Level = tuple[Owner, Owned | None, GroupingRule | None]


def rule_for(owner: Owner) -> GroupingRule | None:
    """The rule of an owner's kind, in whatever version; ``None`` for a kind nobody knows."""
    group, _, version = owner.api_version.rpartition("/")
    return _BY_KIND.get((group if version else "", owner.kind))


class Grouper:
    """See the module."""

    def __init__(self, owners: OwnerReader, projects: ProjectNamespaces) -> None:
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
        if (reference := reference_of(pod)) is not None:
            return self._share(await self._scheduling_group(pod, chain, reference))
        return self._share(_Reading(pod, chain, self._projects).grouped())

    async def _named_group(
        self, pod: Pod, chain: list[Level], rule: PodGroupRule, name: str
    ) -> Grouped:
        if not rule.group:
            total = pod.metadata.annotations.get(rule.total, "")
            least = count_of_pods(rule.total, total, "bad_group_total") if total else 1
            key = f"{pod.metadata.namespace}/{name}"
            reading = _Reading(pod, chain, self._projects)
            return reading.gang(key, name, rule.kind, None, (GangRole("", least),), "")
        found = await self._existing(
            pod, Owner(f"{rule.group}/", rule.kind, name, ""), rule.keys[0]
        )
        says = msgspec.structs.asdict(found)
        fields = {SAID_QUEUE: _text(says, rule.queue), PRIORITY: _text(says, rule.priority)}
        reading = _Reading(pod, chain, self._projects, (fields,), (found.metadata,))
        roles = (GangRole("", number(says, rule.least) or 1),)
        return reading.gang(found.metadata.uid, name, rule.kind, found.metadata, roles, "")

    async def _scheduling_group(
        self, pod: Pod, chain: list[Level], reference: GroupReference
    ) -> Grouped:
        owner = reference.owner
        found = await self._existing(pod, owner, reference.field)
        group = read_group(reference, found)
        reading = _Reading(pod, chain, self._projects, (group.fields,), (found.metadata,))
        if group.least is None:
            return reading.each()
        roles = (GangRole("", group.least),)
        return reading.gang(
            group.uid, group.name, owner.kind, found.metadata, roles, "", whole=group.whole
        )

    async def _existing(self, pod: Pod, group: Owner, field: str) -> Owned:
        """The group object that a pod names."""
        found = await self._owners.look_up(group, pod.metadata.namespace)
        if found is None:
            kind = f"{group.kind} of `{group.api_version.rstrip('/')}`"
            raise GroupMissing(
                "no_pod_group", field, group.name, f"the name of a {kind} in the pod's namespace"
            )
        return found

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


def _said(found: Owned | None, rule: GroupingRule | None) -> dict[str, str]:
    """An owner's relevant fields, in the form of labels."""
    if found is None or rule is None or not rule.queue:
        return {}
    return {SAID_QUEUE: _text(msgspec.structs.asdict(found), rule.queue)}


def _text(owner: Mapping[str, Any], path: str) -> str:
    found = value_at(owner, path)
    return found if isinstance(found, str) else ""


def _group_name(pod: Pod, rule: PodGroupRule) -> str:
    meta = pod.metadata
    given = (meta.labels.get(key) or meta.annotations.get(key, "") for key in rule.keys)
    return next((name for name in given if name), "")


class _Reading:
    """The reading of one pod and its owners."""

    def __init__(
        self,
        pod: Pod,
        chain: Sequence[Level],
        projects: ProjectNamespaces,
        said: Sequence[Mapping[str, str]] = (),
        beside: Sequence[ObjectMeta] = (),
    ) -> None:
        """Group one pod.

        Args:
            pod: the pod.
            chain: its owners with the rules of their kinds, the nearest first.
            projects: what is known of projects.
            said: the fields of a group that it names, as if they were labels.
            beside: the metadata of such a group.
        """
        self.pod = pod
        metas = [found.metadata for _, found, _ in chain if found is not None]
        fields = [_said(found, rule) for _, found, rule in chain]
        self._standing = PodLabels(pod, [*beside, *metas], [*said, *fields])
        self._chain = chain
        self._projects = projects

    def grouped(self) -> Grouped:
        """The group of the topmost owner that starts its pods together, else the pod by itself."""
        for owner, found, rule in reversed(self._chain):
            if rule is not None and rule.how is How.TOGETHER and found is not None:
                return self._together(owner, found, rule) or self.each()
        return self.each()

    def _together(self, owner: Owner, found: Owned, rule: GroupingRule) -> Grouped | None:
        """The gang of an owner; ``None`` where its pods start separately."""
        annotations = found.metadata.annotations
        said = {**msgspec.structs.asdict(found), "metadata": {"annotations": annotations}}
        total = self._standing.min_members
        if total is None and not all(condition_holds(when, said) for when in rule.only_when):
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
        roles = tuple(GangRole(count.name, count.least) for count in beside)
        if sum(one.least for one in roles) <= 1:
            return None
        return self.gang(uid, name, owner.kind, found.metadata, roles, role.name)

    def _role(self, rule: GroupingRule, counts: Sequence[RoleCount]) -> RoleCount | None:
        """The pod's role; ``None`` for a role that its owner does not define."""
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
        meta: ObjectMeta | None,
        roles: tuple[GangRole, ...],
        role: str,
        *,
        whole: bool = False,
    ) -> Grouped:
        """The pod in a gang."""
        grouping = self._grouping(uid, name, kind, meta, roles)
        if whole and grouping.preemptible is Preemptibility.SURPLUS:
            expected = "true, false or left out: its group is preempted as a whole only"
            raise PodRefused("bad_preemptible", PREEMPTIBLE, grouping.preemptible.value, expected)
        return Grouped(replace(grouping, whole=whole) if whole else grouping, role)

    def each(self) -> Grouped:
        """The pod as a workload of its own, named after the topmost owner of a known kind."""
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
        meta: ObjectMeta | None,
        roles: tuple[GangRole, ...] = (),
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


def _preemptible(standing: PodLabels, priority: int, roles: tuple[GangRole, ...]) -> Preemptibility:
    """Protecting a minimum means something for gangs only."""
    said = standing.preemptible(priority)
    return Preemptibility.NO if said is Preemptibility.SURPLUS and not roles else said
