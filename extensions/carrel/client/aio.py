"""The asynchronous client: one server, one token, every endpoint a method.

Its methods are defined by resource of the API, in ``resources``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from carrel.client import config
from carrel.client.resources.code import CodeMethods
from carrel.client.resources.endpoints import EndpointMethods
from carrel.client.resources.experiments import ExperimentMethods
from carrel.client.resources.files import FileMethods
from carrel.client.resources.governance.access import AccessMethods
from carrel.client.resources.governance.accounting import AccountingMethods
from carrel.client.resources.governance.alerts import AlertMethods
from carrel.client.resources.governance.assets import AssetMethods
from carrel.client.resources.governance.audit import AuditMethods
from carrel.client.resources.governance.node_groups import NodeGroupMethods
from carrel.client.resources.governance.policies import PolicyMethods
from carrel.client.resources.governance.secrets import SecretMethods
from carrel.client.resources.governance.users import UserMethods
from carrel.client.resources.map import MapMethods
from carrel.client.resources.models import ModelMethods
from carrel.client.transport import JitteredBackoff, Transport

if TYPE_CHECKING:
    import aiohttp


class AsyncClient(
    MapMethods,
    ExperimentMethods,
    EndpointMethods,
    CodeMethods,
    FileMethods,
    ModelMethods,
    NodeGroupMethods,
    PolicyMethods,
    SecretMethods,
    AuditMethods,
    AccessMethods,
    AlertMethods,
    AssetMethods,
    AccountingMethods,
    UserMethods,
):
    """Talks to Carrel. Every method raises ``CarrelError`` (``carrel.errors``) and nothing else.

    Example::

        async with AsyncClient() as client:
            job = await client.create_workload({"project": "vision", "name": "train-7", ...})
            async for event in client.events("vision", "train-7"):
                print(event.workload.status.phase)

    Args:
        url: the service, such as ``http://127.0.0.1:8000/services/carrel``; by default found in
            the environment or the configuration file (``carrel.client.config``).
        token: any JupyterHub token with the right to use Carrel; found likewise.
        timeout: seconds for one request, streams excepted.
        read_timeout: the same for requests that only read; by default ``timeout``.
        session: an HTTP session to use; it stays the caller's to close.
        pauses: how to wait between retries.
        origin: headers that tell where requests come from, of a service that passes them on.
        few_requests: this process sends few and ends, so it should start quickly.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        read_timeout: float | None = None,
        session: "aiohttp.ClientSession | None" = None,
        pauses: JitteredBackoff | None = None,
        origin: Mapping[str, str] | None = None,
        few_requests: bool = False,
    ) -> None:
        self.settings = config.resolve(url, token)
        self._transport = Transport(
            self.settings,
            timeout=timeout,
            read_timeout=read_timeout,
            session=session,
            pauses=pauses,
            origin=origin,
            few_requests=few_requests,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def silent_since(self) -> float:
        """The time since which event streams have received nothing; 0 while they do."""
        return self._transport.silent_since

    async def close(self) -> None:
        """Close connections."""
        await self._transport.close()
