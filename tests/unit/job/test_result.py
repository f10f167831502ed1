"""How a job hands its result back."""

import pytest

from carrel import results
from carrel.job import result
from carrel.job.task import Task

TASK = Task(url="http://127.0.0.1:1", token="t", project="vision", workload="x")


def test_it_is_sent_again_while_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[int | OSError] = [OSError("refused"), 503, 204]
    sent: list[tuple[str, str, bytes]] = []
    slept: list[float] = []

    def put(url: str, token: str, content: bytes) -> int:
        sent.append((url, token, content))
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert result.send(TASK, b"content", put=put, sleep=slept.append)
    assert sent == [("http://127.0.0.1:1/api/v1/workloads/vision/x/result", "t", b"content")] * 3
    assert slept == [0.5, 1.0]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("status", "times"), [(413, 1), (401, 1), (500, 8)])
def test_what_is_not_taken_is_said_in_the_log(
    capsys: pytest.CaptureFixture[str], status: int, times: int
) -> None:
    sent: list[bytes] = []

    def put(_url: str, _token: str, content: bytes) -> int:
        sent.append(content)
        return status

    assert not result.send(TASK, b"", put=put, sleep=lambda _: None)
    assert len(sent) == times
    assert f"the result was not taken (status {status})" in capsys.readouterr().err


def test_only_the_first_of_a_gang_and_only_in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(result, "send", lambda _task, content: sent.append(content))
    monkeypatch.delenv("CARREL_TASK_TOKEN", raising=False)
    result.hand_back(1)
    place = {"URL": "http://127.0.0.1:1", "TASK_TOKEN": "t", "PROJECT": "p", "WORKLOAD": "x"}
    for name, value in place.items():
        monkeypatch.setenv(f"CARREL_{name}", value)
    monkeypatch.setenv("POD_INDEX", "1")
    result.hand_back(1)
    assert sent == []
    monkeypatch.setenv("POD_INDEX", "0")
    result.hand_back(1)
    result.hand_back(error=ValueError("x"))
    assert results.decode(sent[0]) == 1
    with pytest.raises(ValueError, match="x"):
        results.decode(sent[1])
