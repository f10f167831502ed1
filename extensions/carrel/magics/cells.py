"""Magics that send a cell away: ``%%train``, ``%%sweep``, ``%%serve``."""

import symtable
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class

from carrel import options
from carrel.magics.base import CarrelMagics, PlainText, dry_run_text, one_line
from carrel.magics.parsing import MagicParser, parser
from carrel.notebook.cell import CannotSend, capture
from carrel.options import RequestFields, Surface
from carrel.volumes import hint_unmounted

TRAINING: Final = ("training", "distributed")
SWEEP: Final = ("experiment",)
SERVE: Final = ("inference",)
PREDICT: Final = "predict"
MODEL: Final = "model:"
"""The prefix of a model of the registry in the place of an endpoint's name: `model:digits@2`."""


def _parser(magic: str, description: str, kinds: Sequence[str]) -> MagicParser:
    rows = options.rows(Surface.MAGIC, kinds)
    return parser(magic, description, rows, names="Its name; without one it is numbered.")


TRAIN_PARSER: Final = _parser(
    "%%train",
    "Send this cell away as a training: its code, what it reads of this notebook, its folder.",
    TRAINING,
)
SWEEP_PARSER: Final = _parser(
    "%%sweep",
    "Run this cell once for each configuration: parameters become variables; a number in its "
    "last line is the objective.",
    SWEEP,
)
SERVE_PARSER: Final = _parser(
    "%%serve",
    "Serve a function of this cell (predict, or the one that --function names) as an endpoint; "
    "with --port 0 the cell is the server itself.",
    SERVE,
)


@magics_class
class CellMagics(CarrelMagics):
    """Cells as work."""

    @line_cell_magic
    def train(self, line: str, cell: str | None = None) -> Any:
        """Send this cell away as a training; `%%train -h` shows the options."""
        return self._send(TRAIN_PARSER, TRAINING, line, cell)

    @line_cell_magic
    def sweep(self, line: str, cell: str | None = None) -> Any:
        """Run this cell with many configurations; `%%sweep -h` shows the options."""
        return self._send(SWEEP_PARSER, SWEEP, line, cell)

    @line_cell_magic
    def serve(self, line: str, cell: str | None = None) -> Any:
        """Serve a function of this cell; `%%serve -h` shows the options."""
        return self._send(SERVE_PARSER, SERVE, line, cell)

    def _send(self, made: MagicParser, kinds: Sequence[str], line: str, cell: str | None) -> Any:
        parsed = self.read(made, line)
        if isinstance(parsed, PlainText):
            return parsed
        if cell is None:
            raise UsageError(
                f"{made.prog} sends a cell: write it in the first line of one, with the work below."
            )
        asked = made.asked(parsed, kinds)
        model = kinds is SERVE and (parsed.names or "").startswith(MODEL)
        if parsed.names and "name" in asked.fields and not model:
            raise UsageError(f"{made.prog}: the name is there twice; write it once.")
        if model:
            _take_model(made, asked, parsed.names.removeprefix(MODEL))
        elif parsed.names:
            asked.fields["name"] = parsed.names
        shell: Any = self.shell
        from carrel.client.submit import next_run, replacing

        with one_line():
            body, size = self._body(asked, cell, shell.user_ns)
            if hint := hint_unmounted(Path.cwd()):
                print(hint)  # noqa: T201 - in the output of the cell
            client = self.connection.client
            if "dry-run" in asked.own:
                answer = client.create_workload(body, dry_run=True)
                return PlainText(dry_run_text(body, answer, size))
            send = replacing if "replace" in asked.own else next_run
            job = self.handle(send(client, body))
            if job.name != body.get("name", job.name):
                print(f"`{body['name']}` is there already: this run of it is `{job.name}`.")  # noqa: T201 - as above
        if "to" in asked.own:
            shell.user_ns[asked.own["to"]] = job
        if "wait" in asked.own:
            self.show(job)
            with one_line():
                job.wait()
            return None
        return job

    def _body(
        self, asked: RequestFields, cell: str, namespace: dict[str, Any]
    ) -> tuple[dict[str, Any], int]:
        """The request, and the size of the variables that go along."""
        from carrel.notebook.cell import body_here

        how, given = _starter_arguments(asked, cell)
        captured = capture(cell, asked.fields.get("inputs", ()), namespace, given)
        return body_here(self.connection.client, captured, asked, how), captured.size


def _take_model(made: MagicParser, asked: RequestFields, model: str) -> None:
    """Serve a model of the registry; its name is the endpoint's, unless another one was said."""
    if asked.fields.get("model"):
        made.error("the model is there twice; write it once")
    asked.fields["model"] = model
    asked.fields.setdefault("name", model.partition("@")[0])


def _starter_arguments(asked: RequestFields, cell: str) -> tuple[list[str], set[str]]:
    """Arguments of the starter, and the names that it sets for the cell."""
    if asked.kind == "experiment":
        given = set(asked.fields["experiment"].get("parameters", ()))
        trial = "trial" in _symbols(cell, "is_referenced") - _symbols(cell, "is_assigned")
        return (["parameters", "trial"], {*given, "trial"}) if trial else (["parameters"], given)
    if asked.kind != "inference":
        return [], set()
    function = asked.own.get("function", PREDICT)
    if function in _symbols(cell, "is_assigned") | _symbols(cell, "is_imported"):
        return [f"serve={function}"], set()
    if "function" not in asked.own and any("port" in route for route in asked.fields["routes"]):
        return [], set()
    raise CannotSend(
        f"The cell defines no function `{function}`: define it there, name another with "
        "--function, or give --port 0 for a cell that listens on PORT by itself.",
        code="no_function",
    )


def _symbols(cell: str, test: str) -> set[str]:
    """Names at module level of which a test of ``symtable`` is true; none of what is no Python."""
    try:
        table = symtable.symtable(cell, "<cell>", "exec")
    except SyntaxError:  # said better by ``capture``
        return {PREDICT}
    return {symbol.get_name() for symbol in table.get_symbols() if getattr(symbol, test)()}
