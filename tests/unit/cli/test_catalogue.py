"""``carrel catalogue``."""

from typing import Any

import pytest

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run

CHAT: dict[str, Any] = {"name": "chat", "source": "ours/chat", "description": "Small talk."}
LARGE: dict[str, Any] = {
    "name": "large",
    "source": "theirs/large",
    "gpus": 2.0,
    "gpu_memory_gib": 80.0,
    "runs_here": False,
    "why_not": "It needs 2 GPUs with 80 GiB of memory; here are none.",
}


@pytest.fixture(autouse=True)
def entries(fake: FakeScheduler) -> None:
    fake.catalogue.extend([CHAT, LARGE])


def test_what_there_is(run: Run) -> None:
    first, second = run("catalogue", "list", "--no-headers").out.splitlines()
    assert first.split() == ["chat", "ours/chat", "0", "-", "yes", "Small", "talk."]
    assert second.split() == ["large", "theirs/large", "2", "80", "GiB", "no"]
    assert "source: theirs/large" in run("catalogue", "describe", "large").out


def test_serving_one(run: Run, fake: FakeScheduler) -> None:
    done = run("catalogue", "serve", "chat", "-p", "vision", "--as", "talk", "-e", "A=b")
    assert done.code == 0, done.err
    assert done.out.startswith("Endpoint talk submitted successfully.")
    spec = fake.workload("vision", "talk")["spec"]
    assert (spec["kind"], spec["template"]) == ("inference", "chat")
    assert spec["environment"] == {"A": "b"}
    assert "It will wait: It needs 2 GPUs" in run("catalogue", "serve", "large", "-p", "vision").err


def test_one_that_is_not_there(run: Run) -> None:
    done = run("catalogue", "serve", "lrge", "-p", "vision")
    assert (done.code, done.err) == (2, "The catalogue has no `lrge`; it has chat, large.\n")
