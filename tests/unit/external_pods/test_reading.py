"""Whom a pod counts for: by its labels while it waits, by its binding once it runs."""

from typing import Any

import pytest

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    ExternalPodSeen,
    TaskPodSeen,
    UnmanagedPodSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.reading import PodReader
from carrel_scheduler.engines.kubernetes.pods import labels
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.names import COUNTED, DEVICES, MIG_SLOTS
from unit.pods.making import pod
from unit.pods.owners import World

BOUND = labels.counted_annotation(
    Grouping("u", "u", "vision", "ada", priority=50, preemptible=Preemptibility.YES)
)


def running(annotations: dict[str, str] | None = None, **more: Any) -> Pod:
    notes = {COUNTED: BOUND} if annotations is None else annotations
    return pod(schedulerName="carrel", node="n", annotations=notes, **more)


async def read(one: Pod, world: World | None = None) -> Any:
    return await PodReader((world or World()).grouper).seen(one)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"carrel.dev/project": "speech", "carrel.dev/user": "grace"},
        {"carrel.dev/priority": "1000", "carrel.dev/preemptible": "false"},
        {"carrel.dev/preemptible": "perhaps"},
        {"carrel.dev/pod-group": "gone"},
    ],
)
async def test_a_pod_that_runs_counts_as_when_it_was_bound(labels: dict[str, str]) -> None:
    seen = await read(running(labels=labels))
    assert isinstance(seen, ExternalPodSeen)
    found = seen.pod.grouping
    assert (found.project, found.user, found.priority) == ("vision", "ada", 50)
    assert found.preemptible is Preemptibility.YES


async def test_a_pod_that_waits_counts_as_it_says_by_now() -> None:
    waiting = pod(
        schedulerName="carrel",
        annotations={COUNTED: BOUND},
        labels={"carrel.dev/project": "speech"},
    )
    assert (await read(waiting)).pod.grouping.project == "speech"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"project": 1}', "9" * 5000])
async def test_what_an_older_scheduler_bound_counts_by_its_labels(text: str) -> None:
    seen = await read(running({COUNTED: text}, labels={"carrel.dev/project": "speech"}))
    assert seen.pod.grouping.project == "speech"


async def test_only_in_namespaces_of_projects_a_label_says_that_a_pod_is_our_own() -> None:
    """Elsewhere anybody may write it, and what it uses would not be counted."""
    labels = {"carrel.dev/task": "uid-0-0"}
    assert isinstance(await read(running(labels=labels, namespace="carrel-vision")), TaskPodSeen)
    elsewhere = await read(running(labels=labels, namespace="default"))
    assert isinstance(elsewhere, ExternalPodSeen)


async def test_without_a_word_about_it_what_cannot_be_understood_is_a_strangers() -> None:
    labels = {"carrel.dev/preemptible": "perhaps"}
    assert isinstance(await read(running({}, labels=labels)), UnmanagedPodSeen)


async def test_the_binding_says_which_gpu_and_which_slots_of_it_a_pod_has() -> None:
    notes = {COUNTED: BOUND, DEVICES: "1", MIG_SLOTS: "240"}
    bound = (await read(running(notes))).pod
    assert (bound.devices, bound.slots) == ((1,), 0b11110000)
    made_up = pod(schedulerName="carrel", annotations=notes)
    assert (await read(made_up)).pod.slots == 0, "nobody has a place before it is bound"
