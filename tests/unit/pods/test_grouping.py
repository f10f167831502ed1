"""Pods belong to the workload that whoever made them meant."""

from typing import Any

import pytest

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from unit.pods.making import pod
from unit.pods.owners import PYTORCH, World, pytorch_pod, roles


def test_a_bare_pod_is_its_own_workload() -> None:
    found = World().group(pod("alone", labels={"carrel.dev/project": "vision", "user": "ada"}))
    grouping = found.grouping
    assert (grouping.uid, grouping.name, grouping.kind) == ("default/alone", "alone", "Pod")
    assert (grouping.project, grouping.user, grouping.priority) == ("vision", "ada", 50)
    assert (grouping.preemptible, grouping.controlled) == (Preemptibility.YES, False)
    assert not grouping.is_gang
    assert grouping.created_at == 1767225600.0


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"parallelism": 4, "completions": 4, "completionMode": "Indexed"}, {"": 4}),
        ({"parallelism": 4, "completions": 4}, {}),
        ({"parallelism": 2, "completions": 4, "completionMode": "Indexed"}, {}),
        ({"parallelism": 1, "completions": 1, "completionMode": "Indexed"}, {}),
        ({}, {}),
    ],
)
def test_pods_of_a_job_start_together_if_all_of_them_have_a_number(
    spec: dict[str, Any], expected: dict[str, int]
) -> None:
    world = World()
    job = world.add("batch/v1/Job", "train", spec)
    found = world.group(pod(owner=job))
    assert roles(found) == expected
    assert (found.grouping.name, found.grouping.kind, found.grouping.controlled) == (
        "train",
        "Job",
        True,
    )


@pytest.mark.parametrize("key", ["carrel.dev/min-members", "kai.scheduler/batch-min-member"])
def test_who_says_how_many_start_together_is_believed(key: str) -> None:
    world = World()
    job = world.add("batch/v1/Job", "train", {"parallelism": 4}, annotations={key: "3"})
    assert roles(world.group(pod(owner=job))) == {"": 3}


def test_numbers_of_pods_that_mean_nothing_are_refused() -> None:
    world = World()
    job = world.add("batch/v1/Job", "train", annotations={"carrel.dev/min-members": "all"})
    with pytest.raises(PodRefused, match="bad_min_members"):
        world.group(pod(owner=job))


def test_roles_of_a_kubeflow_job() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    found = world.group(pytorch_pod(job, "worker"))
    assert found.role == "worker"
    assert found.grouping.roles == (GangRole("master", 1), GangRole("worker", 3))
    assert world.group(pytorch_pod(job, "master")).grouping is found.grouping
    assert world.asked == ["ddp"]


def test_fewer_are_enough_where_the_owner_says_so() -> None:
    world = World()
    policy = {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}
    few = world.add("kubeflow.org/v1/PyTorchJob", "few", {**PYTORCH, **policy})
    elastic = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}}
    grows = world.add("kubeflow.org/v1/PyTorchJob", "grows", {**PYTORCH, **elastic})
    assert roles(world.group(pytorch_pod(few, "worker"))) == {"master": 1, "worker": 1}
    assert roles(world.group(pytorch_pod(grows, "worker"))) == {"master": 1, "worker": 2}


def test_a_launcher_that_waits_for_its_workers_is_not_waited_for() -> None:
    specs = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}
    world = World()
    at_once = world.add("kubeflow.org/v2beta1/MPIJob", "at-once", specs)
    later = world.add(
        "kubeflow.org/v2beta1/MPIJob",
        "later",
        {**specs, "launcherCreationPolicy": "WaitForWorkersReady"},
    )
    worker = {"training.kubeflow.org/job-role": "worker"}
    launcher = {"training.kubeflow.org/job-role": "launcher"}
    assert roles(world.group(pod(owner=at_once, labels=worker))) == {"launcher": 1, "worker": 2}
    assert roles(world.group(pod(owner=later, labels=worker))) == {"worker": 2}
    job = world.add("batch/v1/Job", "later-launcher", owner=later)
    found = world.group(pod(owner=job, labels=launcher))
    assert not found.grouping.is_gang
    assert found.grouping.kind == "MPIJob"


def test_a_set_of_jobs_is_one_gang() -> None:
    world = World()
    jobs = [
        {"name": "driver", "template": {"spec": {"parallelism": 1}}},
        {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 4}}},
        {"name": "tail", "template": {"spec": {"parallelism": 9, "completions": 2}}},
    ]
    of = world.add("jobset.x-k8s.io/v1alpha2/JobSet", "set", {"replicatedJobs": jobs})
    job = world.add("batch/v1/Job", "set-workers-0", {"parallelism": 4}, owner=of)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    found = world.group(pod(owner=job, labels=labels))
    assert (found.role, found.grouping.uid, roles(found)) == (
        "workers",
        "uid-set",
        {"driver": 1, "workers": 8, "tail": 2},
    )


def test_jobs_of_a_set_that_come_one_after_the_other_are_gangs_of_their_own() -> None:
    world = World()
    jobs = [
        {"name": "load", "template": {"spec": {"parallelism": 2}}},
        {"name": "train", "replicas": 4, "dependsOn": [{"name": "load", "status": "Complete"}]},
    ]
    train_job = world.add("trainer.kubeflow.org/v1alpha1/TrainJob", "top")
    of = world.add(
        "jobset.x-k8s.io/v1alpha2/JobSet", "set", {"replicatedJobs": jobs}, owner=train_job
    )
    label = "jobset.sigs.k8s.io/replicatedjob-name"
    assert roles(world.group(pod(owner=of, labels={label: "load"}))) == {"load": 2}
    train = world.group(pod(owner=of, labels={label: "train"}))
    assert (train.grouping.uid, roles(train)) == ("uid-set-train", {"train": 4})


@pytest.mark.parametrize("at", ["set", "job"])
def test_pods_of_jobs_that_come_after_their_first_has_its_place_are_not_waited_for(
    at: str,
) -> None:
    """With exclusive placement JobSet refuses a Job's other pods until the first is placed."""
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    by_node = exclusive | {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
    label = "jobset.sigs.k8s.io/replicatedjob-name"

    def set_of(world: World, name: str, given: dict[str, str]) -> dict[str, Any]:
        template: dict[str, Any] = {"spec": {"parallelism": 4}}
        if at == "job":
            template["metadata"] = {"annotations": given}
        jobs = [
            {"name": "driver", "replicas": 2, "template": {"spec": {"parallelism": 1}}},
            {"name": "workers", "replicas": 2, "template": template},
        ]
        kind = "jobset.x-k8s.io/v1alpha2/JobSet"
        spec = {"replicatedJobs": jobs}
        return world.add(kind, name, spec, annotations=given if at == "set" else {})

    world = World()
    of = set_of(world, "exclusive", exclusive)
    worker = world.group(pod(owner=of, labels={label: "workers"}))
    assert (worker.grouping.is_gang, worker.grouping.kind) == (False, "JobSet")
    driver = world.group(pod(owner=of, labels={label: "driver"}))
    assert roles(driver) == ({} if at == "set" else {"driver": 2})
    at_once = set_of(world, "at-once", by_node)
    found = world.group(pod(owner=at_once, labels={label: "workers"}))
    assert roles(found) == {"driver": 2, "workers": 8}


def test_each_replica_of_leader_and_workers_is_a_gang() -> None:
    world = World()
    lws = world.add(
        "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
        "llm",
        {"replicas": 2, "leaderWorkerTemplate": {"size": 3}},
    )
    leaders = world.add("apps/v1/StatefulSet", "llm-sts", owner=lws)
    leader = world.add("v1/Pod", "llm-0", owner=leaders)
    workers = world.add("apps/v1/StatefulSet", "llm-0-sts", owner=leader)
    of = "leaderworkerset.sigs.k8s.io/"
    found = world.group(
        pod(owner=workers, labels={f"{of}group-index": "0", f"{of}worker-index": "2"})
    )
    assert (found.role, found.grouping.uid, found.grouping.name) == ("worker", "uid-llm-0", "llm-0")
    assert (roles(found), found.grouping.priority) == ({"leader": 1, "worker": 2}, 125)
    other = world.group(
        pod(owner=leaders, labels={f"{of}group-index": "1", f"{of}worker-index": "0"})
    )
    assert (other.role, other.grouping.uid) == ("leader", "uid-llm-1")


@pytest.mark.parametrize(
    ("policy", "annotations"),
    [
        ("LeaderReady", {}),
        ("LeaderCreated", {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}),
    ],
)
def test_workers_that_wait_for_their_leader_are_not_waited_for(
    policy: str, annotations: dict[str, str]
) -> None:
    world = World()
    spec = {"startupPolicy": policy, "leaderWorkerTemplate": {"size": 3}}
    kind = "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"
    lws = world.add(kind, "llm", spec, annotations=annotations)
    of = "leaderworkerset.sigs.k8s.io/"
    leader = world.group(pod(owner=lws, labels={f"{of}group-index": "0", f"{of}worker-index": "0"}))
    worker = world.group(pod(owner=lws, labels={f"{of}group-index": "0", f"{of}worker-index": "1"}))
    assert not leader.grouping.is_gang
    assert (worker.grouping.uid, roles(worker)) == ("uid-llm-0-worker", {"worker": 2})


def test_a_ray_cluster_starts_with_the_workers_that_it_needs() -> None:
    world = World()
    groups = [
        {"groupName": "Small", "replicas": 4, "minReplicas": 1, "maxReplicas": 8},
        {"groupName": "tpu", "replicas": 2, "numOfHosts": 4},
        {"groupName": "off", "replicas": 3, "suspend": True},
    ]
    job = world.add("ray.io/v1/RayJob", "job")
    cluster = world.add(
        "ray.io/v1/RayCluster",
        "job-raycluster",
        {"headGroupSpec": {}, "workerGroupSpecs": groups},
        owner=job,
    )
    found = world.group(pod(owner=cluster, labels={"ray.io/group": "Small"}))
    assert (found.role, roles(found)) == ("small", {"headgroup": 1, "small": 1, "tpu": 8})
    submitter = world.add("batch/v1/Job", "job-submitter", owner=job)
    assert not world.group(pod(owner=submitter)).grouping.is_gang


def test_a_ray_cluster_that_scales_itself_waits_for_no_worker_beyond_its_minimum() -> None:
    """What the autoscaler asked for is in ``replicas``; KubeRay keeps it there after a restart."""
    groups = [
        {"groupName": "gpu", "replicas": 3, "minReplicas": 0, "maxReplicas": 8},
        {"groupName": "cpu", "replicas": 5, "minReplicas": 2, "maxReplicas": 8, "numOfHosts": 1},
    ]
    world = World()
    spec = {"headGroupSpec": {}, "workerGroupSpecs": groups}
    fixed = world.add("ray.io/v1/RayCluster", "fixed", spec)
    scales = world.add("ray.io/v1/RayCluster", "scales", {**spec, "enableInTreeAutoscaling": True})
    worker = {"ray.io/group": "gpu"}
    assert roles(world.group(pod(owner=fixed, labels=worker))) == {
        "headgroup": 1,
        "gpu": 3,
        "cpu": 2,
    }
    head = world.group(pod(owner=scales, labels={"ray.io/group": "headgroup"}))
    assert roles(head) == {"headgroup": 1, "cpu": 2}
    assert not world.group(pod(owner=scales, labels=worker)).grouping.is_gang


def test_pods_of_a_role_that_the_owner_does_not_know_go_by_themselves() -> None:
    world = World()
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH)
    found = world.group(pytorch_pod(job, "evaluator"))
    assert (found.grouping.is_gang, found.grouping.kind) == (False, "PyTorchJob")


def test_services_are_served_pod_by_pod_before_trainings() -> None:
    world = World()
    deployment = world.add("apps/v1/Deployment", "web")
    replicas = world.add("apps/v1/ReplicaSet", "web-1", owner=deployment)
    found = world.group(pod("web-1-a", owner=replicas))
    assert (found.grouping.name, found.grouping.is_gang) == ("web", False)
    assert (found.grouping.priority, found.grouping.preemptible) == (125, Preemptibility.NO)


def test_a_notebook_is_interactive() -> None:
    world = World()
    notebook = world.add("kubeflow.org/v1/Notebook", "desk")
    found = world.group(pod(owner=world.add("apps/v1/StatefulSet", "desk-0", owner=notebook)))
    assert (found.grouping.interactive, found.grouping.priority) == (True, 100)


def test_daemon_sets_are_not_ours() -> None:
    world = World()
    with pytest.raises(PodRefused, match="not_ours"):
        world.group(pod(owner=world.add("apps/v1/DaemonSet", "agent")))


@pytest.mark.parametrize(
    ("key", "api"),
    [
        ("carrel.dev/pod-group", "carrel.dev/v1alpha1/PodGroup"),
        ("scheduling.x-k8s.io/pod-group", "scheduling.x-k8s.io/v1alpha1/PodGroup"),
        ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/v1beta1/PodGroup"),
    ],
)
def test_pods_may_name_their_group(key: str, api: str) -> None:
    world = World()
    with pytest.raises(PodRefused, match="no_pod_group"):
        world.group(pod(labels={key: "g"}))
    world.add(api, "g", {"minMember": 5})
    world.now += 6
    found = world.group(pod(labels={key: "g"}))
    assert (found.grouping.name, found.role, roles(found)) == ("g", "", {"": 5})


def test_pods_may_say_themselves_how_many_of_a_group_there_are() -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    total = {"kueue.x-k8s.io/pod-group-total-count": "3"}
    found = World().group(pod(labels=labels, annotations=total))
    assert (found.grouping.uid, roles(found)) == ("default/g", {"": 3})


@pytest.mark.parametrize(
    ("namespace", "labels", "project"),
    [
        ("default", {"carrel.dev/project": "speech"}, "speech"),
        ("default", {"kai.scheduler/queue": "speech"}, "speech"),
        ("default", {"kueue.x-k8s.io/queue-name": "speech"}, "speech"),
        ("default", {"kueue.x-k8s.io/queue-name": "local-queue"}, "default"),
        ("default", {"carrel.dev/project": "not-there-yet"}, "not-there-yet"),
        ("default", {}, "default"),
        ("carrel-vision", {}, "vision"),
        ("carrel-vision", {"kueue.x-k8s.io/queue-name": "local-queue"}, "vision"),
        ("carrel-vision", {"carrel.dev/project": "vision"}, "vision"),
        ("lab", {}, "speech"),
    ],
)
def test_whose_quota_it_counts_for(namespace: str, labels: dict[str, str], project: str) -> None:
    found = World(lab="speech").group(pod(namespace=namespace, labels=labels))
    assert found.grouping.project == project


def test_queues_that_owners_name_in_their_own_fields_count() -> None:
    world = World()
    tasks = [{"name": "ps", "replicas": 1}, {"name": "worker", "replicas": 3, "minAvailable": 2}]
    job = world.add("batch.volcano.sh/v1alpha1/Job", "vc", {"queue": "speech", "tasks": tasks})
    found = world.group(pod(owner=job, labels={"volcano.sh/task-spec": "worker"}))
    assert (found.grouping.project, roles(found)) == ("speech", {"ps": 1, "worker": 2})
    policy = {"runPolicy": {"schedulingPolicy": {"queue": "speech"}}}
    ddp = world.add("kubeflow.org/v1/PyTorchJob", "ddp", {**PYTORCH, **policy})
    assert world.group(pytorch_pod(ddp, "worker")).grouping.project == "speech"
    spec = {"minMember": 2, "queue": "speech", "priorityClassName": "high"}
    world.add("carrel.dev/v1alpha1/PodGroup", "g", spec)
    grouping = world.group(pod(labels={"carrel.dev/pod-group": "g"})).grouping
    assert (grouping.project, grouping.priority) == ("speech", 100)
    odd = world.add("batch.volcano.sh/v1alpha1/Job", "odd", {"queue": 7})
    assert world.group(pod(owner=odd)).grouping.project == "default"


RACK = "topology.example/rack"


def test_a_gang_lies_where_its_owner_says() -> None:
    world = World()
    annotations = {
        "carrel.dev/topology-required": RACK,
        "carrel.dev/topology-preferred": "kubernetes.io/hostname",
    }
    job = world.add("kubeflow.org/v1/PyTorchJob", "ddp", PYTORCH, annotations=annotations)
    structure = world.group(pytorch_pod(job, "worker")).grouping.structure
    assert structure == Group(
        name="ddp",
        groups=(Group(name="master"), Group(name="worker")),
        level=Level(required=RACK, preferred=HOST),
    )


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}}, Level(required=RACK)),
        (
            {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": RACK}},
            Level(preferred=RACK),
        ),
        ({"labels": {"app": "x"}, "near": "app"}, Level(required=RACK)),
        ({"labels": {"app": "x"}, "near": "other"}, None),
        ({}, None),
    ],
)
def test_pods_of_a_gang_of_one_role_say_it_themselves(
    more: dict[str, Any], level: Level | None
) -> None:
    world = World()
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    job = world.add("batch/v1/Job", "train", spec)
    if near := more.pop("near", ""):
        term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {near: "x"}}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        more["affinity"] = {"podAffinity": required}
    grouping = world.group(pod(owner=job, **more)).grouping
    assert (grouping.structure and grouping.structure.level) == level
    alone = world.group(pod(**more)).grouping
    assert alone.structure is None


@pytest.mark.parametrize("key", ["carrel.dev/project", "run.ai/queue"])
def test_a_projects_namespace_is_for_that_project_only(key: str) -> None:
    with pytest.raises(PodRefused) as refused:
        World(lab="vision").group(pod(namespace="lab", labels={key: "speech"}))
    assert refused.value.code == "other_project"


def test_labels_of_owners_count_unless_the_pod_has_its_own() -> None:
    world = World()
    labels = {"carrel.dev/project": "speech", "priorityClassName": "high"}
    job = world.add("batch/v1/Job", "train", labels=labels)
    found = world.group(pod(owner=job))
    assert (found.grouping.project, found.grouping.priority) == ("speech", 100)
    own = world.group(pod(owner=job, labels={"carrel.dev/project": "vision"}))
    assert own.grouping.project == "vision"


@pytest.mark.parametrize(
    ("labels", "spec", "priority", "preemptible"),
    [
        ({}, {}, 50, Preemptibility.YES),
        ({"carrel.dev/priority": "low"}, {}, 30, Preemptibility.YES),
        ({"carrel.dev/priority": "77"}, {}, 77, Preemptibility.YES),
        ({}, {"priorityClassName": "inference", "priority": 9}, 125, Preemptibility.NO),
        ({}, {"priorityClassName": "theirs", "priority": 42}, 42, Preemptibility.YES),
        ({"carrel.dev/preemptible": "false"}, {}, 50, Preemptibility.NO),
        (
            {"kai.scheduler/preemptibility": "preemptible", "priorityClassName": "build"},
            {},
            100,
            Preemptibility.YES,
        ),
        ({"carrel.dev/preemptible": "semi-preemptible"}, {}, 50, Preemptibility.NO),
    ],
)
def test_priority_and_who_may_be_told_to_stop(
    labels: dict[str, str], spec: dict[str, Any], priority: int, preemptible: Preemptibility
) -> None:
    found = World().group(pod(labels=labels, **spec)).grouping
    assert (found.priority, found.preemptible) == (priority, preemptible)


def test_who_preempts_nobody_makes_nobody_give_way() -> None:
    assert World().group(pod(preemptionPolicy="Never")).grouping.preemption_delay_s > 10**8
    assert World().group(pod()).grouping.preemption_delay_s == 0
