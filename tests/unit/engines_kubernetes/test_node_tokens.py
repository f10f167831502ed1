"""On which node an agent is: by what the API server says of its token, and by nothing else."""

from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.node_tokens import AUDIENCE, USER, NodeTokens
from carrel_scheduler.kube.client import KubeClient
from unit.kube.fake_transport import FakeTransport, NoCredentials, answer, refusal

TOKEN = "eyJ.b.c"
EXTRA = {"authentication.kubernetes.io/node-name": ["node-1"]}
OF_POD = {
    "authentication.kubernetes.io/pod-name": ["agent-x"],
    "authentication.kubernetes.io/pod-uid": ["u-1"],
}


def review(**changes: Any) -> Any:
    user = {"username": USER, "extra": EXTRA} | changes.pop("user", {})
    return answer(
        {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": user} | changes}
    )


def asking(*answers: Any) -> tuple[NodeTokens, FakeTransport]:
    transport = FakeTransport(*answers)
    return NodeTokens(KubeClient(NoCredentials(), transport)), transport


async def test_a_token_is_reviewed_once_for_a_while() -> None:
    tokens, transport = asking(review())
    assert [await tokens.node_of(TOKEN) for _ in range(3)] == ["node-1"] * 3
    [request] = transport.sent
    assert request.path == "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.mark.parametrize(
    "changes",
    [
        {"authenticated": False},
        {"audiences": ["https://kubernetes.default.svc"]},
        {"user": {"username": "system:serviceaccount:carrel-node:carrel-node"}},
        {"user": {"username": "system:serviceaccount:node-agents-carrel:default"}},
        {"user": {"extra": {}}},
    ],
)
async def test_other_tokens_speak_for_no_node(changes: dict[str, Any]) -> None:
    tokens, _ = asking(review(**changes))
    assert await tokens.node_of(TOKEN) is None


async def test_an_older_api_server_names_the_pod_only() -> None:
    pod = {"metadata": {"name": "agent-x", "uid": "u-1"}, "spec": {"nodeName": "node-2"}}
    tokens, _ = asking(review(user={"extra": OF_POD}), answer(pod))
    assert await tokens.node_of(TOKEN) == "node-2"
    other = {"metadata": {"name": "agent-x", "uid": "u-2"}, "spec": {"nodeName": "node-2"}}
    tokens, _ = asking(review(user={"extra": OF_POD}), answer(other))
    assert await tokens.node_of(TOKEN) is None


async def test_tokens_of_another_kind_are_not_sent_on_and_trouble_is_no_answer() -> None:
    tokens, transport = asking(refusal(403, "Forbidden"), review())
    for token in ("ct1.uid.signature", "0123abcdef", "eyJ.b", "eyJ.b.c" * 3_000):
        assert await tokens.node_of(token) is None
    assert not transport.sent
    assert await tokens.node_of(TOKEN) is None
    assert await tokens.node_of(TOKEN) == "node-1", "what failed is asked again"
