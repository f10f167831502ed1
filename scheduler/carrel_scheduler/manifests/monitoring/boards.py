"""Grafana dashboards: from a short typed description to Grafana's JSON.

A board has rows of panels, which fill 24 columns from the left. The data source and what may be
chosen are variables, so that one file serves every installation.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

PanelKind = Literal["stat", "timeseries", "table", "bargauge"]
COLUMNS: Final = 24
SCHEMA: Final = 39
"""The version of Grafana 10's boards; newer ones read it."""
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHTS: Final[dict[PanelKind, int]] = {"stat": 4, "timeseries": 8, "table": 9, "bargauge": 8}


@dataclass(frozen=True, slots=True)
class Query:
    """A line of a panel: PromQL, and its name as ``{{label}}``; empty: all labels."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure, a chart or a table.

    Attributes:
        unit: in Grafana's words: ``short``, ``percentunit``, ``s``, ``bytes``, ``watt``, ...
        width: of 24 columns.
        warn_at: from here on its colour is orange; ``None``: it has one colour.
    """

    title: str
    queries: Sequence[Query]
    kind: PanelKind = "timeseries"
    unit: str = "short"
    width: int = 12
    description: str = ""
    warn_at: float | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable to choose above a board: all values of a label."""

    name: str
    title: str
    metric: str

    @property
    def query(self) -> str:
        """The query for label values in Grafana's syntax; not PromQL."""
        return f"label_values({self.metric}, {self.name})"


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard; its ``uid`` stays when its title changes."""

    uid: str
    title: str
    description: str
    panels: Sequence[Panel]
    variables: Sequence[Variable] = field(default_factory=tuple)

    @property
    def text(self) -> str:
        """The JSON for Grafana's import."""
        return json.dumps(_board(self), indent=1, sort_keys=True) + "\n"


def _board(board: Board) -> dict[str, Any]:
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": ["carrel"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "links": [
            {
                "title": "Carrel",
                "type": "dashboards",
                "tags": ["carrel"],
                "asDropdown": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_source(), *(_variable(one) for one in board.variables)]},
        "panels": list(_placed(board.panels)),
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}


def _variable(one: Variable) -> dict[str, Any]:
    return {
        "name": one.name,
        "label": one.title,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": one.query, "refId": one.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    left = top = tallest = 0
    for number, panel in enumerate(panels, start=1):
        if left + panel.width > COLUMNS:
            left, top, tallest = 0, top + tallest, 0
        height = _HEIGHTS[panel.kind]
        place = {"x": left, "y": top, "w": panel.width, "h": height}
        yield {"id": number, "gridPos": place, **_panel(panel)}
        left, tallest = left + panel.width, max(tallest, height)


def _panel(panel: Panel) -> dict[str, Any]:
    table = panel.kind == "table"
    now = panel.kind != "timeseries"
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            "instant": now,
            "range": not now,
            "format": "table" if table else "time_series",
        }
        for number, query in enumerate(panel.queries)
    ]
    steps: list[dict[str, Any]] = [{"color": "blue" if panel.warn_at is None else "green"}]
    if panel.warn_at is not None:
        steps.append({"color": "orange", "value": panel.warn_at})
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind != "timeseries":
        defaults["color"] = {"mode": "thresholds"}
    found: dict[str, Any] = {
        "title": panel.title,
        "type": panel.kind,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    if panel.description:
        found["description"] = panel.description
    if table:
        found["transformations"] = _one_table(panel)
    return found


def _one_table(panel: Panel) -> list[dict[str, Any]]:
    """The queries as columns of one table, each named by its legend."""
    names = {
        f"Value #{chr(ord('A') + number)}" if len(panel.queries) > 1 else "Value": query.legend
        for number, query in enumerate(panel.queries)
        if query.legend
    }
    hidden = {"excludeByName": {"Time": True}, "renameByName": names}
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": hidden}]
