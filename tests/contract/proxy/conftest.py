"""One proxy for the tests of a file, and a person's browser."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from contract.proxy.running import PATIENCE, ProxyProcess


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    # A zone far from UTC, so that a time that is local shows.
    running = ProxyProcess(tmp_path_factory.mktemp("proxy"), environment={"TZ": "Asia/Tokyo"})
    yield running
    running.stop()
    assert "Traceback" not in running.log.read_text()


@pytest.fixture
async def person() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        timeout=PATIENCE,
        auto_decompress=False,
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield session
