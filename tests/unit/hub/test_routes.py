"""A proxy that was replaced is told all routes again; one that knows them is left alone."""

from types import SimpleNamespace
from typing import Any, Final

from typing_extensions import override

from carrel_hub.kubernetes.routes import KeptRoutes

HUB: Final = SimpleNamespace(host="http://hub:8081", routespec="/")
APP: Final = SimpleNamespace(hub=HUB, internal_ssl=False)
SERVICE: Final = SimpleNamespace(
    name="console",
    kind="managed",
    proxy_spec="/services/console/",
    server=SimpleNamespace(host="http://console:8090"),
)
SPAWNER: Final = SimpleNamespace(
    ready=True,
    pending=None,
    proxy_spec="/user/ada/",
    server=SimpleNamespace(host="http://desk:8888"),
)
ADA: Final = SimpleNamespace(
    name="ada",
    proxy_spec="/user/ada/",
    spawners={"": SPAWNER},
    orm_user=SimpleNamespace(orm_spawners=[""]),
)
PEOPLE: Final = {1: ADA}
SERVICES: Final = {"console": SERVICE}
EVERYTHING: Final = {"/", "/user/ada", "/services/console"}


class Told(KeptRoutes):
    """With a table in place of the proxy's API."""

    def __init__(self) -> None:
        base: Any = super()
        base.__init__(app=APP, hub=HUB, api_url="http://proxy:8001", look_seconds=3600)
        self.table: dict[str, Any] = {}
        self.silent = False
        self.writes = 0

    @override
    async def api_request(self, path: str, method: str = "GET", body: Any = None) -> Any:
        if self.silent:
            raise TimeoutError("no answer")
        if method == "GET":

            async def told() -> dict[str, Any]:
                return dict(self.table)

            return SimpleNamespace(json=told)
        assert method == "POST"
        self.writes += 1
        self.table[f"/{path.strip('/')}"] = body
        return None


async def looked_after() -> Told:
    """A proxy that the Hub has told everything at its start."""
    proxy = Told()
    await proxy.check_routes(PEOPLE, SERVICES)
    assert proxy._looking is not None
    proxy._looking.stop()
    assert set(proxy.table) == EVERYTHING
    return proxy


async def test_a_new_proxy_is_told_everything() -> None:
    proxy = await looked_after()
    proxy.table.clear()
    await proxy.look(PEOPLE, SERVICES)
    assert set(proxy.table) == EVERYTHING


async def test_one_that_knows_the_hub_is_left_alone() -> None:
    proxy = await looked_after()
    written = proxy.writes
    await proxy.look(PEOPLE, SERVICES)
    assert proxy.writes == written


async def test_one_that_does_not_answer_is_asked_again_later() -> None:
    proxy = await looked_after()
    proxy.table.clear()
    proxy.silent = True
    await proxy.look(PEOPLE, SERVICES)
    proxy.silent = False
    await proxy.look(PEOPLE, SERVICES)
    assert set(proxy.table) == EVERYTHING
