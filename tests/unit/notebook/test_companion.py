"""What goes to a cell's companion and what comes back, without a scheduler."""

import hashlib
import hmac
import io
import json
import pickle
import queue
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from carrel.job import companion as program
from carrel.notebook.cell import CannotSend
from carrel.notebook.companion import CellRun, cell_variables, raised, variables_of

SOURCE = """
import os
total += 1
numbers.append(twice(total))
fresh = os.name
def grow():
    global grown
    grown = size
[other for other in range(3)]
"""


def test_names_that_are_read_and_names_that_are_assigned() -> None:
    read, bound = cell_variables(SOURCE)
    assert {"total", "numbers", "twice", "size"} <= read
    assert "fresh" not in read
    assert {"os", "total", "fresh", "grow", "grown"} <= bound
    assert not {"numbers", "other"} & bound


def test_what_is_assigned_anyway_may_stay_here() -> None:
    space = {"q": queue.Queue(), "n": 1, "unused": 2}
    assert set(variables_of("q = n\nprint(q)", [], space)) == {"n"}
    with pytest.raises(CannotSend, match="`q` cannot go along"):
        variables_of("print(q)", [], space)
    assert set(variables_of("n", ["unused"], space)) == {"n", "unused"}


def test_an_answer_in_pieces_of_any_size() -> None:
    shown = json.dumps({"kind": "stream", "name": "stdout", "text": "a" * 300_000})
    end = json.dumps({"kind": "end", "size": 4, "signature": "s"})
    answer = f"\n{shown}\n\n{end}\n".encode() + b"\n{}\n"
    run = CellRun()
    for at in range(0, len(answer), 1000):
        run.take(answer[at : at + 1000])
    assert run.frames.get()[1]["text"] == "a" * 300_000
    assert run.complete
    assert run.frames.get() == ("end", (b"\n{}\n", "s"))


def test_an_exception_that_cannot_be_made_here_keeps_its_words_and_trace() -> None:
    answer = {"text": "OddError: no", "error": b"nothing"}
    error: Any = raised(answer, {"traceback": ["line 1"]})
    assert str(error) == "OddError: no"
    assert error._render_traceback_() == ["line 1"]
    made = raised({"text": "ValueError: x", "error": pickle.dumps(ValueError("x"))}, None)
    assert isinstance(made, ValueError)
    assert raised({"text": "", "error": None}, None) is None


def ask(service: program.CompanionService, path: str, body: bytes) -> tuple[str, Any]:
    status: list[str] = []
    environ = {"PATH_INFO": path, "CONTENT_LENGTH": len(body), "wsgi.input": io.BytesIO(body)}
    return "".join(status), (service(environ, lambda word, _: status.append(word)), status)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"key": "wrong"}', b'{"key": "\\u00e9"}', b"no"])
def test_without_the_key_nothing_runs(body: bytes) -> None:
    service = program.CompanionService("right")
    _, (_, status) = ask(service, "/run", body)
    assert status == ["403 Forbidden"]
    assert service.cells.empty()


def test_tensors_of_a_gpu_come_back_as_those_of_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Tensor, "is_cuda", True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    back = program.packed({"weights": Tensor(on="gpu")})
    assert back is not None
    assert pickle.loads(back)["weights"].on == "cpu"


class Tensor:
    is_cuda = False

    def __init__(self, on: str) -> None:
        self.on = on

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return Tensor("cpu")


def test_only_what_the_companion_signed_is_unpacked() -> None:
    from carrel.notebook.companion import Companion, LostCompanion

    made: Any = Companion(SimpleNamespace(), {}, 0.0)  # type: ignore[arg-type]
    answer = pickle.dumps({"text": ""})
    right = hmac.new(made._key.encode(), answer, hashlib.sha256).hexdigest()
    assert made.verified(answer, right) == {"text": ""}
    with pytest.raises(LostCompanion, match="not from the companion"):
        made.verified(answer, "0" * 64)
