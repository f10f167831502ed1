"""Starts allocated workspaces through the Hub."""

from urllib.parse import quote

import aiohttp

from carrel_scheduler.workloads.reconcile.executor import HubRefused
from carrel_schema.objects import Workload

TIMEOUT_SECONDS = 60.0


class WorkspaceStarter:
    """The Hub's REST API with the service's own token (scope ``servers``)."""

    def __init__(self, api_url: str, token: str) -> None:
        self._api_url = api_url.rstrip("/")
        self._token = token

    async def start_workspace(self, workload: Workload) -> None:
        """``POST /users/:user/servers/:server`` with what the spawner needs to claim the place."""
        spec, meta = workload.spec, workload.meta
        path = f"/users/{quote(spec.user, safe='')}/server"
        if spec.server_name:
            path = f"{path}s/{quote(spec.server_name, safe='')}"
        options = {
            "claim": meta.name,
            "project": meta.project,
            "gpus": spec.resources.gpu_milli / 1000,
            "cpu_millicores": spec.resources.cpu_milli,
            "memory_bytes": spec.resources.memory_bytes,
        }
        headers = {"Authorization": f"token {self._token}"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
                session.post(self._api_url + path, json={"user_options": options}) as answer,
            ):
                if answer.status not in (201, 202):
                    raise HubRefused(f"the Hub answered {answer.status}: {await answer.text()}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise HubRefused(f"the Hub could not be reached: {error}") from error
