"""What is kept of the messages of a kernel, and to whom it belongs."""

from typing import Any

import nbformat
import pytest

from carrel.workspace.recorder import KernelOutputs, merge
from carrel.workspace.recording import cell_request

v4: Any = nbformat.v4


class Kernel:
    """Publishes messages for one request after another."""

    def __init__(self, outputs: KernelOutputs) -> None:
        self.outputs = outputs

    def execute(self, cell: str = "c", request: str = "r", page: str = "p", code: str = "") -> None:
        self.request = request
        self.outputs.asked(cell, code, request, page)
        self.publish("execute_input", execution_count=1, code=code)

    def publish(self, kind: str, **content: Any) -> None:
        message = {"header": {"msg_type": kind}, "parent_header": {"msg_id": self.request}}
        self.outputs.received({**message, "content": content, "metadata": {}}, size=100)

    def print(self, text: str, name: str = "stdout") -> None:
        self.publish("stream", name=name, text=text)

    def display(self, text: str, display_id: str, kind: str = "display_data") -> None:
        data, transient = {"text/plain": text}, {"display_id": display_id}
        self.publish(kind, data=data, metadata={}, transient=transient)

    def end(self) -> None:
        self.publish("status", execution_state="idle")


@pytest.fixture
def kernel() -> Kernel:
    outputs = KernelOutputs(lambda: None)
    outputs.opened("p")
    return Kernel(outputs)


def shown(kernel: Kernel) -> list[str]:
    (run,) = kernel.outputs.since(0, "another")
    found = run.as_dict("another")["outputs"]
    return [one.get("text") or one["data"]["text/plain"] for one in found]


def test_outputs_as_a_terminal_and_a_page_show_them(kernel: Kernel) -> None:
    kernel.execute()
    kernel.print("10%\r20%")
    kernel.print("\r100%\na\n")
    kernel.display("early", "d")
    kernel.print("b")
    kernel.print("wrong", name="stderr")
    kernel.display("late", "d", kind="update_display_data")
    assert shown(kernel) == ["100%\na\n", "late", "b", "wrong"]
    kernel.publish("clear_output", wait=True)
    assert shown(kernel)[0] == "100%\na\n"
    kernel.print("anew")
    assert shown(kernel) == ["anew"]


def test_the_page_that_asked_knows_by_itself_and_another_one_hears_what_is_new(
    kernel: Kernel,
) -> None:
    kernel.execute()
    seen = kernel.outputs.version
    assert kernel.outputs.since(0, "p") == []
    assert kernel.outputs.since(seen, "another") == []
    kernel.print("x")
    assert len(kernel.outputs.since(seen, "another")) == 1


def test_without_its_page_the_server_writes_until_another_one_takes_over(kernel: Kernel) -> None:
    kernel.execute()
    assert kernel.outputs.unwritten() == []
    assert len(kernel.outputs.unwritten(owned=True)) == 1
    kernel.outputs.closed("p")
    assert len(kernel.outputs.unwritten()) == 1
    kernel.outputs.opened("q")
    kernel.outputs.take_over("q")
    assert kernel.outputs.unwritten() == []
    assert kernel.outputs.since(0, "q")[0].as_dict("q")["mine"]
    kernel.outputs.closed("q")
    kernel.outputs.opened("p")
    assert len(kernel.outputs.unwritten()) == 1


def test_a_restart_ends_what_ran_and_later_text_of_a_thread_still_counts(kernel: Kernel) -> None:
    kernel.execute()
    kernel.end()
    kernel.print("from a thread")
    assert shown(kernel) == ["from a thread"]
    kernel.execute(request="s")
    assert shown(kernel) == []
    kernel.publish("status", execution_state="restarting")
    assert not kernel.outputs.since(0, "another")[0].running


def test_what_a_widget_takes_is_its_own_only_while_its_page_is_there(kernel: Kernel) -> None:
    kernel.execute()
    kernel.publish("comm_msg", comm_id="w", data={"state": {"msg_id": "r"}})
    kernel.print("inside the widget")
    assert shown(kernel) == []
    kernel.outputs.closed("p")
    kernel.print("with nobody there")
    kernel.outputs.opened("p")
    kernel.publish("comm_msg", comm_id="w", data={"state": {"msg_id": ""}})
    kernel.print("\nbehind it")
    assert shown(kernel) == ["with nobody there\nbehind it"]


def test_the_oldest_that_are_safe_elsewhere_give_way() -> None:
    outputs = KernelOutputs(lambda: None, most_bytes=450)
    outputs.opened("p")
    kernel = Kernel(outputs)
    for number in range(3):
        kernel.execute(cell=f"c{number}", request=f"r{number}", page="p" if number else "gone")
        kernel.print("x")
        kernel.end()
    assert [run.cell for run in outputs.since(0, "another")] == ["c0", "c2"]


def test_outputs_go_into_the_cells_of_a_file(kernel: Kernel) -> None:
    kernel.execute(cell="one", code="print(1)")
    kernel.print("1")
    book: Any = v4.new_notebook()
    book.cells = [v4.new_code_cell("other", id="two"),
                  v4.new_code_cell("edited since", id="one")]  # fmt: skip
    assert merge(book, kernel.outputs.unwritten(owned=True))
    assert [len(cell.outputs) for cell in book.cells] == [0, 1]
    assert book.cells[1].metadata.trusted
    assert book.cells[1].execution_count == 1
    assert not merge(book, kernel.outputs.unwritten(owned=True))
    for cell in book.cells:
        del cell["id"]
        cell.outputs = []
    assert not merge(book, kernel.outputs.unwritten(owned=True))
    book.cells[0].source = "print(1)"
    assert merge(book, kernel.outputs.unwritten(owned=True))
    assert [len(cell.outputs) for cell in book.cells] == [1, 0]


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"header": {}}'])
def test_what_is_no_request_of_a_cell_is_none(text: str) -> None:
    assert cell_request(text, None) is None
