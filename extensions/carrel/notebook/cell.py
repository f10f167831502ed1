"""A cell as a job: its source, chosen variables and a small starter become one request.

Never the whole namespace: what a cell needs is either made in it or named. What would fail an hour
later on another machine is refused here, with the remedy.
"""

import base64
import builtins
import io
import os
import pickle
import symtable
import sys
import types
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from carrel.client import Client
from carrel.client.submit import default_project
from carrel.errors import BadSetting
from carrel.options import RequestFields
from carrel.volumes import mount_folder

BUILTIN: Final = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}


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
STARTER: Final = Path(__file__).with_name("starter.py")
FIRST_LINE: Final = "# the magic's line"


class CannotSend(BadSetting):
    """This cell, or a variable, cannot go along; the message says what to do instead."""

    def __init__(self, sentence: str, *, code: str = "cannot_send") -> None:
        super().__init__(sentence, code=code)


@dataclass(frozen=True, slots=True)
class Captured:
    """What a training takes from the notebook. ``files`` are those of the API."""

    files: Mapping[str, str]
    inputs: tuple[str, ...]
    size: int


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
    _check_names(source, inputs, namespace, given)
    packed, size = _pack({name: namespace[name] for name in inputs})
    files = {
        "job.py": STARTER.read_text(encoding="utf-8"),
        # The first line stands for the magic, so that line numbers are those of the notebook.
        "cell.py": f"{FIRST_LINE}\n{source.rstrip()}\n",
    }
    if inputs:
        files["inputs.b85"] = packed
    _check_size(files, namespace, inputs)
    return Captured(files, tuple(inputs), size if inputs else 0)


def _check_names(
    source: str, inputs: Sequence[str], namespace: Mapping[str, Any], given: Container[str]
) -> None:
    try:
        needed = borrowed_names(source)
    except SyntaxError as error:
        line = (error.lineno or 0) + 1
        raise CannotSend(
            f"Line {line} of the cell is not plain Python ({error.msg}). "
            "Magics and shell lines work in notebooks only; run commands with `subprocess`.",
            code="not_python",
        ) from error
    unknown = [name for name in inputs if name not in namespace]
    if unknown:
        raise CannotSend(f"--in: this notebook has no variable {_listed(unknown)}.")
    missing = sorted(
        name for name in needed - set(inputs) if name in namespace and name not in given
    )
    modules = [name for name in missing if isinstance(namespace[name], types.ModuleType)]
    if modules:
        raise CannotSend(
            f"The cell uses {_listed(modules)}, imported elsewhere in this notebook: "
            "import it in the cell, too."
        )
    code = [name for name in missing if _lives_here(namespace[name])]
    if code:
        raise CannotSend(
            f"The cell uses {_listed(code)}, defined elsewhere in this notebook: "
            "define it in the cell, or import it from a file."
        )
    imported = [name for name in missing if _is_code(namespace[name])]
    if imported:
        raise CannotSend(
            f"The cell uses {_listed(imported)}, imported elsewhere in this notebook: "
            "import it in the cell, too."
        )
    if missing:
        raise CannotSend(
            f"The cell uses {_listed(missing)} of this notebook: "
            f"take it along with --in {','.join([*inputs, *missing])}."
        )


def _pack(values: Mapping[str, Any]) -> tuple[str, int]:
    """The variables as text, and their size before it was made small."""
    for name, value in values.items():
        _pickled(name, value)
    pickled = _pickled(" and ".join(values), dict(values))
    return base64.b85encode(zlib.compress(pickled)).decode("ascii"), len(pickled)


def _check_size(
    files: Mapping[str, str], namespace: Mapping[str, Any], inputs: Sequence[str]
) -> None:
    size = sum(len(text.encode()) for text in files.values())
    if size <= LARGEST:
        return
    if not inputs:
        raise CannotSend(
            "The cell is longer than 1 MiB; read its data from a file.", code="too_large"
        )
    biggest = max(inputs, key=lambda name: len(_pickled(name, namespace[name])))
    raise CannotSend(
        f"--in: {_listed(inputs)} takes {size / LARGEST:.1f} MiB, more than 1 MiB. "
        f"Save `{biggest}` to a file in your folder and load it in the cell.",
        code="too_large",
    )


def _pickled(name: str, value: Any) -> bytes:
    out = io.BytesIO()
    try:
        _Pickler(out, protocol=5).dump(value)
    except CannotSend as error:
        raise CannotSend(f"--in {name}: {error}", code=error.code) from error
    except Exception as error:
        # Objects decide themselves how they are pickled, and raise what they like.
        raise CannotSend(
            f"--in {name}: a {type(value).__name__} cannot be packed ({error}). "
            "Make it in the cell, or save it to a file in your folder and load it there.",
            code="not_picklable",
        ) from error
    return out.getvalue()


class _Pickler(pickle.Pickler):
    """Refuses what could be packed here and not be unpacked there."""

    @override
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            raise CannotSend(
                f"`{obj.__name__}` is a module; import it in the cell instead.",
                code="not_picklable",
            )
        if _lives_here(obj):
            raise CannotSend(
                f"it needs `{obj.__qualname__}`, which is defined in this notebook; "
                "define it in a file that both can import.",
                code="not_picklable",
            )
        return NotImplemented


def _is_code(value: Any) -> bool:
    return isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)


def _lives_here(value: Any) -> bool:
    return _is_code(value) and getattr(value, "__module__", "") == "__main__"


def _listed(found: Sequence[str] | Mapping[str, Any]) -> str:
    quoted = [f"`{name}`" for name in found]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


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
    return body
