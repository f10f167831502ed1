"""What `carrel up` prints: steps while it starts, then where to go, then how it ended."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from carrel_hub.settings import Settings
from carrel_hub.up.first import NewAccount


class Screen:
    """A terminal, or a file when nobody looks."""

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

    def trouble(self, text: str) -> None:
        """Why it does not work."""
        self.console.print(f"[red]✗[/] {escape(text)}")

    def ready(
        self,
        settings: Settings,
        new: Sequence[NewAccount],
        gpus: str,
        accounts: str,
        network: str = "",
    ) -> None:
        """Everything one needs to begin."""
        self.console.print()
        self.console.print(f"[bold]Carrel is ready:[/] [bold cyan]{settings.public_url}[/]")
        self.console.print()
        if new:
            self._passwords(new)
        else:
            self.say("Sign in with your account; a new password: carrel user password NAME")
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


def _may(account: NewAccount) -> str:
    parts = [f"use project {name}" for name in account.projects]
    if account.admin:
        parts.append("manage everything")
    return ", ".join(parts)
