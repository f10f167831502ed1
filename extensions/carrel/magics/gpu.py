"""``%%gpu``: a cell on a GPU, in a process beside the kernel, as if it ran here."""

import atexit
import queue
import sys
import time
from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class

from carrel import options, wording
from carrel.magics.base import CarrelMagics, PlainText, one_line
from carrel.magics.parsing import MagicParser, parser
from carrel.notebook.cell import CannotSend, plain_python
from carrel.options import Option, Surface, values

KINDS: Final = ("training",)
FLAGS: Final = frozenset({"project", "in", "priority", "preemptible", "environment", "secret",
                          "volume", "image", "node-group", "label"})  # fmt: skip
KEEP: Final = Option(
    "keep", "Keep the GPU for so long after the cell: 60, 5m; by default not.", "", values.span()
)
ROWS: Final = tuple(
    row for row in options.rows(Surface.MAGIC, KINDS)
    if row.flag in FLAGS or row.group == "Each task gets"
)  # fmt: skip
SIZES: Final = ("gpus", "gpu_memory_bytes", "mig_profile")
QUIET_START_SECONDS: Final = 1.0
"""A start that takes no longer is not shown as waiting."""


def _parser() -> MagicParser:
    made = parser("%%gpu", "Run this cell on a GPU, in a process beside this kernel.", ROWS)
    made.learn([KEEP])
    return made


PARSER: Final = _parser()


@magics_class
class GpuMagics(CarrelMagics):
    """Single cells on a GPU."""

    companion: Any = None

    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> Any:
        """Run this cell on a GPU; `%%gpu -h` shows the options."""
        parsed = self.read(PARSER, line)
        if isinstance(parsed, PlainText):
            return parsed
        if cell is None or not cell.strip():
            raise UsageError("%%gpu runs a cell: write it in the first line of one.")
        asked = dict(PARSER.asked(parsed, KINDS).fields)
        keep, given = PARSER.value(KEEP, parsed) or 0.0, list(asked.pop("inputs", ()))
        if not any(size in asked for size in SIZES):
            asked["gpus"] = 1.0
        with one_line():
            source = plain_python(cell)
            missing = [name for name in given if name not in self.shell.user_ns]  # type: ignore[union-attr]
            if missing:
                raise CannotSend(f"--in: this notebook has no variable `{missing[0]}`.")
            companion = self._companion(asked, keep)
            self._run(companion, source, given)
        return None

    def _companion(self, asked: dict[str, Any], keep: float) -> Any:
        """The one that is there, if it is as asked for; otherwise a new one takes its place."""
        from carrel.notebook.companion import Companion

        cls, known = type(self), type(self).companion
        if known is not None and known.ready and (known.asked, known.keep) == (asked, keep):
            return known
        if known is not None:
            known.release()
        else:
            atexit.register(release)
        cls.companion = Companion(self.connection.client, asked, keep)
        return cls.companion

    def _run(self, companion: Any, source: str, given: list[str]) -> None:
        shell: Any = self.shell
        try:
            run = companion.run(source, given, shell.user_ns)
            answer, error = self._follow(companion, run)
        except BaseException:
            companion.release()
            raise
        from carrel.notebook.companion import raised

        companion.release_later()
        self._take(answer)
        problem = raised(answer, error)
        if problem is not None:
            raise problem

    def _follow(self, companion: Any, run: Any) -> tuple[dict[str, Any], Any]:
        """Show what arrives until the end; the stop button interrupts the cell there."""
        began, view, error, interrupts = time.monotonic(), None, None, 0
        while True:
            try:
                kind, content = run.frames.get(timeout=QUIET_START_SECONDS / 4)
            except queue.Empty:
                late = time.monotonic() - began > QUIET_START_SECONDS
                if late and view is None and not companion.ready:
                    view = self._show_waiting(companion)
                continue
            except KeyboardInterrupt:
                interrupts += 1
                if not companion.ready or interrupts > 1:
                    raise
                companion.interrupt()
                continue
            if kind == "failed":
                raise content
            if kind == "end":
                return companion.verified(*content), error
            if kind == "error":
                error = content
            elif kind == "started":
                self._end_waiting(view, time.monotonic() - began)
            else:
                self._show(kind, content)

    def _show(self, kind: str, content: dict[str, Any]) -> None:
        shell: Any = self.shell
        if kind == "stream":
            stream = sys.stderr if content["name"] == "stderr" else sys.stdout
            stream.write(content["text"])
        elif kind == "clear":
            shell.display_pub.clear_output(wait=content["wait"])
        else:
            shell.display_pub.publish(
                content["data"],
                content["metadata"],
                transient=content.get("transient"),
                update=content.get("update", False),
            )

    def _show_waiting(self, companion: Any) -> Any:
        view = self.handle(companion.workload).view()
        view._ipython_display_()
        return view

    def _end_waiting(self, view: Any, seconds: float) -> None:
        """Show in place of the view how long the wait took."""
        if view is None:
            return
        view.stop()
        shell: Any = self.shell
        text = f"Waited {wording.duration(seconds)} for the GPU."
        shell.display_pub.publish(
            {"text/plain": text}, transient={"display_id": view.model_id}, update=True
        )

    def _take(self, answer: dict[str, Any]) -> None:
        """Variables that the cell assigned or changed become the notebook's."""
        import pickle

        shell: Any = self.shell
        for name, value in answer["variables"].items():
            try:
                shell.user_ns[name] = pickle.loads(value)  # noqa: S301 - verified before
            except Exception as error:  # noqa: BLE001 - what a class that is not here raises
                print(f"`{name}` cannot be made here: {error}", file=sys.stderr)  # noqa: T201 - of the cell
        if answer["kept"]:
            names = ", ".join(f"`{name}`" for name in answer["kept"])
            print(f"Stays with the GPU's process, as it cannot be packed: {names}")  # noqa: T201 - as above


def release() -> None:
    """Give the GPU back: the kernel ends."""
    if GpuMagics.companion is not None:
        GpuMagics.companion.release()
