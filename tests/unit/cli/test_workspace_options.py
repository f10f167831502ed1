"""Options of a workspace as the Hub takes them."""

import pytest

from carrel.cli.commands.workspaces import WorkspaceOptions
from carrel.client.workspaces import WorkspaceServer
from carrel.errors import BadSetting


def test_gpus_or_memory_of_one() -> None:
    assert WorkspaceOptions().definition() == {}
    assert WorkspaceOptions(gpus="0.5").definition() == {"gpus": 0.5, "gpu_memory_gib": 0}
    asked = WorkspaceOptions(gpu_memory="8G").definition()
    assert asked == {"gpus": 0, "gpu_memory_gib": 8.0}
    both = WorkspaceOptions(gpus="1", gpu_memory="8G").definition()
    assert (both["gpus"], both["gpu_memory_gib"]) == (1, 8.0), "the Hub says that one is too much"


@pytest.mark.parametrize("gpus", ["many", "-1"])
def test_what_is_no_number_of_gpus_is_refused(gpus: str) -> None:
    with pytest.raises(BadSetting, match=gpus):
        WorkspaceOptions(gpus=gpus).definition()


@pytest.mark.parametrize(
    ("hub", "url", "address"),
    [
        ("http://localhost:8000", "/user/ada/", "http://localhost:8000/user/ada/"),
        ("https://lab.org", "https://ada.lab.org/user/ada/", "https://ada.lab.org/user/ada/"),
    ],
)
def test_the_address_of_a_workspace(hub: str, url: str, address: str) -> None:
    assert WorkspaceServer(url=url).address(hub) == address
