"""Runs side by side: the page, its curves as JSON, and its table as CSV.

Runs are named in the address, ``?run=PROJECT/NAME``, so that a comparison can be passed on; whoever
opens it sees what they may see. Sorting, searching and grouping happen in the page.
"""

import json
import re
from typing import Any, Final

from tornado.web import HTTPError
from typing_extensions import override

from carrel.comparing import ComparedRun, drawable, runs_of, sheet_of
from carrel.errors import BadSetting
from carrel_hub.console.handlers.base import SignedInPage

_NAME = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_RUN: Final = re.compile(rf"(?:({_NAME})/)?({_NAME})")
_MOST_NAMED: Final = 100


class _Comparing(SignedInPage):
    """The base of the page, its curves and its table."""

    def named(self) -> list[tuple[str, str]]:
        """Project and name of each run in the address; a bare name is of ``?project=``."""
        project = self.get_query_argument("project", "")
        found = []
        for text in self.get_query_arguments("run"):
            if not text:
                continue
            match = _RUN.fullmatch(text)
            if match is None or not (match[1] or project):
                raise HTTPError(400, "%s is no run: write PROJECT/NAME", text[:100])
            found.append((match[1] or project, match[2]))
        if len(found) > _MOST_NAMED:
            raise HTTPError(400, "name %d runs at most; an experiment is one", _MOST_NAMED)
        return list(dict.fromkeys(found))

    async def runs(self, named: list[tuple[str, str]], *, curves: bool) -> list[ComparedRun]:
        """The runs of these names that the reader may see."""
        try:
            return await runs_of(self.client, named, self.console.clock(), curves=curves)
        except BadSetting as error:
            raise HTTPError(400, "%s", str(error)) from error


class ComparePage(_Comparing):
    """Curves over each other, and the table of parameters and last values."""

    @override
    async def get(self) -> None:
        """Show it."""
        named = self.named()
        runs = await self.runs(named, curves=False)
        self.show(
            "compare.html",
            section="jobs",
            named=[f"{project}/{name}" for project, name in named],
            sheet=sheet_of(runs),
        )


class CompareCurves(_Comparing):
    """The curves of runs, as JSON for the page's script."""

    @override
    async def get(self) -> None:
        """Answer."""
        runs = await self.runs(self.named(), curves=True)
        self._answer({"runs": drawable(runs)})

    def _answer(self, content: dict[str, Any]) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(content, allow_nan=False))


class CompareTable(_Comparing):
    """The table as a CSV file."""

    @override
    async def get(self) -> None:
        """Answer."""
        runs = await self.runs(self.named(), curves=False)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="runs.csv"')
        self.finish(sheet_of(runs).csv())
