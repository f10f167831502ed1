"""What goes along with a cell, and what is refused before it is sent."""

import base64
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from carrel.notebook import cell
from carrel.notebook.cell import CannotSend, borrowed_names, capture


def run(files: dict[str, str], task: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a captured cell as an engine does: its files in a folder, then the command there."""
    for name, content in files.items():
        (task / name).write_text(content)
    command = [sys.executable, "job.py", str(folder)]
    return subprocess.run(command, cwd=task, capture_output=True, text=True, check=False)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    task, folder = tmp_path / "task", tmp_path / "work"
    task.mkdir()
    folder.mkdir()
    return task, folder


def test_runs_with_its_variables_in_its_folder(places: tuple[Path, Path]) -> None:
    (places[1] / "helper.py").write_text("def double(x): return 2 * x")
    source = "import helper, os\nprint(helper.double(a), b, os.getcwd(), __name__)"
    captured = capture(source, ["a", "b"], {"a": 21, "b": "text", "c": "stays here"})
    done = run(dict(captured.files), *places)
    assert done.stdout == f"42 text {places[1]} __main__\n", done.stderr
    assert captured.inputs == ("a", "b")


def test_only_what_the_cell_names_goes_along() -> None:
    captured = capture("print(a)", ["b"], {"a": 1, "b": 2, "secret": "s3cret"})
    packed = pickle.loads(zlib.decompress(base64.b85decode(captured.files["inputs.b85"])))
    assert packed == {"a": 1, "b": 2}
    assert "s3cret" not in "".join(captured.files.values())


def test_a_traceback_begins_in_the_cell(places: tuple[Path, Path]) -> None:
    source = "def f():\n    return missing\nf()"
    done = run(dict(capture(source, [], {}).files), *places)
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert [frame.rpartition("/")[2] for frame in frames] == [
        'cell.py", line 4, in <module>',
        'cell.py", line 3, in f',
    ]
    assert done.stderr.endswith("NameError: name 'missing' is not defined\n")
    assert done.returncode == 1


OTHER_CELLS = """
import math
from pathlib import Path
scale = 3
def area(r):
    return scale * square(r)
def square(x):
    return math.pow(x, 2)
class Model:
    def predict(self):
        return area(2)
"""


def test_functions_classes_and_modules_of_other_cells_go_along(places: tuple[Path, Path]) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(OTHER_CELLS, namespace)
    source = "print(Model().predict(), math.floor(1.5), Path('a').name, [scale for _ in 'x'])"
    captured = capture(source, [], namespace)
    assert captured.inputs == ("Model", "Path", "math", "scale")
    done = run(dict(captured.files), *places)
    assert done.stdout == "12.0 1 a [3]\n", done.stderr


def test_lines_for_the_shell_and_magics_run_in_the_job(places: tuple[Path, Path]) -> None:
    source = "word = 'hello'\n!echo {word} there\nfiles = !ls -d /\nprint(files)\n%pwd"
    done = run(dict(capture(source, [], {}).files), *places)
    assert done.stdout == "hello there\n['/']\n", done.stderr
    done = run(dict(capture("!true\nprint(1)\n1 / 0", [], {}).files), *places)
    assert 'cell.py", line 4' in done.stderr


def test_starter_leaves_no_names_behind(places: tuple[Path, Path]) -> None:
    source = "print(sorted(name for name in dir() if not name.startswith('__')))"
    assert run(dict(capture(source, [], {}).files), *places).stdout == "[]\n"


def test_variables_may_be_called_like_the_starter_s_own(places: tuple[Path, Path]) -> None:
    captured = capture("print(start, Path)", ["start", "Path"], {"start": 1, "Path": 2})
    assert run(dict(captured.files), *places).stdout == "1 2\n"


def test_traceback_points_at_the_line_of_the_notebook(places: tuple[Path, Path]) -> None:
    done = run(dict(capture("x = 1\n\nx / 0", [], {}).files), *places)
    assert done.returncode == 1
    assert 'cell.py", line 4' in done.stderr
    assert "x / 0" in done.stderr


def test_classes_of_the_cell_can_be_pickled_there(places: tuple[Path, Path]) -> None:
    source = "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)"
    assert run(dict(capture(source, [], {}).files), *places).stdout == "A\n"


def test_folder_that_is_not_there_is_one_sentence(places: tuple[Path, Path]) -> None:
    done = run(dict(capture("1", [], {}).files), places[0], places[1] / "gone")
    assert done.returncode == 1
    assert "cannot be entered here: No such file or directory." in done.stderr
    assert "Traceback" not in done.stderr


class Stubborn:
    @override
    def __reduce__(self) -> Any:
        raise RuntimeError("I hold a connection")


SOURCES = {
    "not Python": (
        "x = 1\nx x", "", {}, "Line 3 of the cell is not plain Python"),
    "unknown variable": (
        "print(a)", "a", {}, "this notebook has no variable `a`"),
    "empty": ("  \n", "", {}, "The cell is empty"),
    "takes what cannot be packed": (
        "print(s)", "s", {"s": Stubborn()}, "a Stubborn cannot be packed (I hold a connection)"),
    "takes a generator": (
        "print(s)", "", {"s": (i for i in range(3))}, "a generator cannot be packed"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "inputs", "namespace", "told"), SOURCES.values(), ids=SOURCES)
def test_refusals_say_the_way_out(
    source: str, inputs: str, namespace: dict[str, Any], told: str
) -> None:
    with pytest.raises(CannotSend) as refused:
        capture(source, [name for name in inputs.split(",") if name], namespace)
    assert told in str(refused.value)


def test_large_variables_are_no_part_of_the_request(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = capture("a", ["a"], {"a": os.urandom(800_000)})
    assert not small.large
    assert sum(len(text) for text in small.files.values()) <= 2**20
    captured = capture("print(len(a), b)", [], {"a": os.urandom(2**21), "b": 1})
    assert "inputs.b85" not in captured.files
    (places[0] / cell.LARGE_FILE).write_bytes(captured.large)
    assert run(dict(captured.files), *places).stdout == "2097152 1\n"
    monkeypatch.setattr(cell, "MOST_FOLDER_BYTES", 2**20)
    with pytest.raises(CannotSend, match="Save `a` to a file"):
        capture("print(len(a), b)", [], {"a": os.urandom(2**21), "b": 1})
    with pytest.raises(CannotSend, match="The cell is longer than 1 MiB"):
        capture(f"'{'x' * 2**20}'", [], {})


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import numpy as np\nnp.zeros(n)", {"n"}),
        ("x = 1\nprint(x, y)", {"y"}),
        ("def f(a): return a + b", {"b"}),
        ("def f():\n  c = 1\n  return lambda: c + d", {"d"}),
        ("class A:\n  z = w", {"w"}),
        ("[i for i in items]", {"items"}),
        ("for k in range(3): total = k", set()),
        ("def f():\n  global g\n  g = 1\nf()\nprint(g)", set()),
        ("with open('x') as fh: fh.read()", set()),
        ("try:\n  pass\nexcept ValueError as e:\n  print(e)", set()),
        ("x += 1", set()),
    ],
)
def test_borrowed_names(source: str, names: set[str]) -> None:
    assert borrowed_names(source) == names


def test_parameters_of_a_sweep_are_variables(places: tuple[Path, Path]) -> None:
    (task, folder), captured = places, capture("print(lr, opt)", [], {"lr": 9}, given={"lr"})
    for name, content in captured.files.items():
        (task / name).write_text(content)
    command = [sys.executable, "job.py", str(folder), "parameters"]
    environment = {**os.environ, "CARREL_PARAMETERS": '{"lr": 0.5, "opt": "adam"}'}
    done = subprocess.run(
        command, cwd=task, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "0.5 adam\n", done.stderr
