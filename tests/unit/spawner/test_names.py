"""Names of workspaces: DNS labels, and never the same for two."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_spawner.workspace import workspace_name

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
USERS = st.text(min_size=1, max_size=70).filter(lambda text: "\0" not in text and "/" not in text)
SERVERS = st.from_regex(r"([a-z]([a-z0-9]|-(?=[a-z0-9])){0,29})?", fullmatch=True)


@pytest.mark.parametrize(
    ("user", "server", "name"),
    [
        ("ada", "", "workspace-ada"),
        ("ada", "gpu-lab", "workspace-ada--gpu-lab"),
        ("ada-b", "", "workspace-ada-b"),
    ],
)
def test_plain_names_stay_readable(user: str, server: str, name: str) -> None:
    assert workspace_name(user, server) == name


@pytest.mark.parametrize(
    "user", ["Ada", "ada@example.org", "ada--b", "é", "a" * 80, "-ada", "ada-"]
)
def test_other_names_get_a_hash(user: str) -> None:
    assert re.search(r"---[0-9a-f]{8}\Z", workspace_name(user))


@given(USERS, SERVERS)
def test_every_name_is_a_label(user: str, server: str) -> None:
    assert LABEL.match(workspace_name(user, server))


@given(USERS, SERVERS, USERS, SERVERS)
def test_no_two_share_a_name(user: str, server: str, other: str, another: str) -> None:
    if (user, server) != (other, another):
        assert workspace_name(user, server) != workspace_name(other, another)


def test_a_user_with_a_dash_is_not_a_server() -> None:
    assert workspace_name("ada-b") != workspace_name("ada", "b")
    assert workspace_name("ada--b") != workspace_name("ada", "b")
