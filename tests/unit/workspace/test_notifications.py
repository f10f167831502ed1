"""What people are told of their own work, and what not: pure, in virtual time."""

from typing import Any

import msgspec
import pytest

from carrel import wording
from carrel.models import (
    Checkpoint,
    Event,
    Preemption,
    Reason,
    Task,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from carrel.notebook.cell import COMPANION_LABEL
from carrel.workspace.notifications import LONGEST, WorkNotifications
from carrel_hub.console import words
from carrel_hub.console.pictures import states
from carrel_schema.objects.status import Failure

BEGAN = 1000.0


@pytest.fixture
def news() -> WorkNotifications:
    return WorkNotifications("ada", BEGAN)


class Story:
    """One workload, moved along; ``told`` is what its owner heard."""

    def __init__(self, news: WorkNotifications, name: str = "night", **spec: Any) -> None:
        self.news, self.version = news, 0
        self.workload = Workload(
            name=name,
            project="vision",
            uid=f"uid-{name}",
            spec=WorkloadSpec(user="ada", **spec),
        )

    def now(self, **status: Any) -> "Story":
        self.version += 1
        changed = msgspec.structs.replace(self.workload.status, **status)
        self.workload = msgspec.structs.replace(
            self.workload, status=changed, resource_version=self.version
        )
        self.news.take(Event(type="workload", workload=self.workload))
        return self

    def waits(self) -> "Story":
        return self.now(phase="pending", tasks=[])

    def runs(self, at: float = BEGAN + 10) -> "Story":
        first = self.workload.status.first_started_at or at
        tasks = [Task(index=0, attempt=0, node="node-1")]
        return self.now(phase="running", started_at=at, first_started_at=first, tasks=tasks)

    def yields(self, at: float, **facts: Any) -> "Story":
        facts = {"for_workload": "", **facts}
        preempted = Preemption(at=at, rule="reclaim", for_project="speech", **facts)
        return self.now(phase="preempting", last_preemption=preempted)


def told(news: WorkNotifications) -> list[str]:
    return [one["text"] for one in news.since(-1)]


def test_start_preemption_return_end(news: WorkNotifications) -> None:
    job = Story(news).waits().runs()
    job.yields(BEGAN + 60, lost_seconds=90.0, checkpoint_step=1200).waits()
    job.now(checkpoint=Checkpoint(step=1200, at=BEGAN)).runs(BEGAN + 100)
    job.now(phase="succeeded", ended_at=BEGAN + 820)
    assert told(news) == [
        "night started on node-1.",
        "night was preempted for speech (it was on borrowed GPUs).",
        "night goes on from step 1,200.",
        "night succeeded after 12 min.",
    ]
    assert [one["level"] for one in news.since(-1)] == ["info", "warning", "info", "success"]


def test_what_was_so_before_is_no_news(news: WorkNotifications) -> None:
    Story(news, "ended-long-ago").now(phase="succeeded", ended_at=BEGAN - 5)
    Story(news, "runs-already").runs()
    assert told(news) == []
    assert [job["name"] for job in news.jobs()] == ["runs-already", "ended-long-ago"]


def test_what_ended_while_the_stream_was_away_is_news(news: WorkNotifications) -> None:
    job = Story(news).waits()
    ended = msgspec.structs.replace(
        job.workload,
        resource_version=9,
        status=WorkloadStatus(phase="succeeded", ended_at=BEGAN + 1),
    )
    news.take_all([ended], news.known)
    assert told(news) == ["night succeeded."]


def test_what_came_while_it_was_asked_stays(news: WorkNotifications) -> None:
    old, asked = Story(news, "old").waits(), news.known
    Story(news, "new").waits()
    news.take_all([], asked)
    assert [job["name"] for job in news.jobs()] == ["new"]
    assert old.workload.uid not in news.known


def test_own_doing_is_no_news_and_a_crash_is(news: WorkNotifications) -> None:
    job = Story(news).waits().runs()
    crashed = "Crashed: KeyError: 'x' (exit code 1)."
    job.now(phase="pending", reason=Reason(token="BackOff", sentence=crashed)).runs(BEGAN + 20)
    job.workload = msgspec.structs.replace(
        job.workload, spec=msgspec.structs.replace(job.workload.spec, suspend=True)
    )
    job.now(phase="stopped")
    assert told(news) == [
        "night started on node-1.",
        "night crashed and is retried: Crashed: KeyError: 'x' (exit code 1).",
    ]


def test_what_stood_still_is_not_said_to_have_crashed(news: WorkNotifications) -> None:
    stood = Reason(token="BackOff", sentence="It stood still: no report for 5 min.")
    job = Story(news).waits().runs()
    job.now(phase="pending", reason=stood, last_failure=Failure(at=0.0, attempt=0, cls="stalled"))
    assert told(news)[-1] == f"night stood still and is retried: {stood.sentence}"
    assert wording.state_word(job.workload) == "Stalled, retrying"
    assert words.phase(job.workload) == "retrying-stalled"
    assert states.STATES[words.phase(job.workload)].word == "stalled, retrying"


def test_a_limit_says_why(news: WorkNotifications) -> None:
    sentence = "Stopped after 30 min: trainings of `vision` may run for 30 min."
    Story(news).runs().now(phase="stopped", reason=Reason(token="TimedOut", sentence=sentence))
    assert told(news) == [f"night stopped: {sentence.replace('`', '')}"]


def test_failure_fits_a_notification(news: WorkNotifications) -> None:
    Story(news).runs().now(
        phase="failed", reason=Reason(token="", sentence="x" * 500), ended_at=BEGAN + 11
    )
    (text,) = told(news)
    assert text.startswith("night failed after 1 s: xxx")
    assert len(text) == LONGEST


@pytest.mark.parametrize(
    "spec",
    [{"owner": "uid-sweep", "kind": "trial"}, {"kind": "workspace"}, {"kind": "tensorboard"}],
)
def test_parts_and_tools_are_no_news(news: WorkNotifications, spec: dict[str, Any]) -> None:
    Story(news, **spec).waits().runs()
    assert told(news) == []


def test_of_others_nothing_is_known(news: WorkNotifications) -> None:
    job = Story(news)
    job.workload = msgspec.structs.replace(job.workload, spec=WorkloadSpec(user="bob"))
    job.waits().runs()
    assert (news.version, news.jobs()) == (0, [])


def test_same_state_again_is_no_change(news: WorkNotifications) -> None:
    job = Story(news).waits()
    version = news.version
    news.take(Event(type="workload", workload=job.workload))
    assert news.version == version
    news.take(Event(type="deleted", workload=job.workload))
    assert (news.version, news.jobs()) == (version + 1, [])


def test_who_sits_at_a_workspace_hears_of_its_machine_once(news: WorkNotifications) -> None:
    sentence = "`node-1` is being emptied for maintenance."
    trouble = Reason(token="NodeDraining", sentence=sentence, help="Save your work.")
    workspace = Story(news, "ada", kind="workspace").runs()
    workspace.now(reason=trouble).now(reason=trouble)
    assert told(news) == ["ada: node-1 is being emptied for maintenance. Save your work."]
    workspace.now(reason=None).now(reason=trouble)
    assert len(told(news)) == 2
    other = Story(news, "grace", kind="workspace")
    spec = msgspec.structs.replace(other.workload.spec, user="grace")
    other.workload = msgspec.structs.replace(other.workload, spec=spec)
    other.runs().now(reason=trouble)
    assert len(told(news)) == 2


def test_of_a_single_cell_the_notebook_itself_tells(news: WorkNotifications) -> None:
    cell = Story(news, "gpu-1")
    cell.workload = msgspec.structs.replace(cell.workload, labels={COMPANION_LABEL: "yes"})
    cell.waits().runs().now(phase="failed", ended_at=BEGAN + 20)
    assert told(news) == []
    assert [one["name"] for one in news.jobs()] == ["gpu-1"]
