"""Project, user, priority and topology of a pod, from its labels and those of its owners.

Labels are looked for on the pod first, then on its owners from the nearest to the topmost. Names
that other schedulers use are understood; ours take precedence.

Labels can change while a pod runs. Its binding therefore records what it was counted as
(``CountedGrouping``), and after a restart the scheduler counts a running pod by this annotation,
so that nobody gets out of a quota by removing a label. Only the scheduler may write it
(``deploy/kubernetes/policies``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import msgspec

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.core.settings import NAMED
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.selectors import selects
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta, Pod
from carrel_schema.names import COUNTED, GROUP, NAMESPACE_PREFIX, PROJECT, USER


@dataclass(frozen=True, slots=True)
class GangRole:
    """Pods of one kind in a gang; ``least`` of them start together with the other roles."""

    name: str
    least: int


@dataclass(frozen=True, slots=True)
class Grouping:
    """The project, user and group of pods.

    Attributes:
        uid: of the object at the top: a job, a group, or the pod itself.
        kind: of that object.
        roles: of a gang; empty where each pod is placed for itself.
        structure: of a gang, how its roles hang together, with leaves of one role each and no
            requests; ``None``: all roles side by side.
        priority: as the core sorts.
        controlled: pods that are lost are made again by a controller.
        created_at: of the object at the top; pods that come again keep its place in the queue.
        preemption_delay_s: it preempts nothing before it has waited so long.
        whole: its pods are preempted together or not at all.
    """

    uid: str
    name: str
    project: str
    user: str = ""
    kind: str = "Pod"
    priority: int = 50
    preemptible: Preemptibility = Preemptibility.YES
    interactive: bool = False
    controlled: bool = False
    created_at: float = 0.0
    roles: tuple[GangRole, ...] = ()
    structure: Group | None = None
    preemption_delay_s: float = 0.0
    whole: bool = False

    @property
    def is_gang(self) -> bool:
        """Whether the pods start together or not at all."""
        return bool(self.roles)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The group of a pod, and its role there."""

    grouping: Grouping
    role: str = ""


class CountedGrouping(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The parts of a grouping that decide a pod's limits."""

    project: str
    user: str = ""
    priority: int = 50
    preemptible: Preemptibility = Preemptibility.YES
    interactive: bool = False


def counted_annotation(grouping: Grouping) -> str:
    """The annotation's text."""
    counted = CountedGrouping(
        grouping.project,
        grouping.user,
        grouping.priority,
        grouping.preemptible,
        grouping.interactive,
    )
    return msgspec.json.encode(counted).decode()


def read_counted(annotations: Mapping[str, str]) -> CountedGrouping | None:
    """The annotation's value; ``None`` if it is missing or invalid."""
    try:
        return msgspec.json.decode(annotations.get(COUNTED, ""), type=CountedGrouping)
    except msgspec.DecodeError:
        return None


def as_counted(grouping: Grouping, counted: CountedGrouping) -> Grouping:
    """The grouping as recorded when the pod was bound."""
    return replace(
        grouping,
        project=counted.project,
        user=counted.user,
        priority=counted.priority,
        preemptible=counted.preemptible,
        interactive=counted.interactive,
    )


SAID_QUEUE: Final = "queue"
PREEMPTION_POLICY: Final = "preemptionPolicy"
"""Fields of an owner or group, as if they were labels."""
PROJECT_ALIASES: Final = (
    "run.ai/queue",
    "runai/queue",
    "kai.scheduler/queue",
    "kueue.x-k8s.io/queue-name",
    "volcano.sh/queue-name",
    "scheduling.volcano.sh/queue-name",
    "project",
    SAID_QUEUE,
)
USER_ALIASES: Final = ("user", "run.ai/user", "hub.jupyter.org/username")
PRIORITY: Final = f"{GROUP}/priority"
PRIORITY_ALIASES: Final = ("priorityClassName", "kueue.x-k8s.io/priority-class")
PREEMPTIBLE: Final = f"{GROUP}/preemptible"
PREEMPTIBLE_ALIASES: Final = ("kai.scheduler/preemptibility", "run.ai/preemptibility")
MIN_MEMBERS: Final = f"{GROUP}/min-members"
MIN_MEMBERS_ALIASES: Final = ("kai.scheduler/batch-min-member",)
NEVER_SECONDS: Final = 10 * 365 * 86400.0
"""The wait of work of a class that never preempts."""
MOST_PRIORITY: Final = 2**31 - 1
"""Kubernetes knows no higher one."""
MOST_PODS: Final = 100_000
"""The largest number of pods that a group waits for."""
_MOST_DIGITS: Final = 11
_MOST_SHOWN: Final = 40
_YES: Final = ("true", "yes", "preemptible")
_NO: Final = ("false", "no", "non-preemptible")
_SEMI: Final = ("semi-preemptible",)


class ProjectNamespaces(Protocol):
    """The projects and their namespaces."""

    def known(self, name: str) -> bool:
        """Whether the project exists."""
        ...

    def of_namespace(self, namespace: str) -> str:
        """The project of a namespace; empty for none."""
        ...


class PodLabels:
    """The relevant labels and annotations of a pod."""

    def __init__(
        self, pod: Pod, owners: Sequence[ObjectMeta], said: Sequence[Mapping[str, str]] = ()
    ) -> None:
        """Read the labels and annotations of a pod and its owners.

        Args:
            pod: the pod.
            owners: from the nearest to the topmost.
            said: fields of owners, as if they were labels.
        """
        self.pod = pod
        about = [part for meta in owners for part in (meta.labels, meta.annotations)]
        self.of_owners = [*about, *said]
        self._all = [pod.metadata.labels, pod.metadata.annotations, *self.of_owners]

    def label(self, *keys: str) -> str:
        """The first existing of these labels or annotations; empty without any."""
        for key in keys:
            for labels in self._all:
                if labels.get(key):
                    return labels[key]
        return ""

    def project(self, projects: ProjectNamespaces) -> str:
        """The project whose quota the pod counts against.

        A namespace of a project is for that project's work only, whatever labels say; elsewhere a
        label says it. A label of other schedulers counts where it names a project.

        Raises:
            PodRefused: ``other_project``.
        """
        namespace = self.pod.metadata.namespace
        own = projects.of_namespace(namespace)
        if not own and namespace.startswith(NAMESPACE_PREFIX):
            own = namespace.removeprefix(NAMESPACE_PREFIX)
        named = self.label(PROJECT) or self._alias(projects)
        if own and named and named != own:
            expected = f"`{own}`, to which the namespace `{namespace}` belongs, or left out"
            raise PodRefused("other_project", PROJECT, named, expected)
        return own or named or namespace

    def _alias(self, projects: ProjectNamespaces) -> str:
        found = (self.label(key) for key in PROJECT_ALIASES)
        return next((name for name in found if name and projects.known(name)), "")

    @property
    def user(self) -> str:
        """The owner of the work, if known."""
        return self.label(USER, *USER_ALIASES)

    def priority(self, default: str) -> int:
        """The priority in the core's terms: a named level, else that of the priority class."""
        named = self.label(PRIORITY, *PRIORITY_ALIASES)
        if named in NAMED:
            return NAMED[named]
        if named.removeprefix("-").isdecimal():
            return _number(PRIORITY, named, -MOST_PRIORITY, MOST_PRIORITY, "bad_priority")
        if self.pod.spec.priority_class_name in NAMED:
            return NAMED[self.pod.spec.priority_class_name]
        return self.pod.spec.priority or NAMED[default]

    def preemptible(self, priority: int) -> Preemptibility:
        """Whether it is preemptible: by its label, else if its priority is below ``build``."""
        said = self.label(PREEMPTIBLE, *PREEMPTIBLE_ALIASES).lower()
        if said in _YES:
            return Preemptibility.YES
        if said in _NO:
            return Preemptibility.NO
        if said in _SEMI:
            return Preemptibility.SURPLUS
        if said:
            raise PodRefused("bad_preemptible", PREEMPTIBLE, said, "true, false or left out")
        return Preemptibility.NO if priority >= NAMED["build"] else Preemptibility.YES

    @property
    def preemption_delay_s(self) -> float:
        """The delay before others are evicted for the pod."""
        said = (self.pod.spec.preemption_policy, self.label(PREEMPTION_POLICY))
        return NEVER_SECONDS if "Never" in said else 0.0

    @property
    def min_members(self) -> int | None:
        """The number of pods that start together, where a label beside the owner's says so."""
        said = self.label(MIN_MEMBERS, *MIN_MEMBERS_ALIASES)
        if not said:
            return None
        return count_of_pods(MIN_MEMBERS, said, "bad_min_members")


def count_of_pods(field: str, written: str, code: str) -> int:
    """A number of pods that start together.

    Raises:
        PodRefused: ``code``.
    """
    return _number(field, written, 1, MOST_PODS, code)


def _number(field: str, written: str, least: int, most: int, code: str) -> int:
    """A whole number; user input may have thousands of digits, or none."""
    digits = written.removeprefix("-").isdecimal() and len(written) <= _MOST_DIGITS
    if not digits or not least <= int(written) <= most:
        raise PodRefused(code, field, written[:_MOST_SHOWN], f"a number from {least} to {most}")
    return int(written)


REQUIRED: Final = (
    f"{GROUP}/topology-required",
    "kai.scheduler/topology-required-placement",
    "kueue.x-k8s.io/podset-required-topology",
)
PREFERRED: Final = (
    f"{GROUP}/topology-preferred",
    "kai.scheduler/topology-preferred-placement",
    "kueue.x-k8s.io/podset-preferred-topology",
)
HOSTNAME: Final = "kubernetes.io/hostname"


def structure_of(
    name: str, roles: Sequence[GangRole], pod: Pod, owners: Sequence[Mapping[str, str]]
) -> Group | None:
    """The topology of a gang's roles; ``None`` without one.

    Args:
        name: of the gang.
        roles: of the gang.
        pod: one of its pods.
        owners: labels and annotations of the pod's owners.
    """
    said = list(owners)
    if len(roles) == 1:
        said = [pod.metadata.labels, pod.metadata.annotations, *said]
    required, preferred = _first_key(said, REQUIRED), _first_key(said, PREFERRED)
    if not required and len(roles) == 1:
        required = _near_its_own(pod)
    if not required and not preferred:
        return None
    level = Level(required=required, preferred=preferred)
    if len(roles) == 1:
        return Group(name=roles[0].name, level=level)
    return Group(name=name, groups=tuple(Group(name=role.name) for role in roles), level=level)


def level_key(key: str) -> str:
    """The core's name of a topology level for a node label."""
    return HOST if key == HOSTNAME else key


def _first_key(said: Sequence[Mapping[str, str]], keys: Sequence[str]) -> str:
    found = (labels[key] for key in keys for labels in said if labels.get(key))
    return level_key(next(found, ""))


def _near_its_own(pod: Pod) -> str:
    """The level at which a pod has to be near to pods like itself; empty where it has not."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_affinity is None:
        return ""
    for term in affinity.pod_affinity.required:
        if not term.namespaces and selects(term.label_selector, pod.metadata.labels):
            return level_key(term.topology_key)
    return ""
