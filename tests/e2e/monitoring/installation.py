"""A ``carrel up`` with something of everything that metrics tell, and an administrator's client."""

import sys
from typing import Any, Final

from carrel_hub.keys import Keys
from e2e.stack import Stack, until

TIMEOUT_SECONDS: Final = 120.0
GPUS: Final = 4
SLEEP: Final = ("sleep", "900")


class Installation:
    """A stack with the two projects of ``--demo``, each with a quota of two of the four GPUs."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.client = stack.client(stack.token("admin"))

    @property
    def scraping_token(self) -> str:
        """The key ``metrics`` of the state folder."""
        return Keys.load_or_create(self.stack.state_dir / "keys.json").metrics

    def set_up(self) -> None:
        """Bounds of a department and of a project; work that failed once is in a crash loop."""
        self.client.put_department("science", {"quota": {"gpus": 4}, "limit": {"gpus": 4}})
        self.client.update_project("vision", {"department": "science", "limit": {"gpus": 4}})
        self.client.update_project("speech", {"department": "science"})
        self.client.put_alert_rule("crash-loop", {"threshold": 1, "for_seconds": 0})

    def borrow(self) -> None:
        """``vision`` takes all four GPUs, two of them beyond its quota; one job ends, one fails."""
        self._submit("vision", "own", SLEEP, gpus=2)
        self._submit("vision", "borrowed", SLEEP, gpus=2)
        self._submit("vision", "done", ["true"])
        self._submit("vision", "failing", ["false"], backoff_limit=50)
        self._until("vision", "borrowed", "running")
        self._until("vision", "done", "succeeded")

    def take_back(self) -> None:
        """``speech`` gets what it is guaranteed, by preemption; its last job has to wait."""
        server = [sys.executable, "-m", "http.server", "$(PORT)"]
        replicas = {"min_replicas": 1, "max_replicas": 1}
        self._submit("speech", "served", server, kind="inference", gpus=0.5, inference=replicas)
        self._submit("speech", "guaranteed", SLEEP, gpus=1)
        self._until("speech", "guaranteed", "running")
        self._until("speech", "served", "running")
        self._submit("speech", "waiting", SLEEP, gpus=1)
        self._until("vision", "borrowed", "pending")

    def ask_the_endpoint(self) -> None:
        """Send a request through the gateway."""
        assert "<html" in self.client.endpoint("speech", "served").get("")

    def _submit(
        self, project: str, name: str, command: list[str] | tuple[str, ...], **fields: Any
    ) -> None:
        body = {"kind": "training", "project": project, "name": name, "command": [*command]}
        self.client.create_workload({**body, **fields})

    def _until(self, project: str, name: str, phase: str) -> None:
        until(
            lambda: self.client.get_workload(project, name).status.phase == phase,
            seconds=TIMEOUT_SECONDS,
            every=0.2,
            why=f"{project}/{name} is {phase}",
        )
