"""``python -m carrel.job.worker.child DESCRIPTOR [FOLDER]``: runs trials as its parent says.

A command that runs Python (``python script.py``, ``-m module``, ``-c code``) is run in this
process: what it has imported once is there for the next trial. Each trial begins with a
``__main__``, arguments and an environment of its own, in the folder of the task; what a script
changes in modules stays changed, which is the price of not starting anew. Any other command is a
process of its own.

With a folder it runs the items of a map: calls of the function that was packed by whoever called
``map``, and worked in that folder.
"""

import contextlib
import gc
import os
import pickle
import runpy
import subprocess
import sys
import traceback
import zlib
from collections.abc import Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any

from carrel import results
from carrel.job.task import PREEMPTED
from carrel.job.worker import orders
from carrel.job.worker.link import Pruned, WorkerLink
from carrel.job.worker.orders import Order, TrialEnd


def main(words: Sequence[str]) -> None:
    """Run items until the parent closes the connection."""
    connection = Connection(int(words[0]))
    run = Calls(*words[1:]).run if len(words) > 1 else Scripts().run
    base, folder, path = dict(os.environ), Path.cwd(), list(sys.path)
    while True:
        try:
            order: Order = connection.recv()
        except EOFError:
            return
        if order.environment:
            os.environ.update(order.environment)
        ended = run(order)
        sys.stdout.flush()
        sys.stderr.flush()
        if order.environment:
            os.environ.clear()
            os.environ.update(base)
            os.chdir(folder)
            sys.path[:] = path
        connection.send(ended)


class Scripts:
    """Runs commands, each as the program that it would be in a process of its own."""

    def __init__(self) -> None:
        self._link = WorkerLink.from_environment()

    def run(self, order: Order) -> TrialEnd:
        """Run one trial."""
        self._link.begin(order.trial)
        if name := os.environ.get("CARREL_PARAMETER_FILE"):
            Path(name).write_text(os.environ["CARREL_PARAMETERS"], encoding="utf-8")
        error, code = "", 0
        try:
            code = self._code_of(order.command)
        except Pruned:
            print("carrel: pruned", flush=True)  # noqa: T201 - the log of the trial
        except BaseException as raised:  # noqa: BLE001 - whatever the script raises
            error = f"{type(raised).__name__}: {raised}"
            shown = raised.with_traceback(_below_runner(raised))
            traceback.print_exception(shown)
        left = code == PREEMPTED
        if code and not left:
            error = f"It ended with exit code {code}."
        said = self._link.end(None if left else not error)
        gc.collect()
        return TrialEnd(order.trial, error=error, left=left, said=said)

    def _code_of(self, command: Sequence[str]) -> int:
        python = _python_arguments(command)
        if python is None:
            return subprocess.run(command, check=False).returncode
        try:
            _run_python(python)
        except SystemExit as left:
            if left.code is not None and not isinstance(left.code, int):
                print(left.code, file=sys.stderr)  # noqa: T201 - as Python does
                return 1
            return left.code or 0
        return 0


def _below_runner(error: BaseException) -> Any:
    """The traceback without the frames of this module."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        trace = trace.tb_next
    return trace


def _python_arguments(command: Sequence[str]) -> list[str] | None:
    """The arguments after ``python`` and ``-u``; ``None`` for other programs and other options."""
    if not PurePosixPath(command[0]).name.startswith("python"):
        return None
    words = [*command[1:]]
    while words and words[0] in ("-u", "-B"):
        del words[0]
    if not words or (words[0].startswith("-") and words[0] not in ("-m", "-c")):
        return None
    return words if words[0] not in ("-m", "-c") or len(words) > 1 else None


def _run_python(words: Sequence[str]) -> None:
    first, *rest = words
    if first == "-m":
        sys.argv = list(words[1:])
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    module = ModuleType("__main__")
    if first == "-c":
        sys.argv, code = ["-c", *rest[1:]], _compiled(rest[0], "<string>")
        sys.path.insert(0, "")
    else:
        sys.argv = list(words)
        sys.path.insert(0, str(Path(first).resolve().parent))
        module.__dict__["__file__"] = first
        code = _compiled(Path(first).read_bytes(), first)
    kept = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)  # noqa: S102 - the user's own program
    finally:
        sys.modules["__main__"] = kept


@cache
def _compiled(source: str | bytes, name: str) -> CodeType:
    return compile(source, name, "exec", dont_inherit=True)


class Calls:
    """Calls the function of a map.

    Args:
        folder: where its caller works: entered, if it is seen here, and searched for modules.
    """

    def __init__(self, folder: str) -> None:
        self._here, self._folder = Path.cwd(), folder
        self._function: Any = None
        self._file = ""
        self._items: Sequence[bytes] = ()

    def run(self, order: Order) -> TrialEnd:
        """Call the function for one item."""
        try:
            value = self._unpacked()(pickle.loads(self._item(order.trial)))  # noqa: S301 - see above
        except Exception as error:  # noqa: BLE001 - handed back to the caller
            traceback.print_exception(error.with_traceback(_below_runner(error)))
            why = f"{type(error).__name__}: {error}"
            return TrialEnd(order.trial, error=why, output=results.encode_error(error))
        return TrialEnd(order.trial, output=results.encode_value(value))

    def _unpacked(self) -> Any:
        if self._function is None:
            if Path(self._folder).is_dir():
                os.chdir(self._folder)
                sys.path.insert(0, self._folder)
            self._function = _load(self._here / orders.FUNCTION)
        return self._function

    def _item(self, number: int) -> bytes:
        file = orders.items_file(number)
        if file != self._file:
            self._file, self._items = file, _load(self._here / file)
        return self._items[number % orders.ITEMS_PER_FILE]


def _load(file: Path) -> Any:
    return pickle.loads(zlib.decompress(file.read_bytes()))  # noqa: S301 - the caller's own


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
