"""A worker with a real child: what ends a trial ends nothing else."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from carrel import results
from carrel.client.resources.warm_map import files_of
from carrel.job.task import PREEMPTED, Task
from carrel.job.worker.loop import Loop, NotTaken, WorkerConnection
from carrel.job.worker.orders import Order, unframed
from carrel.job.worker.process import Process

SCRIPT = """
import os, sys, carrel, numbers
trial = carrel.trial()
x = int(trial["x"])
print("began", x, len(sys.argv), "left over" if hasattr(numbers, "seen") else "fresh")
if x == 1:
    numbers.seen = True
    raise ValueError("boom")
if x == 2:
    os.kill(os.getpid(), 9)
if x == 3:
    sys.exit(4)
if x == 4:
    open("ready", "w").close()
    import time
    time.sleep(60)
carrel.report(step=1, objective=float(x), loss=0.5)
trial.result(x * 10)
"""


class Listed(WorkerConnection):
    """A scheduler that has these trials to give."""

    def __init__(self, *trials: int, script: str = "trial.py") -> None:
        super().__init__(Task())
        self.left = [self.order(number, script) for number in trials]
        self.ended: dict[int, dict[str, Any]] = {}
        self.returned: list[int] = []
        self.outputs: dict[int, bytes] = {}

    @staticmethod
    def order(number: int, script: str) -> Order:
        told = {"CARREL_TRIAL": str(number), "CARREL_PARAMETERS": f'{{"x": {number}}}'}
        return Order(number, ["python", script, "a"], told)

    @override
    def take(self, body: Mapping[str, Any]) -> list[Order]:
        self.ended |= {one["trial"]: one for one in body["ended"]}
        self.returned += body["returned"]
        given, self.left = self.left[: body["want"]], self.left[body["want"] :]
        return given

    @override
    def output(self, content: bytes) -> None:
        self.outputs |= dict(unframed(content))


@pytest.fixture(autouse=True)
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    facts = {"URL": "http://127.0.0.1:9", "TASK_TOKEN": "t", "PROJECT": "vision", "WORKLOAD": "w0"}
    for name, value in facts.items():
        monkeypatch.setenv(f"CARREL_{name}", value)
    monkeypatch.setenv("CARREL_METRIC", "objective")
    (tmp_path / "trial.py").write_text(SCRIPT)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def test_errors_exits_and_kills_are_of_one_trial_each() -> None:
    scheduler = Listed(0, 1, 2, 3, 5)
    assert Loop(scheduler, Process(None)).run() == 0
    found = scheduler.ended
    assert (found[0]["result"], found[0]["metrics"]) == (0, {"objective": 0.0, "loss": 0.5})
    assert found[0]["values"] == [{"step": 1, "value": 0.0}]
    assert found[0]["log"] == "began 0 2 fresh\n"
    assert found[1]["error"].startswith("ValueError: boom\nbegan 1 2 fresh\nTraceback")
    assert 'File "trial.py", line 8' in found[1]["error"]
    assert "worker" not in found[1]["error"]
    assert found[2]["error"].startswith("Its process was killed by signal 9 (SIGKILL).\nbegan 2")
    assert found[3]["error"].startswith("It ended with exit code 4.")
    assert (found[5]["log"], "error" in found[5]) == ("began 5 2 fresh\n", False)


def test_modules_stay_and_the_environment_does_not() -> None:
    scheduler = Listed(1, 6)
    Loop(scheduler, Process(None)).run()
    assert scheduler.ended[6]["log"] == "began 6 2 left over\n"
    assert "CARREL_TRIAL" not in os.environ


def test_a_worker_that_has_to_leave_gives_back_what_it_has() -> None:
    scheduler = Listed(4, 7)
    loop = Loop(scheduler, Process(None))

    def tell() -> None:
        while not Path("ready").exists():
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    teller = threading.Thread(target=tell)
    teller.start()
    assert loop.run() == PREEMPTED
    teller.join()
    assert (scheduler.ended, scheduler.returned) == ({}, [4])


def test_a_worker_that_is_refused_has_failed() -> None:
    class Refusing(Listed):
        @override
        def take(self, body: Mapping[str, Any]) -> list[Order]:
            raise NotTaken("status 409: storage_full")

    assert Loop(Refusing(0), Process(None)).run() == 1


def test_items_of_a_map_hand_back_what_they_return_and_raise(tmp_path: Path) -> None:
    def invert(number: int) -> float:
        print("inverts", number)
        return 1 / number

    for name, content in files_of(invert, [2, 0, 4]).items():
        (tmp_path / name).write_bytes(content)
    scheduler = Listed()
    scheduler.left = [Order(number) for number in range(3)]
    Loop(scheduler, Process(str(tmp_path))).run()
    assert results.decode(scheduler.outputs[0]) == 0.5
    assert results.decode(scheduler.outputs[2]) == 0.25
    with pytest.raises(ZeroDivisionError):
        results.decode(scheduler.outputs[1])
    assert scheduler.ended[1]["error"].startswith("ZeroDivisionError: division by zero")
    assert scheduler.ended[2]["log"] == "inverts 4\n"
