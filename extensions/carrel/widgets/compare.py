"""The view of a comparison: curves over each other, and the table of parameters and last values."""

from collections.abc import Mapping
from typing import Any

import msgspec
import traitlets
from typing_extensions import override

from carrel.client import Client
from carrel.comparing import ComparedRun, RunTable, drawable
from carrel.widgets import bundle, static_html
from carrel.widgets.live import LiveView


class CompareView(LiveView):
    """Runs as they were when they were read; it does not follow events."""

    _esm = bundle.module("uPlot.iife.min.js", "parts.js", "plots.js", "runs.js", "compare.js")
    _css = bundle.text("uPlot.min.css") + bundle.text("plots.css") + bundle.text("views.css")

    runs: Any = traitlets.List().tag(sync=True)
    sheet: Any = traitlets.Dict().tag(sync=True)

    def __init__(self, client: Client, runs: list[ComparedRun], sheet: RunTable) -> None:
        self._runs, self._sheet = runs, sheet
        super().__init__(client, **self.present())

    @property
    @override
    def settled(self) -> bool:
        return True

    @override
    def present(self) -> Mapping[str, Any]:
        return {"runs": drawable(self._runs), "sheet": msgspec.to_builtins(self._sheet)}

    @override
    async def follow(self) -> None:
        """No effect: a comparison does not change."""

    @override
    def fallback(self) -> dict[str, Any]:
        columns, rows = cells(self._sheet)
        lines = ["  ".join(columns), *("  ".join(row) for row in rows)]
        shown = [[static_html.escape(cell) for cell in row] for row in rows]
        return {
            "text/plain": "\n".join(lines),
            "text/html": static_html.table("Runs", columns, shown),
        }


def cells(sheet: RunTable) -> tuple[list[str], list[list[str]]]:
    """The table as texts: names of its columns, and its rows."""
    columns = ["Run", "State", *sheet.parameters, *sheet.metrics]
    rows = [
        [
            row["run"],
            row["state"],
            *(_text(row["parameters"].get(name)) for name in sheet.parameters),
            *(_text(row["metrics"].get(name)) for name in sheet.metrics),
        ]
        for row in sheet.rows
    ]
    return columns, rows


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
