"""A training as a real process: it reports, gives way on SIGTERM, and goes on where it was."""

import signal
from functools import partial
from pathlib import Path

from carrel.testing import FakeScheduler
from contract.client.conftest import TIMEOUT_SECONDS, Launch, eventually

TRAINING = """
import time
import carrel

state = carrel.checkpoint.restore(default={"step": 0})
fresh = state["step"] == 0
print("from", state["step"], flush=True)
while state["step"] < 2000:
    state["step"] += 1
    carrel.report(step=state["step"], total=2000, loss=1 / state["step"])
    if carrel.checkpoint.every(0.05):
        carrel.checkpoint.save(state, step=state["step"])
    if carrel.checkpoint.preempted():
        carrel.checkpoint.save(state, step=state["step"])
        print("gave way at", state["step"], flush=True)
        carrel.checkpoint.exit_for_preemption()
    time.sleep(0.002)
    while fresh and state["step"] == 1000 and not carrel.checkpoint.preempted():
        time.sleep(0.01)  # who began anew is stopped in its middle, however late
print("done", state["step"])
"""


def environment(fake: FakeScheduler, tmp_path: Path) -> dict[str, str]:
    return {
        "CARREL_TASK_TOKEN": fake.token("ada"),
        "CARREL_PROJECT": "vision",
        "CARREL_WORKLOAD": "x",
        "CARREL_CHECKPOINT_DIR": str(tmp_path / "kept"),
    }


def test_a_training_gives_way_and_goes_on(
    fake: FakeScheduler, launch: Launch, tmp_path: Path
) -> None:
    fake.submit("vision", "x")
    first = launch("-W", "error", "-c", TRAINING, **environment(fake, tmp_path))
    eventually(
        lambda: any("checkpoint_step" in body for _, _, body in fake.reports), "a reported save"
    )
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=TIMEOUT_SECONDS)
    assert first.returncode == 143
    assert err == ""
    at = int(out.split("gave way at ")[1])
    assert fake.workload("vision", "x")["status"]["checkpoint"]["step"] == at

    second = launch("-W", "error", "-c", TRAINING, **environment(fake, tmp_path))
    out, _ = second.communicate(timeout=TIMEOUT_SECONDS)
    assert second.returncode == 0
    assert out == f"from {at}\ndone 2000\n"
    status = fake.workload("vision", "x")["status"]
    assert status["progress"]["done"] == 2000
    assert status["metrics"]["loss"] == 1 / 2000


def test_killed_at_any_instant_nothing_is_torn(
    fake: FakeScheduler, launch: Launch, tmp_path: Path
) -> None:
    fake.submit("vision", "x")
    saving = TRAINING.replace("every(0.05)", "every(0)")
    for _ in range(5):
        process = launch("-c", saving, **environment(fake, tmp_path))
        assert process.stdout is not None
        begun = int(process.stdout.readline().split()[1])
        eventually(partial(_saved_beyond, tmp_path, begun + 5), "some saved steps")
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
        assert "damaged" not in err
    assert len(_steps(tmp_path)) >= 3


def _saved_beyond(tmp_path: Path, step: int) -> bool:
    return max(_steps(tmp_path), default=0) > step


def _steps(tmp_path: Path) -> list[int]:
    return [int(path.name[5:17]) for path in (tmp_path / "kept").glob("step-*")]


def test_a_server_that_is_away_never_stops_a_training(
    fake: FakeScheduler, launch: Launch, tmp_path: Path
) -> None:
    away = {**environment(fake, tmp_path), "CARREL_URL": "http://127.0.0.1:9/services/carrel"}
    process = launch("-c", TRAINING.replace("2000", "200"), **away)
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, out) == (0, "from 0\ndone 200\n")
    assert err.count("carrel:") == 1
    assert "the job goes on" in err
