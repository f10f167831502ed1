"""What pods say of their tasks, as nodes and controllers write it."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.engines.kubernetes.tasks import status
from carrel_scheduler.engines.kubernetes.tasks.status import ENDED_EARLY
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod

TASK = TaskId("u1", 0, 0)
BEGAN, ENDED = "2026-11-21T10:00:00Z", "2026-11-21T10:05:00Z"
AT = 1795255500.0  # ENDED


def a_pod(**told: Any) -> TaskPod:
    meta = {
        "name": "u1-0-0",
        "uid": "p1",
        "creationTimestamp": "2026-11-21T09:59:00Z",
        "labels": {"carrel.dev/task": "u1-0-0"},
        "annotations": {"carrel.dev/devices": "1,3"},
        "finalizers": ["carrel.dev/seen"],
        **told.pop("metadata", {}),
    }
    spec = {"nodeName": "n1", "containers": [{"name": "task"}], **told.pop("spec", {})}
    state = told.pop("state", None)
    seen = {"phase": "Running", "podIP": "10.0.0.7", **told}
    if state is not None:
        seen["containerStatuses"] = [{"name": "task", "state": state}]
    return msgspec.convert({"metadata": meta, "spec": spec, "status": seen}, TaskPod)


def terminated(code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "startedAt": BEGAN, "finishedAt": ENDED, **more}}


def read(pod: TaskPod, now: float = AT, asked: str = "") -> TaskStatus:
    return status.read(pod, TASK, now, asked=asked)


def test_a_running_task() -> None:
    found = read(a_pod(state={"running": {"startedAt": BEGAN}}))
    assert (found.phase, found.started_at) == (TaskPhase.RUNNING, AT - 300)
    assert (found.node, found.devices, found.address) == ("n1", (1, 3), "10.0.0.7")


@pytest.mark.parametrize(
    ("code", "exit_code", "signal"),
    [(0, 0, 0), (7, 7, 0), (127, 127, 0), (139, None, 11), (137, None, 9), (255, 255, 0)],
)
def test_ends(code: int, exit_code: int | None, signal: int) -> None:
    phase = "Failed" if code else "Succeeded"
    found = read(a_pod(phase=phase, state=terminated(code)))
    assert (found.exit_code, found.signal, found.lost) == (exit_code, signal, False)
    assert (found.started_at, found.ended_at) == (AT - 300, AT)


def test_a_container_that_ended_has_not_ended_the_task_before_its_node_says_so() -> None:
    assert read(a_pod(state=terminated(0))).phase is TaskPhase.STARTING


def test_killed_for_memory_says_so() -> None:
    found = read(a_pod(phase="Failed", state=terminated(137, reason="OOMKilled")))
    assert "memory" in found.message
    assert not found.lost


def test_told_by_us_with_a_deadline_is_an_end_like_any_other() -> None:
    pod = a_pod(phase="Failed", reason="DeadlineExceeded", message="x", state=terminated(3))
    found = read(pod)
    assert (found.exit_code, found.lost, found.message) == (3, False, "")


def test_told_to_end_before_it_began() -> None:
    found = read(a_pod(phase="Failed", reason="DeadlineExceeded"))
    assert (found.exit_code, found.signal, found.message) == (None, 15, ENDED_EARLY)
    waited = read(a_pod(phase="Failed"), asked="its image cannot be pulled")
    assert (waited.signal, waited.message) == (0, "its image cannot be pulled")
    unbound = a_pod(metadata={"deletionTimestamp": ENDED}, spec={"nodeName": ""}, phase="Pending")
    assert read(unbound).phase is TaskPhase.ENDED


@pytest.mark.parametrize(
    ("told", "words", "loss"),
    [
        (
            {"reason": "Evicted", "message": "low on memory."},
            "short of resources (low on memory)",
            "node",
        ),
        ({"reason": "NodeShutdown"}, "shut down", "node"),
        (
            {"conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
            ]},
            "node is gone",
            "node",
        ),
        (
            {"conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "GpuReservationLost"}
            ]},
            "its GPU may be given to others",
            "gpu",
        ),
        (
            {"conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            ]},
            "another scheduler",
            "",
        ),
        ({"metadata": {"deletionTimestamp": ENDED}}, "was deleted", ""),
    ],
)  # fmt: skip
def test_ended_by_others_is_lost_and_says_by_whom(
    told: dict[str, Any], words: str, loss: str
) -> None:
    found = read(a_pod(phase="Failed", state=terminated(143), **told))
    assert found.lost
    assert words in found.message
    assert found.loss == loss
    done = read(a_pod(phase="Succeeded", state=terminated(0), **told))
    assert not done.lost, "work that is done is done"


def test_deleted_by_us_is_not_lost() -> None:
    pod = a_pod(phase="Failed", state=terminated(143), metadata={"deletionTimestamp": ENDED})
    assert not read(pod, asked=ENDED_EARLY).lost


def test_a_silent_node_loses_its_pods_after_a_while() -> None:
    leaving = {"deletionTimestamp": ENDED}
    pod = a_pod(metadata=leaving, state={"running": {"startedAt": BEGAN}})
    assert read(pod, AT + 29).phase is TaskPhase.RUNNING
    found = read(pod, AT + 30)
    assert (found.phase, found.lost) == (TaskPhase.ENDED, True)
    assert status.look_again_at(pod, 600) == AT + 30


def test_a_pod_that_is_gone_is_lost_unless_its_end_was_seen() -> None:
    running = a_pod(state={"running": {"startedAt": BEGAN}})
    found = status.gone(running, TASK, AT)
    assert (found.lost, found.ended_at, found.message) == (True, AT, "its pod was deleted")
    ended = a_pod(phase="Succeeded", state=terminated(0))
    assert status.gone(ended, TASK, AT).exit_code == 0


def test_a_node_that_does_not_take_it_in_is_not_tried_again_at_once() -> None:
    found = read(a_pod(phase="Failed", reason="OutOfcpu", message="Node didn't have enough"))
    assert not found.lost
    assert "enough" in found.message


@pytest.mark.parametrize("reason", ["InvalidImageName", "ErrImageNeverPull"])
def test_what_never_begins_is_given_up_at_once(reason: str) -> None:
    pod = a_pod(phase="Pending", state={"waiting": {"reason": reason, "message": "m"}})
    assert "image" in status.start_failure(pod, AT, 600)


def test_an_image_that_cannot_be_pulled_is_waited_for() -> None:
    pod = a_pod(phase="Pending", state={"waiting": {"reason": "ImagePullBackOff"}})
    created = AT - 360
    assert status.start_failure(pod, created + 599, 600) == ""
    assert "pulled" in status.start_failure(pod, created + 600, 600)
    assert status.look_again_at(pod, 600) == created + 600
    creating = a_pod(phase="Pending", state={"waiting": {"reason": "ContainerCreating"}})
    assert status.start_failure(creating, AT + 10_000, 600) == ""


def preparing(**state: Any) -> dict[str, Any]:
    return {"initContainerStatuses": [{"name": "carrel-gpu-limiter", "state": state}]}


def test_what_runs_before_it_may_fail_or_wait_for_its_image() -> None:
    failed = {"terminated": {"exitCode": 2, "message": "no space"}}
    found = read(a_pod(phase="Failed", **preparing(**failed)))
    assert (found.exit_code, found.lost, found.last_output) == (2, False, "no space")
    waits = {"waiting": {"reason": "ErrImageNeverPull", "message": "not there"}}
    pod = a_pod(phase="Pending", **preparing(**waits))
    assert "its image is not on the node" in read(pod).message
    assert status.start_failure(pod, 0.0, 600.0)
    done = {"terminated": {"exitCode": 0}}
    assert read(a_pod(phase="Pending", **preparing(**done))).message == ""
