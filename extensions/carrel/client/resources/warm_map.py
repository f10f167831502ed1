"""``map`` by workers: the items of one piece of work, handed out by the scheduler a few at a time.

Function and items travel as a folder of code, which is uploaded once and fetched by each worker;
what calls return comes back in outputs, each of which has what many calls returned. The event
stream of the map tells when to look for outputs; nothing polls.
"""

import asyncio
import os
import pickle
import secrets
import sys
import tempfile
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from carrel import results
from carrel.client.resources.code import CodeMethods
from carrel.client.resources.experiments import ExperimentMethods, experiment_path
from carrel.client.resources.waiting import WaitMethods
from carrel.errors import ApiError, BadSetting
from carrel.job.worker.orders import FUNCTION, ITEMS_PER_FILE, items_file, unframed
from carrel.models import Workload
from carrel.results import NoResult
from carrel.volumes import in_workspace, mount_folder
from carrel_schema.answers import OutputNames, TrialOut

LABEL: Final = "carrel.dev/map"
MOST_ITEMS: Final = 100_000
AT_ONCE: Final = 4
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call: a value, or an error."""

    index: int
    name: str
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class MapOrder:
    """The order for a map: its workload without the code, and the files of the code."""

    body: Body
    files: Mapping[str, bytes]


def map_body(
    items: int, project: str, name: str, gpus: float, workers: int, fields: Mapping[str, Any]
) -> Body:
    """The workload of a map. Raises ``BadSetting``."""
    if items > MOST_ITEMS:
        raise BadSetting(f"{items:,} items are more than {MOST_ITEMS:,}; hand over lists of them.")
    for field in ("code", "working_dir"):
        if fields.get(field):
            raise BadSetting(
                f"`{field}` goes with `warm=False` only: workers have code of their own."
            )
    given = dict(fields)
    body: Body = {
        "kind": "experiment",
        "project": project,
        "name": name,
        "command": [sys.executable, os.getcwd()],  # noqa: PTH109 - a string
        "environment": {"PYTHONUNBUFFERED": "1", **given.pop("environment", {})},
        "labels": {**given.pop("labels", {}), LABEL: secrets.token_hex(8)},
        "gpus": gpus,
        "experiment": {
            "map": True,
            "trial_process": "warm",
            "completions": items,
            "parallelism": workers,
            "max_failed_trials": MOST_ITEMS,
        },
        **given,
    }
    if in_workspace():
        mount_folder(body, os.getcwd())  # noqa: PTH109 - as in the command
    return body


def files_of(function: Callable[[Any], Any], items: Sequence[Any]) -> dict[str, bytes]:
    """Function and items as files. Raises ``BadSetting`` for what cannot be packed."""
    files = {FUNCTION: zlib.compress(packed("The function", function))}
    for first in range(0, len(items), ITEMS_PER_FILE):
        many = enumerate(items[first : first + ITEMS_PER_FILE], first + 1)
        each = [packed(f"Item {number}", item) for number, item in many]
        files[items_file(first)] = zlib.compress(pickle.dumps(each, protocol=5), 1)
    return files


def packed(what: str, value: object) -> bytes:
    """A value as bytes. Raises ``BadSetting``."""
    cloudpickle: Any = import_module("cloudpickle")  # heavy, and it has no types
    try:
        content: bytes = cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        # Objects decide themselves how they are pickled, and raise what they like.
        raise BadSetting(f"{what} cannot be packed: {error}.", code="not_picklable") from error
    return content


class WarmMapMethods(WaitMethods, ExperimentMethods, CodeMethods):
    """Maps by workers."""

    async def warm_outcomes(
        self, order: MapOrder, *, keep: bool = False
    ) -> AsyncGenerator[CallOutcome, None]:
        """Submit a map and yield outcomes as calls end; cancels it when closed before its end."""
        total = order.body["experiment"]["completions"]
        if not total:
            return
        project, name = order.body["project"], order.body["name"]
        digest = await self._send_files(project, order.files)
        try:
            made = await self.create_workload({**order.body, "code": {"digest": digest}})
        except ApiError:
            raise  # it was refused: nothing is there
        except BaseException:
            await self._remove_unheard(order)
            raise
        left, failed, ended = set(range(total)), False, False
        try:
            async with aclosing(self._outputs(made)) as outputs:
                async for index, content in outputs:
                    if index in left:
                        left.remove(index)
                        outcome = _outcome(name, index, content)
                        failed = failed or outcome.error is not None
                        yield outcome
            for outcome in await self._missing(made, left):
                yield outcome
            ended = True
        finally:
            if not ended or not (keep or failed or left):
                await remove(self, project, name)

    async def _remove_unheard(self, order: MapOrder) -> None:
        """Remove a map whose answer was lost, found by the label of this call."""
        labels = {LABEL: order.body["labels"][LABEL]}
        for found in await self.list_workloads(order.body["project"], labels=labels):
            await remove(self, found.project, found.name)

    async def _send_files(self, project: str, files: Mapping[str, bytes]) -> str:
        def write(folder: str) -> None:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)

        with tempfile.TemporaryDirectory(prefix="carrel-map-") as folder:
            await asyncio.to_thread(write, folder)
            digest, _ = await self.upload_code(project, folder)
        return digest

    async def _outputs(self, made: Workload) -> AsyncGenerator[tuple[int, bytes], None]:
        """The outputs of items, until the map has ended."""
        seen: set[str] = set()
        async with aclosing(self.events(made.project, made.name)) as events:
            async for event in events:
                path = experiment_path(made.project, made.name, "outputs")
                listed = await self._transport.ask("GET", path, OutputNames)
                fresh = [name for name in listed.items if name not in seen]
                for first in range(0, len(fresh), AT_ONCE):
                    few = (self._output(path, one) for one in fresh[first : first + AT_ONCE])
                    for content in await asyncio.gather(*few):
                        for pair in unframed(content):
                            yield pair
                seen.update(fresh)
                if event.type == "deleted" or event.workload.at_rest:
                    return

    async def _output(self, path: str, name: str) -> bytes:
        return await self._transport.send("GET", f"{path}/{name}", repeatable=True)

    async def _missing(self, made: Workload, left: set[int]) -> list[CallOutcome]:
        """The outcomes of items that returned nothing: their process died, or they did not run."""
        if not left:
            return []
        try:
            rows = {row.number: row for row in (await self.trials(made.project, made.name)).items}
        except ApiError as error:
            if error.status != 404:
                raise
            rows = {}
        return [
            CallOutcome(index, f"{made.name}, item {index + 1}", error=_why(made, rows.get(index)))
            for index in sorted(left)
        ]


def _outcome(name: str, index: int, content: bytes) -> CallOutcome:
    called = f"{name}, item {index + 1}"
    try:
        return CallOutcome(index, called, results.decode(content))
    except Exception as error:  # noqa: BLE001 - whatever the function raised
        return CallOutcome(index, called, error=error)


def _why(made: Workload, row: TrialOut | None) -> NoResult:
    """The reason why an item returned nothing."""
    if row is not None and row.error:
        return NoResult(row.error)
    return NoResult(f"`{made.name}` ended, was stopped or was removed before this item was called.")


async def remove(client: WaitMethods, project: str, name: str) -> None:
    """Remove work that nobody needs any more, if it is still there."""
    try:
        await client.delete_workload(project, name)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
