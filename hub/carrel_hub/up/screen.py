"""The output of `carrel up`: steps while it starts, the addresses, then how it ended."""

import os
import pwd
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from carrel.models import Node, Workload
from carrel_hub.settings import InstallationSettings
from carrel_hub.up.bootstrap import NewAccount


class Screen:
    """Output for a terminal, or for a file."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Say what happens, and tick it off with the seconds it took."""
        began = time.monotonic()
        with self.console.status(f"{escape(text)} …"):
            yield
        seconds = time.monotonic() - began
        self.console.print(f"[green]✓[/] {escape(text)} [dim]{seconds:.1f} s[/]")

    def say(self, text: str) -> None:
        """A plain line."""
        self.console.print(escape(text))

    def error(self, text: str) -> None:
        """Show an error."""
        self.console.print(f"[red]✗[/] {escape(text)}")

    def ready(
        self,
        settings: InstallationSettings,
        new: Sequence[NewAccount],
        gpus: str,
        accounts: str,
        network: str = "",
    ) -> None:
        """Print the addresses and the first accounts."""
        self.console.print()
        self.console.print(f"[bold]Carrel is ready:[/] [bold cyan]{settings.public_url}[/]")
        self.console.print()
        if new:
            self._passwords(new)
        else:
            self.say("Sign in with your account; a new password: carrel user password NAME")
        for step in next_steps(settings, new):
            self.say(step)
        table = Table.grid(padding=(0, 2))
        for label, value in (
            ("GPUs", gpus),
            ("Accounts", accounts),
            *([("Network", network)] if network else []),
            ("State", str(settings.state_dir)),
            ("Logs", str(settings.log_dir)),
        ):
            table.add_row(f"[dim]{label}[/]", escape(value))
        self.console.print(table)
        self.console.print()
        if not settings.on_loopback:
            self.say(
                f"It listens on {settings.host}: whoever reaches this machine can try to sign in, "
                f"and passwords travel unencrypted. Put a proxy with TLS in front of it."
            )
        self.say("Stop with Ctrl-C.")

    def _passwords(self, new: Sequence[NewAccount]) -> None:
        table = Table(box=None, padding=(0, 2), header_style="dim")
        for column in ("user", "password", "may"):
            table.add_column(column)
        for account in new:
            table.add_row(account.name, f"[bold]{account.password}[/]", _may(account))
        self.console.print(table)
        self.say("Shown this once. For a new one: carrel user password NAME")
        self.console.print()


def next_steps(settings: InstallationSettings, new: Sequence[NewAccount]) -> list[str]:
    """Print the first steps for new users."""
    if not new:
        return []
    then = (
        "run the cells of carrel-demo.ipynb" if settings.demo else "invite others: Manage, People"
    )
    return [
        f"Next: open {settings.public_url}, sign in as {new[0].name}, press Start, and {then}.",
        f"In a shell: carrel login --url {settings.public_url}",
        "",
    ]


def _may(account: NewAccount) -> str:
    parts = [f"use project {name}" for name in account.projects]
    if account.admin:
        parts.append("manage everything")
    return ", ".join(parts)


def gpu_line(nodes: Sequence[Node]) -> str:
    """``4 simulated GPUs (A10, 24 GiB each)``; simulated or real is always said."""
    devices = [device for node in nodes for device in node.devices]
    if not devices:
        return "none"
    count = len(devices)
    simulated = all(device.simulated for device in devices)
    kind = "simulated GPU" if simulated else "GPU"
    line = f"{count} {kind}{'s' if count != 1 else ''}"
    models = sorted({_model(device.name, device.memory_mib) for device in devices})
    each = " each" if count > 1 and len(models) == 1 else ""
    return f"{line} ({'; '.join(models)}{each})"


def account_line(*, privileged: bool | None = None, account: str | None = None) -> str:
    """Whether users are kept apart on this machine."""
    if os.geteuid() == 0 if privileged is None else privileged:
        return "each user's work runs under an account of that user's own, never as root"
    name = account or pwd.getpwuid(os.geteuid()).pw_name
    return (
        f"all work runs as {name}, so users can read each other's files; run as root to part them"
    )


def _model(name: str, memory_mib: int) -> str:
    memory = f"{memory_mib / 1024:.0f} GiB" if memory_mib else ""
    return ", ".join(part for part in (name, memory) if part)


def stop_summary(workloads: Sequence[Workload] | None, *, stopped: bool) -> str:
    """The line about what happens to workspaces and jobs."""
    if workloads is None:
        return "Stopped. Workspaces and jobs go on; the next `carrel up` finds them again."
    if not workloads:
        return "Stopped. Nothing was running."
    what = _counted(workloads)
    if stopped:
        return f"Stopped, with {what}; suspended jobs go on with `carrel resume NAME`."
    goes, them = ("goes", "it") if len(workloads) == 1 else ("go", "them")
    return (
        f"Stopped. {what} {goes} on; the next `carrel up` finds {them} again "
        f"(`carrel up --stop-jobs` stops {them} too)."
    )


def _counted(workloads: Sequence[Workload]) -> str:
    workspaces = sum(one.spec.kind == "workspace" for one in workloads)
    jobs = len(workloads) - workspaces
    parts = []
    if workspaces:
        parts.append(f"{workspaces} workspace{'s' if workspaces != 1 else ''}")
    if jobs:
        parts.append(f"{jobs} job{'s' if jobs != 1 else ''}")
    return " and ".join(parts)
