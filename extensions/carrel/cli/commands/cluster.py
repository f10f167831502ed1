"""Commands about what everybody shares: nodes, projects, the queue, use."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carrel import units
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    ProjectOption,
    connected,
    now,
    project_of,
    show,
)
from carrel.errors import BadSetting

if TYPE_CHECKING:
    from carrel.models import Device, Node, QueueEntry, Usage, Workload

NODE_COLUMNS = (
    "NODE",
    "STATUS",
    "GPU TYPE",
    "GPUs",
    "ALLOCATED",
    "FREE",
    "LARGEST FREE",
    "CPU",
    "MEMORY",
)
NODE_NUMBERS = ("GPUs", "ALLOCATED", "FREE", "LARGEST FREE")
DEVICE_COLUMNS = ("NODE", "GPU", "TYPE", "ALLOCATED", "UTILIZATION", "MEMORY", "IDLE", "HELD BY")
DEVICE_NUMBERS = ("GPU", "ALLOCATED", "UTILIZATION")
LOAD_COLUMNS = ("NAME", "PROJECT", "GPUs", "UTILIZATION", "PROGRESS", "METRICS")
LOAD_NUMBERS = ("GPUs", "UTILIZATION", "PROGRESS")
FAULT_COLUMNS = ("SOURCE", "NAME", "REASON", "FOR", "MESSAGE")
QUEUE_COLUMNS = ("PLACE", "NAME", "PROJECT", "USER", "REQUEST", "WAITS SINCE", "REASON")
USE_COLUMNS = (
    *("GPU-HOURS", "BORROWED", "USED", "IDLE"),
    *("CPU-HOURS", "WAITED", "PREEMPTIONS", "JOBS"),
)


class By(StrEnum):
    """The ways in which use is summed up."""

    DEPARTMENT = "department"
    PROJECT = "project"
    USER = "user"
    WORKLOAD = "workload"
    KIND = "kind"
    GPU_TYPE = "gpu-type"
    NODE_GROUP = "node-group"


class UsageFormat(StrEnum):
    """The formats of a file of use."""

    CSV = "csv"
    PARQUET = "parquet"


def list_nodes(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List nodes with their GPUs, allocated and free."""
    with connected() as client:
        nodes = client.nodes()
    rows = map(_node_row, nodes)
    show(nodes, output, NODE_COLUMNS, rows, no_headers=no_headers, right=NODE_NUMBERS)


def _node_row(node: "Node") -> list[str]:
    kinds = sorted({device.name for device in node.devices if device.name})
    kind = ", ".join(kinds) or "-"
    free = (node.gpu_milli - node.gpu_allocated_milli) / 1000
    return [
        node.name,
        _node_status(node),
        f"{kind} (simulated)" if node.simulated and node.devices else kind,
        units.number(node.gpu_milli / 1000),
        units.number(node.gpu_allocated_milli / 1000),
        units.number(free),
        str(node.largest_free_gpus),
        f"{units.number(node.cpu_allocated_milli / 1000)} of {units.number(node.cpu_milli / 1000)}",
        f"{units.memory(node.memory_allocated_bytes)} of {units.memory(node.memory_bytes)}",
    ]


def _node_status(node: "Node") -> str:
    broken = sum(1 for device in node.devices if device.broken and device.message)
    return f"{node.status.capitalize()}{f', {broken} broken' if broken else ''}"


def list_projects(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List your projects by department: what is guaranteed, used, borrowed and pending."""
    from carrel.cli import cells
    from carrel.models import by_department

    with connected() as client:
        groups = by_department(client.list_projects())
    projects = [project for _, inside in groups for project in inside]
    rows = [cells.project_row(project) for project in projects]
    headers: tuple[str, ...] = cells.PROJECT_COLUMNS
    if any(department for department, _ in groups):
        headers = ("DEPARTMENT", *headers)
        owners = (project.department or "-" for project in projects)
        rows = [[owner, *row] for owner, row in zip(owners, rows, strict=True)]
    show(projects, output, headers, rows, no_headers=no_headers, right=cells.PROJECT_NUMBERS)


def top_node(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Show each GPU: who holds it and how hard it works."""
    with connected() as client:
        nodes = client.nodes()
    rows = (_device_row(node, device) for node in nodes for device in node.devices)
    show(nodes, output, DEVICE_COLUMNS, rows, no_headers=no_headers, right=DEVICE_NUMBERS)


def _device_row(node: "Node", device: "Device") -> list[str]:
    holders = [
        f"{holder.project}/{holder.name}" if holder.name else holder.project
        for holder in device.holders
    ]
    idle = "-" if device.idle_since is None else units.duration(now() - device.idle_since)
    memory = device.memory_used_mib
    used = "?" if memory is None else units.number(memory / 1024)
    kind = f"{device.name} (simulated)" if device.simulated else device.name
    return [
        node.name,
        str(device.index),
        f"{kind}, broken: {device.message}" if device.broken else kind,
        f"{device.allocated_milli / 1000:.2f}",
        "-" if device.utilization is None else f"{device.utilization:.0%}",
        f"{used} of {units.number(device.memory_mib / 1024)} GiB",
        idle,
        ", ".join(holders) or "-",
    ]


def top_job(
    *,
    project: ProjectOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-projects", "-A", help="Of all your projects.")
    ] = False,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show running jobs, the largest first: GPUs, their load, progress, metrics."""
    from carrel.cli import cells

    with connected() as client:
        where = None if everywhere else project_of(client, project)
        jobs = [job for job in client.list_workloads(where) if job.holds_resources]
        load = _load(client.nodes())
    jobs.sort(key=lambda job: (-cells.requested_gpus(job), job.project, job.name))
    rows = (_load_row(job, load.get(job.uid, [])) for job in jobs)
    show(jobs, output, LOAD_COLUMNS, rows, no_headers=no_headers, right=LOAD_NUMBERS)


def _load_row(job: "Workload", works: list[float]) -> list[str]:
    from carrel.cli import cells

    progress = job.status.progress
    return [
        job.name,
        job.project,
        f"{cells.requested_gpus(job):.2f}",
        f"{sum(works) / len(works):.0%}" if works else "-",
        f"{progress.done / progress.total:.0%}" if progress and progress.total else "-",
        ", ".join(f"{key} {value:.4g}" for key, value in job.status.metrics.items()) or "-",
    ]


def _load(nodes: "list[Node]") -> dict[str, list[float]]:
    """Utilisation of the devices that each workload holds, as far as measured, by its uid."""
    found: dict[str, list[float]] = {}
    for node in nodes:
        for device in node.devices:
            for holder in device.holders:
                own = device.utilization if holder.utilization is None else holder.utilization
                if own is not None:
                    found.setdefault(holder.uid, []).append(own)
    return found


def list_faults(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List what the scheduler could not process and set aside (administrators)."""
    with connected() as client:
        faults = client.faults()
    rows = [
        [one.source, one.called, one.reason, units.duration(now() - one.since), one.message or "-"]
        for one in faults.set_aside
    ]
    rows += [["invariant", name, "violated", "-", "-"] for name in faults.violated_invariants]
    show(faults, output, FAULT_COLUMNS, rows, no_headers=no_headers)


def queue(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Show pending work, in the order of service, and its reasons."""
    with connected() as client:
        entries = client.queue()
    rows = map(_queue_row, entries)
    show(entries, output, QUEUE_COLUMNS, rows, no_headers=no_headers, right=("PLACE",))


def _queue_row(entry: "QueueEntry") -> list[str]:
    return [
        str(entry.position),
        entry.name or "-",
        entry.project,
        entry.user or "-",
        units.gpus(entry.resources.gpus * entry.tasks),
        units.duration(now() - entry.waits_since),
        (entry.reason.sentence or entry.reason.token) if entry.reason else "-",
    ]


def usage(
    *,
    by: Annotated[By, typer.Option("--by", help="What to sum up by.")] = By.PROJECT,
    since: Annotated[str, typer.Option("--since", help="How far back: 12h, 7d.")] = "7d",
    until: Annotated[str, typer.Option("--until", help="Not the last: 1d.")] = "0s",
    form: Annotated[
        UsageFormat | None,
        typer.Option("--format", help="A file for other programs, the largest lines first."),
    ] = None,
    file: Annotated[
        str,
        typer.Option("--file", help="Where --format writes it, if not to the standard output."),
    ] = "",
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show what was used: GPU-hours, borrowed ones, waits, preemptions, and what it cost."""
    at = now()
    begins, ends = (
        units.seconds(one, flag) for one, flag in ((since, "--since"), (until, "--until"))
    )
    if ends > begins:
        raise BadSetting(f"--until {until} is longer ago than --since {since}.")
    if form is not None or file:
        _write_table(by, at - begins, at - ends, form, file)
        return
    with connected() as client:
        report = client.usage_report(by.value, since=at - begins, until=at - ends)
    cost = (f"COST ({report.currency})",) if report.currency else ()
    columns = (*USE_COLUMNS, *cost)
    rows = [[*_use_row(one), *([f"{one.cost:,.2f}"] if cost else [])] for one in report.items]
    headers = (by.value.upper(), *columns)
    show(report.items, output, headers, rows, no_headers=no_headers, right=columns)


def _write_table(by: By, since: float, until: float, form: UsageFormat | None, file: str) -> None:
    if form is None:
        raise BadSetting(f"--file {file} says where --format writes: give --format, too.")
    if form is UsageFormat.PARQUET and not file and sys.stdout.isatty():
        raise BadSetting("--format parquet is not for terminals: give --file, or redirect it.")
    with connected() as client:
        content = client.usage_table(by.value, since=since, until=until, form=form.value)
    if not file:
        typer.echo(content, nl=False)
        return
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        raise BadSetting(f"--file {file} cannot be written: {error.strerror}.") from error


def _use_row(entry: "Usage") -> list[str]:
    return [
        entry.key,
        f"{entry.gpu_seconds / 3600:,.2f}",
        f"{entry.borrowed_gpu_seconds / 3600:,.2f}",
        f"{entry.gpu_used_seconds / 3600:,.2f}",
        f"{entry.gpu_idle_seconds / 3600:,.2f}",
        f"{entry.cpu_seconds / 3600:,.2f}",
        units.duration(entry.wait_seconds),
        f"{entry.preemptions:,}",
        f"{entry.workloads:,}",
    ]
