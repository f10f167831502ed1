"""Rules of grouping by the kind of a pod's owner. Data: a new kind is an entry here.

A pod's owners are walked upwards; the topmost one whose rule makes groups decides (``grouping``).
Paths are keys of the owner with dots between; ``role_counts`` reads owners by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class How(StrEnum):
    """The effect of a kind on its pods."""

    EACH = "each"
    """Each pod is a workload of its own: it runs whether or not its siblings do."""
    TOGETHER = "together"
    """The pods start together."""
    BELOW = "below"
    """The owner only makes owners of pods: the next owner down decides."""
    NEVER = "never"
    """The pods are not placed by Carrel."""


class RoleLayout(StrEnum):
    """The form in which an owner lists its roles."""

    MAP = "map"
    """Role -> entry."""
    LIST = "list"
    """Entries with names."""
    ONE = "one"
    """One entry, of one role."""


@dataclass(frozen=True, slots=True)
class OwnerFieldCondition:
    """The owner has ``value`` at ``path``; with ``same_as`` the same number as there."""

    path: str
    value: str = ""
    same_as: str = ""


@dataclass(frozen=True, slots=True)
class ExclusivePlacement:
    """Annotations with which only the first pod of a role exists until it has its place.

    The role's pods cannot start together then: the others would be waited for in vain.

    Attributes:
        annotation: of the owner, or of the template of a role's entry.
        unless: with this one beside it all pods exist at once.
    """

    annotation: str
    unless: str = ""

    def applies(self, *annotations: object) -> bool:
        """Whether annotations of any of these places ask for it."""
        given = [one for one in annotations if isinstance(one, Mapping)]
        found = any(self.annotation in one for one in given)
        return found and not any(self.unless in one for one in given)


@dataclass(frozen=True, slots=True)
class Roles:
    """Place of an owner's list of the roles of its pods, and of the number of pods of each.

    Attributes:
        path: of the list.
        shape: its form.
        name: the key of an entry's name in a list; of a single entry the role itself.
        counts: paths in the entry whose numbers are multiplied, each 1 where it is not given.
        less: so many of them belong to another role.
        least: path in the entry; where it is above 0 it replaces the first of ``counts``.
        elastic: path in the owner; where it is true, others add pods later, and a ``least`` of 0
            counts, too.
        most: path in the entry that no entry's last count goes beyond (completions of a Job).
        skip: path in the entry; where it is true the role has no pods.
        after: path in the entry; where it is not empty the role's pods come after others ran, so
            they start together by themselves.
        exclusive: with it each of the role's pods starts by itself.
    """

    path: str
    shape: RoleLayout = RoleLayout.MAP
    name: str = ""
    counts: tuple[str, ...] = ("replicas",)
    less: int = 0
    least: str = ""
    elastic: str = ""
    most: str = ""
    skip: str = ""
    after: str = ""
    exclusive: ExclusivePlacement | None = None


@dataclass(frozen=True, slots=True)
class GroupingRule:
    """The rule of a kind.

    Attributes:
        group: API group, any version; empty for Kubernetes' core.
        how: see ``How``.
        only_when: they start together only if all of these hold, else each by itself; who says
            how many start together has decided it.
        roles: how many pods of which roles.
        role_labels: labels of a pod that say its role; the first that is there.
        lead: value of ``role_labels`` -> role, where it is a number and not a name.
        others: the role of all values that ``lead`` does not name.
        least: paths of the smallest number of pods over all roles; the first that is given.
        least_of: role -> path of its smallest number.
        split: a label of pods: one group for each of its values.
        apart: roles (``*`` all) whose pods come after others ran, and when that is so.
        exclusive: with it those of ``others`` come after the leader has its place.
        priority: the named priority that its pods have by default.
        interactive: somebody waits in front of it.
        queue: path of the name of a queue.
    """

    group: str
    kind: str
    how: How = How.EACH
    only_when: tuple[OwnerFieldCondition, ...] = ()
    roles: tuple[Roles, ...] = ()
    role_labels: tuple[str, ...] = ()
    lead: tuple[tuple[str, str], ...] = ()
    others: str = ""
    least: tuple[str, ...] = ()
    least_of: tuple[tuple[str, str], ...] = ()
    split: str = ""
    apart: tuple[tuple[str, OwnerFieldCondition], ...] = ()
    exclusive: ExclusivePlacement | None = None
    priority: str = "train"
    interactive: bool = False
    queue: str = ""


@dataclass(frozen=True, slots=True)
class PodGroupRule:
    """A rule for pods that name their group themselves, whoever owns them.

    Attributes:
        keys: labels or annotations of pods whose value is the group's name.
        group, kind: of the object with their number; empty where there is none.
        least, queue, priority: paths in it.
        total: annotation of the pods with their number, where no object has it.
    """

    keys: tuple[str, ...]
    group: str = ""
    kind: str = "PodGroup"
    least: str = "spec.minMember"
    queue: str = "spec.queue"
    priority: str = "spec.priorityClassName"
    total: str = ""


TRAINING: Final = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
_POLICY: Final = (
    "spec.runPolicy.schedulingPolicy.minAvailable",
    "spec.schedulingPolicy.minAvailable",
)

_ELASTIC: Final = (("worker", "spec.elasticPolicy.minReplicas"),)
_LAUNCHER_LATER: Final = (
    ("launcher", OwnerFieldCondition("spec.launcherCreationPolicy", "WaitForWorkersReady")),
)


def _kubeflow(
    kind: str,
    specs: str,
    least_of: tuple[tuple[str, str], ...] = (),
    apart: tuple[tuple[str, OwnerFieldCondition], ...] = (),
) -> GroupingRule:
    return GroupingRule(
        "kubeflow.org",
        kind,
        How.TOGETHER,
        roles=(Roles(f"spec.{specs}"),),
        role_labels=TRAINING,
        least=_POLICY,
        queue="spec.runPolicy.schedulingPolicy.queue",
        least_of=least_of,
        apart=apart,
    )


RULES: Final[tuple[GroupingRule, ...]] = (
    # Kubernetes' own
    GroupingRule("", "Pod"),
    GroupingRule("", "ReplicationController", priority="inference"),
    GroupingRule("apps", "ReplicaSet", priority="inference"),
    GroupingRule("apps", "Deployment", priority="inference"),
    GroupingRule("apps", "StatefulSet"),
    GroupingRule("apps", "DaemonSet", How.NEVER),
    GroupingRule("batch", "CronJob", How.BELOW),
    GroupingRule(
        "batch",
        "Job",
        How.TOGETHER,
        only_when=(
            OwnerFieldCondition("spec.completionMode", "Indexed"),
            OwnerFieldCondition("spec.parallelism", same_as="spec.completions"),
        ),
        roles=(Roles("spec", RoleLayout.ONE, counts=("parallelism",)),),
    ),
    # Groups of jobs and of pods
    GroupingRule(
        "jobset.x-k8s.io",
        "JobSet",
        How.TOGETHER,
        roles=(
            Roles(
                "spec.replicatedJobs",
                RoleLayout.LIST,
                "name",
                ("replicas", "template.spec.parallelism"),
                most="template.spec.completions",
                after="dependsOn",
                exclusive=ExclusivePlacement(
                    "alpha.jobset.sigs.k8s.io/exclusive-topology",
                    unless="alpha.jobset.sigs.k8s.io/node-selector",
                ),
            ),
        ),
        role_labels=("jobset.sigs.k8s.io/replicatedjob-name",),
        apart=(("*", OwnerFieldCondition("spec.startupPolicy.startupPolicyOrder", "InOrder")),),
    ),
    GroupingRule(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        How.TOGETHER,
        roles=(
            Roles("spec", RoleLayout.ONE, "leader", counts=()),
            Roles("spec.leaderWorkerTemplate", RoleLayout.ONE, "worker", ("size",), less=1),
        ),
        role_labels=("leaderworkerset.sigs.k8s.io/worker-index",),
        lead=(("0", "leader"),),
        others="worker",
        split="leaderworkerset.sigs.k8s.io/group-index",
        apart=(("worker", OwnerFieldCondition("spec.startupPolicy", "LeaderReady")),),
        exclusive=ExclusivePlacement("leaderworkerset.sigs.k8s.io/exclusive-topology"),
        priority="inference",
    ),
    # Kubeflow
    _kubeflow("PyTorchJob", "pytorchReplicaSpecs", least_of=_ELASTIC),
    _kubeflow("TFJob", "tfReplicaSpecs"),
    _kubeflow("XGBoostJob", "xgbReplicaSpecs"),
    _kubeflow("JAXJob", "jaxReplicaSpecs"),
    _kubeflow("PaddleJob", "paddleReplicaSpecs", least_of=_ELASTIC),
    _kubeflow("MPIJob", "mpiReplicaSpecs", apart=_LAUNCHER_LATER),
    GroupingRule("trainer.kubeflow.org", "TrainJob", How.BELOW),
    GroupingRule("kubeflow.org", "Notebook", priority="build", interactive=True),
    # Ray
    GroupingRule(
        "ray.io",
        "RayCluster",
        How.TOGETHER,
        roles=(
            Roles("spec.headGroupSpec", RoleLayout.ONE, "headgroup", counts=()),
            Roles(
                "spec.workerGroupSpecs",
                RoleLayout.LIST,
                "groupName",
                ("replicas", "numOfHosts"),
                least="minReplicas",
                elastic="spec.enableInTreeAutoscaling",
                skip="suspend",
            ),
        ),
        role_labels=("ray.io/group",),
    ),
    GroupingRule("ray.io", "RayJob", How.BELOW),
    GroupingRule("ray.io", "RayService", How.BELOW, priority="inference"),
    # Volcano
    GroupingRule(
        "batch.volcano.sh",
        "Job",
        How.TOGETHER,
        roles=(Roles("spec.tasks", RoleLayout.LIST, "name", least="minAvailable"),),
        role_labels=("volcano.sh/task-spec",),
        least=("spec.minAvailable",),
        queue="spec.queue",
    ),
    # Serving
    GroupingRule("serving.knative.dev", "Service", priority="inference"),
    GroupingRule("serving.kserve.io", "InferenceService", priority="inference"),
    GroupingRule("machinelearning.seldon.io", "SeldonDeployment", priority="inference"),
    # Owners whose pods come one after the other
    GroupingRule("sparkoperator.k8s.io", "SparkApplication"),
    GroupingRule("argoproj.io", "Workflow"),
    GroupingRule("tekton.dev", "PipelineRun"),
    GroupingRule("tekton.dev", "TaskRun"),
    GroupingRule("workload.codeflare.dev", "AppWrapper", How.BELOW),
)

POD_GROUPS: Final[tuple[PodGroupRule, ...]] = (
    PodGroupRule(("carrel.dev/pod-group",), "carrel.dev"),
    PodGroupRule(("scheduling.x-k8s.io/pod-group",), "scheduling.x-k8s.io"),
    PodGroupRule(("pod-group.scheduling.sigs.k8s.io",), "scheduling.x-k8s.io"),
    PodGroupRule(("scheduling.k8s.io/group-name",), "scheduling.volcano.sh"),
    PodGroupRule(("kueue.x-k8s.io/pod-group-name",), total="kueue.x-k8s.io/pod-group-total-count"),
)
