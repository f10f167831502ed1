"""Where the gateway is."""

import pytest

from carrel.client.resources.endpoints import gateway_url

INSIDE = {
    "CARREL_URL": "http://127.0.0.1:4001/services/carrel",
    "CARREL_GATEWAY_URL": "http://127.0.0.1:4002/services/gateway/",
}


@pytest.mark.parametrize(
    ("service", "environment", "url"),
    [
        ("https://hub/services/carrel", {}, "https://hub/services/gateway"),
        ("https://hub/base/services/carrel/", {}, "https://hub/base/services/gateway"),
        (INSIDE["CARREL_URL"], INSIDE, "http://127.0.0.1:4002/services/gateway"),
        # Another server than the workspace's own: its token must not go to ours.
        ("https://other/services/carrel", INSIDE, "https://other/services/gateway"),
    ],
)
def test_the_gateway_is_a_sibling_unless_a_workspace_is_told(
    service: str, environment: dict[str, str], url: str
) -> None:
    assert gateway_url(service, environment) == url
