"""When a configuration is asked for anew, and which are refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from carrel_scheduler.kube.credentials import (
    ASKED_AGAIN_SECONDS,
    RENEWALS_APART_SECONDS,
    ConfiguredCredentials,
    CredentialsUnusable,
    Load,
    ServerAccess,
)


class Source:
    """A configuration whose token is as the test says."""

    def __init__(self, host: str = "http://127.0.0.1:8001/", verify: bool = True) -> None:
        self.token, self.host, self.verify = "first", host, verify
        self.begun = self.loaded = 0
        self.time = 1000.0
        self.credentials = ConfiguredCredentials(self._begin, lambda: self.time)

    async def _begin(self) -> Load:
        self.begun += 1
        return self._load

    async def _load(self) -> Any:
        self.loaded += 1
        return SimpleNamespace(
            host=self.host,
            api_key={"BearerToken": f"Bearer {self.token}\n"},
            verify_ssl=self.verify,
            tls_server_name=None,
            proxy=None,
        )


async def test_a_token_is_asked_for_each_minute() -> None:
    source = Source()
    first = await source.credentials.access()
    assert (first.url, first.authorization) == ("http://127.0.0.1:8001", "Bearer first")
    source.token = "second"
    source.time += ASKED_AGAIN_SECONDS - 1
    assert await source.credentials.access() == first
    source.time += 1
    assert (await source.credentials.access()).authorization == "Bearer second"
    assert (source.begun, source.loaded) == (1, 2)


async def test_a_refused_token_is_replaced_from_the_beginning() -> None:
    source = Source()
    first = await source.credentials.access()
    source.token = "second"
    assert await source.credentials.renewed(first) == first
    source.time += RENEWALS_APART_SECONDS
    second = await source.credentials.renewed(first)
    assert (second.authorization, source.begun) == ("Bearer second", 2)
    source.time += RENEWALS_APART_SECONDS
    assert await source.credentials.renewed(first) == second
    assert source.begun == 2


def test_tokens_are_in_no_text() -> None:
    assert "secret" not in repr(
        ServerAccess("https://a", "Bearer secret", proxy="http://u:secret@p")
    )


@pytest.mark.parametrize(
    ("host", "verify", "words"),
    [
        ("https://a", False, "insecure-skip-tls-verify: true is not accepted"),
        ("http://10.0.0.1", True, "'http://10.0.0.1' is not an https:// address"),
        ("ftp://a", True, "is not an https:// address"),
    ],
)
async def test_what_is_not_safe_is_refused(host: str, verify: bool, words: str) -> None:
    with pytest.raises(CredentialsUnusable, match=words):
        await Source(host, verify).credentials.access()


async def test_the_loopback_needs_no_tls() -> None:
    access = await Source("http://localhost:8001").credentials.access()
    assert access.tls is None
