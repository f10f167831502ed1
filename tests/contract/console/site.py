"""A whole console for tests: fake Hub, fake scheduler, the real application, and a visitor."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import aiohttp
from aiohttp import web
from tornado.testing import bind_unused_port

from carrel.testing import FakeScheduler
from carrel_hub.console.app import ConsoleApplication, http_server, hub_oauth, make_app
from carrel_hub.console.settings import ConsoleSettings
from contract.console.fake_hub import ACCESS, CLIENT_ID, SERVICE_TOKEN, FakeHub

PREFIX = "/services/console/"
START = 1_790_000_000.0
_XSRF = re.compile(r'name="_xsrf" value="([^"]+)"')


@dataclass
class Clock:
    """The time, moved by hand."""

    at: float = START

    def __call__(self) -> float:
        return self.at

    def forward(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class Site:
    """The running console with its fakes, as an async context manager."""

    scheduler: FakeScheduler
    clock: Clock
    hub: FakeHub = field(default_factory=FakeHub)
    origin: str = ""
    api_url: str = ""
    request_seconds: float = 60.0

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self.hub.app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        hub_port = self._runner.addresses[0][1]
        sockets, port = bind_unused_port(address="127.0.0.1")
        self.origin = self.hub.origin = f"http://127.0.0.1:{port}"
        settings = ConsoleSettings(
            prefix=PREFIX,
            hub_prefix="/hub/",
            host="127.0.0.1",
            port=port,
            api_url=self.api_url or self.scheduler.url,
            token=SERVICE_TOKEN,
        )
        hub = f"http://127.0.0.1:{hub_port}/hub/api"
        auth = hub_oauth(
            settings,
            api_url=hub,
            oauth_client_id=CLIENT_ID,
            oauth_authorization_url=f"{hub}/oauth2/authorize",
            access_scopes={ACCESS},
        )
        self.app: ConsoleApplication = make_app(settings, auth, self.clock)
        self._server = http_server(self.app, self.request_seconds, self.request_seconds)
        self._server.add_socket(sockets)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.stop()
        await self._server.close_all_connections()
        await self.app.close()
        await self._runner.cleanup()

    def url(self, page: str = "") -> str:
        return f"{self.origin}{PREFIX}{page}"


@dataclass
class Page:
    """An answer: status, address in the end, headers, text."""

    status: int
    address: str
    headers: Mapping[str, str]
    text: str

    @property
    def words(self) -> str:
        """The text without marks, blanks squeezed."""
        joined = re.sub(r"</?(?:a|b|code|time)\b[^>]*>", "", self.text)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", joined)).split())


class Visitor:
    """A browser without a screen: keeps cookies, follows redirects, sends forms."""

    def __init__(self, site: Site, who: str) -> None:
        self.site, self.who = site, who
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=aiohttp.ThreadedResolver()),
            cookie_jar=aiohttp.CookieJar(unsafe=True),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def get(self, page: str = "", **headers: str) -> Page:
        self.site.hub.who = self.who
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.site.url(page), headers=sent) as answer:
            return Page(answer.status, str(answer.url), answer.headers, await answer.text())

    async def token(self, page: str) -> str:
        found = _XSRF.search((await self.get(page)).text)
        assert found is not None, f"no form on {page}"
        return found[1]

    async def post(
        self,
        page: str,
        data: Mapping[str, str] | None = None,
        *,
        form_at: str | None = None,
        xsrf: str | None = None,
        **headers: str,
    ) -> Page:
        """Send a form; ``form_at`` is the page that it stands on (by default the same)."""
        known = await self.token(page if form_at is None else form_at) if xsrf is None else xsrf
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(
            self.site.url(page), data={"_xsrf": known, **(data or {})}, headers=sent
        ) as answer:
            return Page(answer.status, str(answer.url), answer.headers, await answer.text())
