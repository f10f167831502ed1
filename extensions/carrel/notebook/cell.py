"""A cell as a job: its source, what it reads of the notebook, and a small starter.

Never the whole namespace: what the cell names goes along, by value, also functions and classes of
other cells (cloudpickle). What would fail an hour later on another machine is refused here.
"""

import base64
import builtins
import os
import symtable
import sys
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from carrel.client import Client
from carrel.client.submit import default_project
from carrel.errors import BadSetting
from carrel.options import RequestFields
from carrel.volumes import mount_folder
from carrel_schema.code import MOST_FOLDER_BYTES

BUILTIN: Final = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
OF_THE_SHELL: Final = frozenset({"get_ipython", "In", "Out", "exit", "quit", "open"})
"""The names that every notebook has; the starter has its own."""


def borrowed_names(source: str) -> frozenset[str]:
    """Names that the code reads at module level or below and binds nowhere at module level.

    Raises ``SyntaxError`` when the source is not plain Python.
    """
    compile(source, "<cell>", "exec", dont_inherit=True)
    module = symtable.symtable(source, "<cell>", "exec")
    bound = {
        symbol.get_name()
        for symbol in module.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_annotated()
    }
    read: set[str] = set()
    for table in _tables(module):
        for symbol in table.get_symbols():
            if symbol.is_global() and symbol.is_assigned():
                bound.add(symbol.get_name())
            at_module_level = table is module or symbol.is_global()
            if at_module_level and symbol.is_referenced():
                read.add(symbol.get_name())
    return frozenset(read - bound - BUILTIN)


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


LARGEST: Final = 1024 * 1024
"""Bytes of all files in a request."""
LARGE_FILE: Final = "inputs.pickle"
STARTER: Final = Path(__file__).parents[1] / "job" / "notebook" / "starter.py"
FIRST_LINE: Final = "# the magic's line"


class CannotSend(BadSetting):
    """A cell or a variable cannot be sent along; the message says what to do instead."""

    def __init__(self, sentence: str, *, code: str = "cannot_send") -> None:
        super().__init__(sentence, code=code)


@dataclass(frozen=True, slots=True)
class Captured:
    """The names that a training uses from the notebook.

    Attributes:
        files: of the request.
        inputs: names of the variables that go along, which take ``size`` bytes.
        large: the variables, where they are too large for the request and are uploaded.
    """

    files: Mapping[str, str]
    inputs: tuple[str, ...]
    size: int
    large: bytes = b""


def capture(
    source: str,
    inputs: Sequence[str],
    namespace: Mapping[str, Any],
    given: Container[str] = (),
) -> Captured:
    """Check and pack a cell. Raises ``CannotSend``.

    Args:
        source: the cell without its first line (the magic).
        inputs: names of variables to take along.
        namespace: the notebook's.
        given: names that the job finds without anybody taking them along.
    """
    if not source.strip():
        raise CannotSend("The cell is empty: write the work below the magic.", code="empty_cell")
    plain = plain_python(source)
    names = _names(plain, inputs, namespace, given)
    files = {
        "job.py": STARTER.read_text(encoding="utf-8"),
        # The first line stands for the magic, so that line numbers are those of the notebook.
        "cell.py": f"{FIRST_LINE}\n{plain.rstrip()}\n",
    }
    size = sum(len(text.encode()) for text in files.values())
    if size > LARGEST:
        raise CannotSend(
            "The cell is longer than 1 MiB; read its data from a file.", code="too_large"
        )
    pickled = _pickled({name: namespace[name] for name in names}) if names else b""
    if len(pickled) > MOST_FOLDER_BYTES:
        biggest = max(names, key=lambda name: len(_pickled({name: namespace[name]})))
        raise CannotSend(
            f"{_listed(names)} takes {len(pickled) / 2**20:.1f} MiB, more than "
            f"{MOST_FOLDER_BYTES // 2**20} MiB. Save `{biggest}` to a file in your folder and load "
            "it in the cell.",
            code="too_large",
        )
    text = base64.b85encode(zlib.compress(pickled)).decode("ascii") if names else ""
    if size + len(text) > LARGEST:
        return Captured(files, tuple(names), len(pickled), pickled)
    if names:
        files["inputs.b85"] = text
    return Captured(files, tuple(names), len(pickled))


def _names(
    source: str, inputs: Sequence[str], namespace: Mapping[str, Any], given: Container[str]
) -> list[str]:
    """The names to send: those asked for, and those of this notebook that the cell reads."""
    unknown = [name for name in inputs if name not in namespace]
    if unknown:
        raise CannotSend(f"--in: this notebook has no variable {_listed(unknown)}.")
    read = (name for name in borrowed_names(source) if name in namespace and name not in given)
    return [*inputs, *sorted(set(read) - set(inputs) - OF_THE_SHELL)]


def plain_python(source: str) -> str:
    """The cell with its shell and magic lines as calls of IPython, which runs them in the job.

    Raises ``CannotSend`` for what is neither.
    """
    try:
        compile(source, "<cell>", "exec", dont_inherit=True)
    except SyntaxError:
        transformers: Any = import_module("IPython.core.inputtransformer2")  # it has no types
        source = transformers.TransformerManager().transform_cell(source)
    try:
        compile(source, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.lineno or 0) + 1
        raise CannotSend(
            f"Line {line} of the cell is not plain Python ({error.msg}), nor a line for the shell "
            "(`!`) or a magic (`%`).",
            code="not_python",
        ) from error
    return source


def pack(named: Mapping[str, Any], value: Any) -> bytes:
    """A value with functions and classes of this notebook by value. Raises ``CannotSend``.

    ``named`` holds it, and what goes with it, by the name to call it by.
    """
    cloudpickle: Any = import_module("cloudpickle")  # heavy, and it has no types
    try:
        packed: bytes = cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        # Objects decide themselves how they are pickled, and raise what they like.
        name, found = next(iter(named.items()))
        raise CannotSend(
            f"`{name}` cannot go along: a {type(found).__name__} cannot be packed ({error}). "
            "Make it in the cell, or save it to a file in your folder and load it there.",
            code="not_picklable",
        ) from error
    return packed


def _pickled(values: Mapping[str, Any]) -> bytes:
    """The variables together, each tried by itself before."""
    for name, value in values.items():
        pack({name: value}, value)
    return pack(values, dict(values))


def _listed(found: Sequence[str] | Mapping[str, Any]) -> str:
    quoted = [f"`{name}`" for name in found]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


COMPANION_LABEL: Final = "carrel.dev/companion"
"""Marks the work that runs single cells (``%%gpu``), of which the notebook itself tells."""
ITS_OWN = "."
"""The folder that it starts in."""
PREFIXES = {
    "training": "train",
    "distributed": "train",
    "experiment": "sweep",
    "inference": "serve",
}


def cell_body(
    captured: Captured,
    asked: RequestFields,
    *,
    project: str,
    folder: str,
    python: str = sys.executable,
    how: Sequence[str] = (),
) -> dict[str, Any]:
    """The API's workload for a cell.

    The task starts in a folder of its own, where its files lie, and then enters ``folder``; ``how``
    are further words for ``starter.py``.
    """
    given = dict(asked.fields)
    environment = {"PYTHONUNBUFFERED": "1", **given.pop("environment", {})}
    given.pop("inputs", None)
    if "name" not in given:
        given.setdefault("name_prefix", PREFIXES[asked.kind])
    return {
        "kind": asked.kind,
        "command": [python, "job.py", folder, *how],
        "files": dict(captured.files),
        "inputs": list(captured.inputs),
        **given,
        "project": project,
        "environment": environment,
    }


def body_here(
    client: Client, captured: Captured, asked: RequestFields, how: Sequence[str] = ()
) -> dict[str, Any]:
    """The same for this kernel: its folder, its Python, the person's default project.

    Where jobs do not see that folder, it stays in its own.
    """
    project = asked.fields.get("project") or default_project(client)
    folder = os.getcwd()  # noqa: PTH109 - the kernel's folder as a string
    body = cell_body(captured, asked, project=project, folder=folder, how=how)
    if not mount_folder(body, folder):
        body["command"][2] = ITS_OWN
    if captured.large:
        if "code" in body:
            raise CannotSend(
                f"{_listed(captured.inputs)} takes more than 1 MiB and cannot go along with --git.",
                code="too_large",
            )
        with TemporaryDirectory() as below:
            (Path(below) / LARGE_FILE).write_bytes(captured.large)
            body["code"] = {"digest": client.upload_code(project, below)[0]}
    return body
