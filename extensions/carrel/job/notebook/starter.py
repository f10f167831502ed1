"""Starts a cell that was sent away: its variables, its folder, then its code as ``__main__``.

``job.py FOLDER [parameters] [trial] [serve=NAME]`` runs beside ``cell.py`` and the variables.
Needs Python alone. Where Carrel is installed, the value of the cell's last line goes back to
whoever sent the cell (of a trial it is reported, when it is a number), and so does an exception.
"""

import ast
import base64
import json
import numbers
import os
import pickle
import sys
import traceback
import types
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def start(folder: str, *how: str) -> None:
    """Run ``cell.py`` in ``folder``."""
    here = Path(__file__).resolve().parent
    enter(folder)
    main = types.ModuleType("__main__")
    cell = here / "cell.py"
    sys.modules["__main__"], sys.argv = main, [str(cell)]
    main.__dict__.update(variables(here, how), __file__=str(cell))
    offer_shell(cell, main)
    served = [word.partition("=")[2] for word in how if word.startswith("serve=")]
    try:
        value = run(cell, main.__dict__)
        if served:
            import carrel

            carrel.serve(main.__dict__[served[0]])
    except Exception as error:
        hand_back(error=error.with_traceback(behind(error.__traceback__, (OWN_FILE,))))
        raise
    if "parameters" in how:
        report(value)
    if not served:
        hand_back(value)


def variables(here: Path, how: Sequence[str]) -> dict[str, Any]:
    """The variables of the cell: those taken along, a trial's parameters, the trial itself."""
    found: dict[str, Any] = {}
    packed = here / "inputs.b85"
    if packed.exists():
        found |= pickle.loads(zlib.decompress(base64.b85decode(packed.read_bytes())))  # noqa: S301 - our own
    large = here / "inputs.pickle"  # too large for the request, and uploaded
    if large.exists():
        found |= pickle.loads(large.read_bytes())  # noqa: S301 - our own
    if "parameters" in how:
        found |= json.loads(os.environ.get("CARREL_PARAMETERS", "{}"))
    if "trial" in how:
        import carrel

        found["trial"] = carrel.trial()
    return found


def offer_shell(cell: Path, main: types.ModuleType) -> None:
    """Have lines that begin with ``!`` or ``%`` run, as in a notebook, where a cell has any."""
    if "get_ipython()" not in cell.read_text(encoding="utf-8"):
        return
    try:
        from IPython.core.interactiveshell import InteractiveShell
    except ModuleNotFoundError:
        sys.exit("Lines with `!` or `%` need IPython here: install it, or use `subprocess`.")
    shell: Any = InteractiveShell.instance(user_module=main, user_ns=main.__dict__)
    main.__dict__["get_ipython"] = lambda: shell


def run(file: Path, namespace: dict[str, Any]) -> Any:
    """Execute the cell; returns the value of its last line, if that is an expression."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, str(file), "exec", dont_inherit=True), namespace)  # noqa: S102 - what this is for
    if not isinstance(last, ast.Expr):
        return None
    code = compile(ast.Expression(last.value), str(file), "eval", dont_inherit=True)
    return eval(code, namespace)  # noqa: S307 - the cell's own last line


def report(value: object) -> None:
    """A trial's last line is its objective, when it is a number."""
    metric = os.environ.get("CARREL_METRIC")
    if metric and not isinstance(value, bool) and isinstance(value, numbers.Real):
        import carrel

        metrics: dict[str, Any] = {metric: float(value)}
        carrel.report(**metrics)


def hand_back(value: object = None, error: Exception | None = None) -> None:
    """Send the result where Carrel is installed; a trial has none, only values."""
    if "CARREL_TRIAL" in os.environ:
        return
    try:
        from carrel.job import result
    except ModuleNotFoundError:
        return
    result.hand_back(value, error)


def enter(folder: str) -> None:
    """Work where the notebook works; its modules are found there, not beside this file."""
    try:
        os.chdir(folder)
    except OSError as error:
        sys.exit(f"The notebook's folder {folder} cannot be entered here: {error.strerror}.")
    sys.path[0] = folder


def hide_frames(*files: str) -> None:
    """Leave what these files do above the user's code out of the traceback of an exception."""

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        traceback.print_exception(kind, error, behind(trace, files))

    sys.excepthook = show


def behind(trace: types.TracebackType | None, files: Sequence[str]) -> types.TracebackType | None:
    """A traceback from its first frame that is in none of these files; the whole if all are."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename in files:
        found = found.tb_next
    return found or trace


OWN_FILE = start.__code__.co_filename

if __name__ == "__main__":
    hide_frames(OWN_FILE)
    start(*sys.argv[1:])
