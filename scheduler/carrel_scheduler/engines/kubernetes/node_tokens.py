"""Finds the node of the agent that presents a token.

An agent shows the token of its service account that the kubelet made for its pod and this audience.
The API server tells whose it is and on which node that pod runs; what an agent says itself of that
is never believed. An answer counts for ``REMEMBERED_SECONDS``.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from cachetools import TTLCache

from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError, NotFound
from carrel_scheduler.kube.resources import PODS, TOKEN_REVIEWS

log = logging.getLogger(__name__)
AUDIENCE: Final = "carrel-scheduler"
NAMESPACE, ACCOUNT = "node-agents-carrel", "carrel-node"
"""No project's namespace has such a name: those begin with ``carrel-``."""
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
REMEMBERED_SECONDS: Final = 60.0
MOST_REMEMBERED: Final = 20_000
LONGEST_TOKEN: Final = 8_192
_SAID: Final = "authentication.kubernetes.io/"


class _TokenUser(msgspec.Struct, frozen=True):
    username: str = ""
    extra: Mapping[str, Sequence[str]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _TokenUser = _TokenUser()
    audiences: Sequence[str] = ()


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class NodeTokens:
    """Asks the API server; ``client`` may create token reviews and read pods."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: TTLCache[bytes, str] = TTLCache(MOST_REMEMBERED, REMEMBERED_SECONDS)

    async def node_of(self, token: str) -> str | None:
        """The node of the agent with this token; ``None`` if it is no agent's, or nobody knows."""
        # Tokens of other kinds are nobody's business but the Hub's: they are not sent on.
        if token.count(".") != 2 or not token.startswith("eyJ") or len(token) > LONGEST_TOKEN:
            return None
        key = hashlib.sha256(token.encode()).digest()
        if key not in self._known:
            try:
                self._known[key] = await self._reviewed(token)
            except KubeError as error:
                log.warning("the token of a node's agent could not be reviewed: %s", error)
                return None
        return self._known[key] or None

    async def _reviewed(self, token: str) -> str:
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        found = (await self._client.create(TOKEN_REVIEWS, body, type=_Review)).status
        if not found.authenticated or AUDIENCE not in found.audiences:
            return ""
        if found.user.username != USER:
            return ""
        said = {key: values[0] for key, values in found.user.extra.items() if values}
        node = said.get(f"{_SAID}node-name", "")
        # Older API servers name the pod only.
        return node or await self._node_of_pod(
            said.get(f"{_SAID}pod-name", ""), said.get(f"{_SAID}pod-uid", "")
        )

    async def _node_of_pod(self, name: str, uid: str) -> str:
        if not name or not uid:
            return ""
        try:
            pod = await self._client.get(PODS, name, NAMESPACE, Pod)
        except NotFound:
            return ""
        return pod.spec.node_name if pod.metadata.uid == uid else ""
