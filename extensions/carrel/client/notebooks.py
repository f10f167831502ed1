"""Notebooks as jobs, work by the clock, and TensorBoard, from plain Python.

A notebook is sent along as it is now, without its outputs: what was submitted is what runs. One
that is too large for that, or that a schedule should read anew each time, is named by its path.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from carrel.client.submit import default_project
from carrel.client.sync import Client
from carrel.errors import BadSetting
from carrel.models import Workload
from carrel.volumes import VOLUMES, in_workspace, set_working_dir

MOST_BYTES: Final = 1024 * 1024 - 4096
OLDEST_FORMAT: Final = 4


def slim(path: Path) -> str:
    """The notebook's text without its outputs. Raises ``BadSetting`` for what is no notebook."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadSetting(f"There is no notebook {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadSetting(f"{path} cannot be read: {reason}.") from error
    return stripped(text, str(path))


def stripped(text: str, name: str) -> str:
    """The same for text. ``name`` is for the sentence of a refusal."""
    try:
        notebook: dict[str, Any] = json.loads(text)
        cells = notebook["cells"]
        for cell in cells:
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
    except (ValueError, KeyError, TypeError) as error:
        raise BadSetting(f"{name} is no notebook (.ipynb, format 4).") from error
    if notebook.get("nbformat") != OLDEST_FORMAT:
        raise BadSetting(
            f"{name} has notebook format {notebook.get('nbformat')}; open and save it in Jupyter "
            "to make it format 4."
        )
    notebook.get("metadata", {}).pop("widgets", None)
    return json.dumps(notebook, ensure_ascii=False)


LONGEST_PREFIX: Final = 48


def run_notebook(
    client: Client,
    path: str | Path,
    parameters: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    project: str | None = None,
    output: str | Path = "",
    kernel: str = "",
    cell_timeout: float | None = None,
    send: bool | None = None,
    **fields: Any,
) -> Workload:
    """Run a notebook as a job; returns the submitted job.

    Args:
        client: the client to use.
        path: of the notebook.
        parameters: values for the names in the cell tagged ``parameters``; what JSON can say.
        name: of the job; by default the notebook's name with a number behind it.
        project: where it belongs; by default the configured one, or the only one.
        output: file or folder for the executed notebook; by default beside the notebook, or in the
            home. ``{name}`` is the job's name, ``{date}`` the day.
        kernel: by default the notebook's own.
        cell_timeout: seconds for each cell.
        send: whether the notebook is sent along (else the job reads it at its start); by default
            it is, unless it is too large.
        fields: further fields of the API's workload (docs/api.md), such as ``gpus=1``.

    Raises:
        BadSetting: for a notebook that is not there or is none.
        CarrelError: when refused or unreachable.
    """
    body = notebook_body(
        path,
        parameters,
        output=output,
        kernel=kernel,
        cell_timeout=cell_timeout,
        send=send,
        **fields,
    )
    return client.create_workload(
        {
            "kind": "notebook",
            "project": project or default_project(client),
            **_named(name, prefix_of(path, "notebook")),
            **body,
        }
    )


def notebook_body(
    path: str | Path,
    parameters: Mapping[str, Any] | None = None,
    *,
    output: str | Path = "",
    kernel: str = "",
    cell_timeout: float | None = None,
    send: bool | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """The part of a request that is about the notebook; see ``run_notebook``."""
    full = Path(path).expanduser().absolute()
    text = "" if send is False else _sent(full, needed=send is True)
    section: dict[str, Any] = {
        "path": full.name if text else str(full),
        "output": _output(output),
        "parameters": dict(parameters or {}),
        "kernel": kernel,
        "cell_timeout_seconds": cell_timeout,
    }
    body: dict[str, Any] = {"notebook": section, **fields}
    if text:
        body["files"] = {**fields.get("files", {}), full.name: text}
    if in_workspace() and (text or VOLUMES in os.environ):
        set_working_dir(body, full.parent)
    return body


def fetch(
    client: Client, name: str, *, project: str | None = None, to: str | Path | None = None
) -> Path:
    """Save the executed notebook of a job that ran where its files are not seen: on a cluster.

    Args:
        client: the client to use.
        name: of the job.
        project: where it belongs; by default the configured one, or the only one.
        to: file to write; by default the notebook's own name here, which must not exist.

    Returns:
        The file.

    Raises:
        BadSetting: for work that is no notebook, and a file that exists.
        NoResult: when the job has not ended, or wrote its notebook to a folder that you see.
        CarrelError: when refused or unreachable.
    """
    where = project or default_project(client)
    job = client.get_workload(where, name)
    if job.spec.notebook is None:
        raise BadSetting(f"{name} is no notebook job.")
    usual = Path(job.status.notebook.output).name if job.status.notebook else ""
    path = Path(to) if to else Path(usual or f"{name}.ipynb")
    if not to and path.exists():
        raise BadSetting(f"{path} exists here; say where the notebook goes.")
    text = client.result(where, name)
    path.write_text(str(text), encoding="utf-8")
    return path


def schedule(
    client: Client,
    cron: str,
    *,
    name: str,
    notebook: str | Path | None = None,
    parameters: Mapping[str, Any] | None = None,
    command: Sequence[str] = (),
    project: str | None = None,
    time_zone: str = "UTC",
    overlap: str = "skip",
    keep: int = 5,
    starting_deadline: float = 3600.0,
    output: str | Path = "",
    kernel: str = "",
    cell_timeout: float | None = None,
    send: bool | None = None,
    **fields: Any,
) -> Workload:
    """Run a notebook, or a command, by the clock; its runs are called NAME-1, NAME-2, ...

    In a workspace the notebook is read anew for each run, elsewhere it is sent along once.

    Args:
        client: the client to use.
        cron: five fields (minute, hour, day of the month, month, day of the week).
        name: of the schedule.
        notebook: path of the notebook to run.
        parameters: values for the names in the cell tagged ``parameters``.
        command: to run instead of a notebook.
        project: where it belongs; by default the configured one, or the only one.
        time_zone: of the IANA database, such as ``Europe/Berlin``.
        overlap: while the run before goes on: ``skip`` this one, ``allow`` both, ``replace`` it.
        keep: how many ended runs stay listed.
        starting_deadline: seconds; a run missed by more is left out.
        output: of each run.
        kernel: of each run.
        cell_timeout: seconds for each cell.
        send: whether the notebook is sent along once instead of being read anew for each run.
        fields: further fields of the API's workload, for every run.

    Raises:
        BadSetting: for neither or both of a notebook and a command.
        CarrelError: when refused or unreachable.
    """
    if (notebook is None) == (not command):
        raise BadSetting("A schedule runs a notebook or a command: give one of them.")
    body: dict[str, Any] = {**fields, "command": list(command)}
    if notebook is not None:
        body = notebook_body(
            notebook,
            parameters,
            output=output,
            kernel=kernel,
            cell_timeout=cell_timeout,
            send=not in_workspace() if send is None else send,
            **fields,
        )
    return client.create_workload(
        {
            "kind": "schedule",
            "name": name,
            "project": project or default_project(client),
            "schedule": {
                "cron": cron,
                "time_zone": time_zone,
                "runs": "training" if notebook is None else "notebook",
                "overlap": overlap,
                "keep": keep,
                "starting_deadline_seconds": starting_deadline,
            },
            **body,
        }
    )


def tensorboard(
    client: Client,
    jobs: Sequence[str],
    *,
    name: str | None = None,
    project: str | None = None,
    **fields: Any,
) -> Workload:
    """A TensorBoard over the event files of jobs of one project, by their names.

    One that is there already is taken, or an own one resumed, unless a ``name`` or ``fields`` ask
    for another. It stops by itself when nobody has looked for half an hour; the members of the
    project may look.

    Raises:
        CarrelError: when a job is not there, or the service is not reached.
    """
    where = project or default_project(client)
    if name is None and not fields:
        known = client.list_workloads(where, kind="tensorboard")
        same = [one for one in known if _shows(one, jobs)]
        there = [one for one in same if one.status.phase != "stopped"]
        if there:
            return there[-1]
        me = client.whoami().user if same else ""
        mine = [one for one in same if one.spec.user == me]
        if mine:
            return client.resume(where, mine[-1].name)
    return client.create_workload(
        {
            "kind": "tensorboard",
            "project": where,
            **_named(name, "tensorboard"),
            "tensorboard": {"jobs": list(jobs)},
            **fields,
        }
    )


def _shows(board: Workload, jobs: Sequence[str]) -> bool:
    """Whether a TensorBoard has not ended and shows exactly these jobs."""
    spec = board.spec
    ended = board.status.phase in ("succeeded", "failed") or spec.delete
    return not ended and spec.tensorboard is not None and set(spec.tensorboard.jobs) == set(jobs)


def _named(name: str | None, prefix: str) -> dict[str, str]:
    return {"name": name} if name else {"name_prefix": prefix}


def prefix_of(path: str | Path, otherwise: str) -> str:
    """A name prefix made of a file's name."""
    words = re.sub(r"[^a-z0-9]+", "-", Path(path).stem.lower()).strip("-")
    return words[:LONGEST_PREFIX].strip("-") or otherwise


def _sent(path: Path, *, needed: bool) -> str:
    """The notebook's text without outputs; empty when it is too large and need not be sent."""
    text = slim(path)
    if len(text.encode()) <= MOST_BYTES:
        return text
    if needed or not in_workspace():
        raise BadSetting(
            f"{path} is larger than 1 MiB without its outputs; put it where the job can read it "
            "and give `send=False`."
        )
    return ""


def _output(path: str | Path) -> str:
    """The path of the output: absolute in a workspace, elsewhere as given."""
    if not str(path):
        return ""
    whole = str(Path(path).expanduser())
    if in_workspace() and not Path(whole).is_absolute():
        whole = str(Path.cwd() / whole)
    return f"{whole}/" if str(path).endswith("/") or Path(whole).is_dir() else whole
