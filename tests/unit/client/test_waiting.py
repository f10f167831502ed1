"""Waiting for many, results of jobs, and ``map``, against a fake scheduler."""

import contextlib
import pickle
import threading
import zlib
from base64 import b85decode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from carrel import results
from carrel.client import Client
from carrel.client.resources.map import call_bodies
from carrel.errors import ApiError, BadSetting, Unreachable
from carrel.testing import FakeScheduler


def submit(fake: FakeScheduler, *names: str) -> list[tuple[str, str]]:
    for name in names:
        fake.submit("vision", name)
        fake.run("vision", name)
    return [("vision", name) for name in names]


def test_each_is_told_of_when_it_ends(client: Client, fake: FakeScheduler) -> None:
    jobs = submit(fake, "a", "b", "c")
    fake.finish("vision", "b")
    found = client.as_completed(jobs)
    assert next(found).name == "b"
    fake.finish("vision", "c", exit_code=1)
    ended = next(found)
    assert (ended.name, ended.status.phase) == ("c", "failed")
    client.delete_workload("vision", "a")
    assert str(next(found).status.phase) == "deleted"
    assert list(found) == []


def test_a_broken_stream_misses_nothing(client: Client, fake: FakeScheduler) -> None:
    found = client.as_completed(submit(fake, "a", "b"))
    fake.finish("vision", "a")
    assert next(found).name == "a"
    fake.end_streams()
    fake.finish("vision", "b")
    assert next(found).name == "b"


def test_wait_returns_all_as_they_are_in_their_order(client: Client, fake: FakeScheduler) -> None:
    jobs = submit(fake, "a", "b")
    fake.finish("vision", "b")
    waited = client.wait([*jobs, ("vision", "never-there")], timeout=0.2)
    assert [one.status.phase for one in waited] == ["running", "succeeded", "deleted"]
    with pytest.raises(TimeoutError):
        list(client.as_completed(jobs, timeout=0.05))
    assert client.wait([]) == []
    fake.finish("vision", "a")
    assert all(one.at_rest for one in client.wait(client.list_workloads("vision")))


def test_many_are_asked_for_together(client: Client, fake: FakeScheduler) -> None:
    jobs = submit(fake, *(f"job-{number}" for number in range(25)))
    for _, name in jobs:
        fake.finish("vision", name)
    assert len(client.wait(jobs)) == 25
    assert ("GET", "/workloads/vision/job-1") not in fake.requests


def test_a_project_one_is_not_in_is_an_error(client: Client, fake: FakeScheduler) -> None:
    fake.submit("speech", "x", user="bob")
    with pytest.raises(ApiError, match="speech"):
        client.wait([("speech", "x")], timeout=30)


def test_results(client: Client, fake: FakeScheduler) -> None:
    submit(fake, "a")
    with pytest.raises(results.NoResult, match="`a` has handed no result back"):
        client.result("vision", "a")
    fake.hand_back("vision", "a", results.encode_value({"loss": 0.5}))
    assert client.result("vision", "a") == {"loss": 0.5}
    fake.hand_back("vision", "a", results.encode_error(KeyError("epochs")))
    with pytest.raises(KeyError, match="epochs"):
        client.result("vision", "a")


Work = Callable[[Any], Any]


@contextlib.contextmanager
def working(fake: FakeScheduler, ends: int) -> Iterator[None]:
    """Somebody who runs what ``map`` submits, as jobs would, until so many have ended."""
    done = threading.Event()

    def run(file: str) -> Any:
        return pickle.loads(zlib.decompress(b85decode(file)))

    def work() -> None:
        seen: set[str] = set()
        while len(seen) < ends and not done.wait(0.01):
            for job in fake.workloads():
                if job["name"] not in seen and len(seen) < ends:
                    seen.add(job["name"])
                    finish(job["name"])

    def finish(name: str) -> None:
        files = fake.files("vision", name)
        try:
            value = results.encode_value(run(files["function.b85"])(run(files["item.b85"])))
        except ValueError as error:
            value = results.encode_error(error)
        fake.hand_back("vision", name, value)
        fake.finish("vision", name)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_map_gives_results_in_the_order_of_the_items(client: Client, fake: FakeScheduler) -> None:
    factor = 3
    with working(fake, 4):
        found = client.map(
            lambda number: number * factor, [1, 2, 3, 4], progress=False, gpus=1, warm=False
        )
    assert found == [3, 6, 9, 12]
    assert client.list_workloads() == []


def test_map_raises_what_a_call_raised_and_keeps_that_job(
    client: Client, fake: FakeScheduler
) -> None:
    with working(fake, 3), pytest.raises(ValueError, match="invalid literal") as raised:
        client.map(int, ["1", "x", "3"], name="ints", progress=False, warm=False)
    assert raised.value.__notes__ == ["Item 2 of carrel.map: ints-2."]
    assert [job.name for job in client.list_workloads()] == ["ints-2"]
    assert fake.workload("vision", "ints-2")["spec"]["backoff_limit"] == 0


def test_map_may_return_exceptions_and_says_which_call_left_nothing(
    client: Client, fake: FakeScheduler
) -> None:
    with working(fake, 2):
        found: list[object] = client.map(
            int, ["1", "x"], name="a", warm=False, progress=False, return_exceptions=True
        )
    assert found[0] == 1
    assert isinstance(found[1], ValueError)
    fake.submit("vision", "b-1")
    with pytest.raises(ApiError, match="There is already a job `b-1`"):
        client.map(int, ["1"], name="b", progress=False, warm=False)


def test_what_cannot_be_packed_is_said_before_anything_is_sent(
    client: Client, fake: FakeScheduler
) -> None:
    with pytest.raises(BadSetting, match="Item 2 cannot be packed") as refused:
        client.map(str, [1, threading.Lock()], progress=False)
    assert refused.value.code == "not_picklable"
    import random

    with pytest.raises(BadSetting, match=r"Item 1 takes 1\.3 MiB"):
        client.map(len, [random.Random(0).randbytes(2**20)], progress=False, warm=False)
    assert fake.workloads() == []


def test_whoever_stops_waiting_leaves_no_calls_behind(client: Client, fake: FakeScheduler) -> None:
    bodies = call_bodies(len, ["a", "b", "c"], project="vision", name="lens")
    with working(fake, 1), contextlib.closing(client.outcomes(bodies)) as found:
        assert next(found).value == 1
        assert len(fake.workloads()) == 2
    assert fake.workloads() == []


def test_calls_are_cancelled_though_nobody_heard_that_they_arrived(
    client: Client, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_many = client.aio.submit_many

    async def unheard(bodies: Any) -> Any:
        await submit_many(bodies)
        raise Unreachable("no answer")

    fake.submit("vision", "older")
    monkeypatch.setattr(client.aio, "submit_many", unheard)
    with pytest.raises(Unreachable):
        client.map(len, ["a", "b"], progress=False, warm=False)
    assert [job["name"] for job in fake.workloads()] == ["older"]
