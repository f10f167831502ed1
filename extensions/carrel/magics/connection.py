"""The one client of a kernel, and how a name that somebody typed becomes a workload."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from carrel.errors import ApiError, CarrelError

if TYPE_CHECKING:
    from carrel.client import Client
    from carrel.models import Workload


def connect() -> "Client":
    """A client made from the environment. Imported here: it takes a while, and starts need none."""
    from carrel.client import Client

    return Client()


class Connection:
    """Connects when first asked. ``make`` is replaced by tests."""

    def __init__(self, make: Callable[[], "Client"] = connect) -> None:
        self._make = make
        self._client: Client | None = None

    @property
    def client(self) -> "Client":
        """The client. Raises ``CarrelError`` when not signed in."""
        if self._client is None:
            self._client = self._make()
        return self._client

    def find(self, name: str, project: str | None = None) -> "Workload":
        """A workload by ``NAME`` or ``PROJECT/NAME``.

        A bare name is looked for in the default project, then among one's own.
        Raises ``UsageError`` when there is none, or more than one.
        """
        head, slash, tail = name.partition("/")
        if slash:
            return self.client.get_workload(head, tail)
        if project:
            return self.client.get_workload(project, name)
        mine = [w for w in self.mine() if w.name == name]
        if len(mine) == 1:
            return mine[0]
        if mine:
            projects = " or ".join(f"{w.project}/{w.name}" for w in mine)
            raise UsageError(f"Which `{name}`? Write {projects}.")
        from carrel.client.submit import default_project

        try:
            return self.client.get_workload(default_project(self.client), name)
        except ApiError as error:
            if error.status != 404:
                raise
            raise UsageError(f"There is no job `{name}`; %jobs lists yours.") from error

    def mine(self) -> "list[Workload]":
        """The caller's work, workspaces and parts of other work left out."""
        user = self.client.whoami().user
        found = self.client.list_workloads(user=user)
        return [workload for workload in found if workload.spec.kind != "workspace"]


@contextmanager
def one_line() -> Iterator[None]:
    """Turn our errors into one clean line."""
    try:
        yield
    except CarrelError as error:
        raise UsageError(str(error)) from error
