"""Views know where the web console is, so that names of work lead to their pages."""

import pytest

from carrel.client import Client
from carrel.testing import FakeScheduler
from carrel.widgets.tables import JobsView


@pytest.mark.parametrize("address", ["", "/services/console/"])
def test_the_address_is_that_of_the_environment(
    scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("CARREL_CONSOLE_URL", address)
    with Client(scheduler.url, scheduler.token("ada")) as client:
        view = JobsView(client, [], "ada")
        assert view.get_state()["console_url"] == address
        view.close()
