"""The spawner's settings, and its connection to the scheduler.

A part of the spawner, not a spawner: the Hub wants each of its subclasses to be whole.
"""

from collections.abc import Sequence
from typing import Any

from traitlets import Bool, Float, Integer, Unicode
from traitlets.config import LoggingConfigurable

from carrel.client import AsyncClient
from carrel_spawner import options, surroundings
from carrel_spawner.connection import shared_client
from carrel_spawner.hubside import escape, join_url
from carrel_spawner.options import Choice, Most, Offer, Profile, Sizes
from carrel_spawner.workplace import GRACE_SECONDS, Workplace


class Configured(LoggingConfigurable):
    """Everything that does not change during a workspace's life."""

    # What the Hub's Spawner brings.
    user: Any
    hub: Any
    server: Any
    orm_spawner: Any
    apply_group_overrides: Any
    name: str
    port: int
    _log_name: str

    carrel_url = Unicode(
        help="The scheduler's service as the Hub reaches it, such as "
        "`http://127.0.0.1:8000/services/carrel`.",
    ).tag(config=True)
    carrel_token = Unicode(
        help="The spawner's own token, with the scope `custom:carrel:spawn`.",
    ).tag(config=True)
    carrel_workspace_url = Unicode(
        help="The same service as workspaces reach it; `carrel_url` when empty.",
    ).tag(config=True)
    carrel_gateway_url = Unicode(
        "", help="Where workspaces reach the gateway; empty: where people do."
    ).tag(config=True)
    carrel_console_url = Unicode("/services/console/", help="Where people find the console.").tag(
        config=True
    )
    default_gpus = Integer(0, help="GPUs of a workspace when nothing is chosen.").tag(config=True)
    default_cpu = Float(0.5, help="Processor cores when nothing is chosen.").tag(config=True)
    default_memory_gib = Float(2.0, help="Memory in GiB when nothing is chosen.").tag(config=True)
    most_gpus = Integer(1024, help="The most GPUs that a workspace may be given.").tag(config=True)
    most_cpu = Float(1024.0, help="The most processor cores.").tag(config=True)
    most_memory_gib = Float(65536.0, help="The most memory in GiB.").tag(config=True)
    demo = Bool(default_value=False, help="Put the demo notebooks into homes that lack them.").tag(
        config=True
    )
    grace_seconds = Float(
        GRACE_SECONDS, help="How long a workspace that is to stop has for saving its work."
    ).tag(config=True)
    settle_seconds = Float(0.5, help="How long a refusal must stand before it is believed.").tag(
        config=True
    )
    believed_seconds = Float(
        60.0,
        help="How long after a workspace was seen to run the scheduler's stream is believed that "
        "it still does, so that the Hub's polls need not ask.",
    ).tag(config=True)

    takes_folders = False
    choice: Choice | None = None

    @property
    def client(self) -> AsyncClient:
        """The connection to the scheduler."""
        return shared_client(self.carrel_url, self.carrel_token)

    @property
    def workplace(self) -> Workplace:
        """This workspace as the scheduler knows it."""
        return Workplace(self.client, self.user.name, self.name, self.grace_seconds)

    @property
    def projects(self) -> list[str]:
        """The projects of this user, from the Hub's groups."""
        return options.projects_of([group.name for group in self.user.groups])

    @property
    def offer(self) -> Offer:
        """What may be chosen, and what is taken when nothing is."""
        usual = Sizes(self.default_gpus, self.default_cpu, self.default_memory_gib)
        most = Most(self.most_gpus, self.most_cpu, self.most_memory_gib)
        return Offer(usual, most, self.profiles, self.takes_folders)

    @property
    def profiles(self) -> Sequence[Profile]:
        """Kinds of workspaces to choose from."""
        return ()

    @property
    def queue_url(self) -> str:
        """Where the buttons of the queue post to."""
        parts = ["carrel", "queue", self.user.escaped_name]
        return join_url(self.hub.base_url, *parts, *([escape(self.name)] if self.name else []))

    def get_env(self) -> dict[str, Any]:
        """The Hub's variables and ours."""
        base: Any = super()
        environment: dict[str, Any] = base.get_env()
        environment["CARREL_URL"] = self.carrel_workspace_url or self.carrel_url
        if self.carrel_gateway_url:
            environment["CARREL_GATEWAY_URL"] = self.carrel_gateway_url
        environment["CARREL_CONSOLE_URL"] = self.carrel_console_url
        if self.choice is not None:
            whole = self.choice.furnished(self.offer)
            environment |= surroundings.variables(whole.environment, whole.volumes)
        return environment
