"""A fake scheduler without a network, and a client of ada's."""

from collections.abc import Iterator

import pytest

from carrel.client import Client
from carrel.client.transport import JitteredBackoff
from carrel.testing import FakeScheduler


class Waits:
    """Back-off that takes no time; remembers how long it would have taken."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def pauses(self) -> JitteredBackoff:
        return JitteredBackoff(self.sleep, lambda: 1.0)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in ("CARREL_URL", "CARREL_TOKEN", "CARREL_PROJECT", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARREL_CONFIG_FILE", str(tmp_path_factory.mktemp("config") / "c.json"))


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    with FakeScheduler({"ada": ["vision"], "bob": ["speech"]}) as fake:
        yield fake


@pytest.fixture(params=[False, True], ids=["aiohttp", "few-requests"])
def client(request: pytest.FixtureRequest, fake: FakeScheduler, waits: Waits) -> Iterator[Client]:
    """A client, for both ways in which requests are sent."""
    few, pauses = bool(request.param), waits.pauses()
    with Client(fake.url, fake.token("ada"), pauses=pauses, few_requests=few) as client:
        yield client
