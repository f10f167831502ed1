"""What passes with a request and its answer, and what stays between neighbours."""

import gzip

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from contract.proxy.running import ProxyProcess, serving


async def echo(request: web.Request) -> web.Response:
    """What of the request arrived."""
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "headers": [[name.lower(), value] for name, value in request.headers.items()],
            "body": (await request.read()).decode(),
        }
    )


async def test_the_address_passes_as_it_was_sent(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    sent = "/raw/a%2Fb/%7E~/c%20d//e?q=%2F&q=+&empty=&%C3%A9"
    async with serving(web.route("*", "/{path:.*}", echo)) as target:
        await proxy.add("/raw", target)
        async with person.get(URL(proxy.url + sent, encoded=True)) as answer:
            assert (await answer.json())["path"] == sent


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
async def test_every_method_passes(
    proxy: ProxyProcess, person: aiohttp.ClientSession, method: str
) -> None:
    body = "" if method in ("GET", "OPTIONS") else "text"
    async with serving(web.route("*", "/{path:.*}", echo)) as target:
        await proxy.add("/methods", target)
        async with person.request(method, f"{proxy.url}/methods", data=body or None) as answer:
            got = await answer.json()
    assert (got["method"], got["body"]) == (method, body)


async def test_headers_of_one_connection_stay_there(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    sent = CIMultiDict(
        [
            ("Connection", "keep-alive, X-Private"),
            ("X-Private", "between us"),
            ("TE", "trailers"),
            ("Proxy-Authorization", "secret"),
            ("X-Kept", "one"),
            ("X-Kept", "two"),
            ("Cookie", "a=1; b=2"),
        ]
    )
    async with serving(web.route("*", "/{path:.*}", echo)) as target:
        await proxy.add("/hops", target)
        async with person.get(f"{proxy.url}/hops", headers=sent) as answer:
            got = (await answer.json())["headers"]
    names = {name for name, _ in got}
    assert not names & {"x-private", "te", "proxy-authorization"}
    assert [value for name, value in got if name == "x-kept"] == ["one", "two"]
    assert ["cookie", "a=1; b=2"] in got
    assert ["host", f"127.0.0.1:{proxy.port}"] in got


async def test_nothing_is_added_in_the_name_of_the_person(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    skip = ("Accept", "Accept-Encoding", "User-Agent")
    async with serving(web.route("*", "/{path:.*}", echo)) as target:
        await proxy.add("/bare", target)
        async with person.get(f"{proxy.url}/bare", skip_auto_headers=skip) as answer:
            names = {name for name, _ in (await answer.json())["headers"]}
    forwarded = {f"x-forwarded-{one}" for one in ("for", "port", "proto", "host")}
    assert names == {"host"} | forwarded


async def test_targets_are_told_who_asks(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    before = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    async with serving(web.route("*", "/{path:.*}", echo)) as target:
        await proxy.add("/told", target)
        async with person.get(f"{proxy.url}/told", headers=before) as answer:
            got = dict((await answer.json())["headers"])
    assert got["x-forwarded-for"] == "203.0.113.9,127.0.0.1"
    assert got["x-forwarded-proto"] == "https,http"
    assert got["x-forwarded-port"] == str(proxy.port)
    assert got["x-forwarded-host"] == f"127.0.0.1:{proxy.port}"


async def test_an_answer_passes_with_every_cookie(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def cookies(request: web.Request) -> web.Response:
        headers = CIMultiDict([("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2"), ("Via", "x")])
        return web.Response(status=418, reason="Teapot", headers=headers, text="short and stout")

    async with serving(web.get("/cookies", cookies)) as target:
        await proxy.add("/cookies", target)
        async with person.get(f"{proxy.url}/cookies") as answer:
            assert (answer.status, answer.reason) == (418, "Teapot")
            assert answer.headers.getall("Set-Cookie") == ["a=1; Path=/", "b=2"]
            assert answer.headers["Via"] == "x"
            assert "Server" not in answer.headers
            assert await answer.text() == "short and stout"


async def test_redirects_are_for_the_person(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def away(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async with serving(web.get("/away", away)) as target:
        await proxy.add("/away", target)
        async with person.get(f"{proxy.url}/away", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/elsewhere")


async def test_packed_bodies_stay_packed(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    packed = gzip.compress(b"text" * 100)
    received = b""

    async def give(request: web.Request) -> web.Response:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    async def take(request: web.Request) -> web.Response:
        nonlocal received
        assert request.headers["Content-Length"] == str(len(packed))
        received = await request.read()
        return web.Response()

    async with serving(web.get("/packed", give), web.post("/packed", take)) as target:
        await proxy.add("/packed", target)
        async with person.get(f"{proxy.url}/packed") as answer:
            assert await answer.read() == packed
            assert answer.headers["Content-Encoding"] == "gzip"
            assert answer.content_length == len(packed)
        headers = {"Content-Encoding": "gzip"}
        async with person.post(f"{proxy.url}/packed", data=packed, headers=headers) as answer:
            assert answer.status == 200
    assert received == b"text" * 100


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body(
    proxy: ProxyProcess, person: aiohttp.ClientSession, status: int
) -> None:
    async def empty(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"ETag": '"1"'})

    async with serving(web.get("/empty", empty)) as target:
        await proxy.add("/empty", target)
        for _ in range(2):  # the second on the same connection
            async with person.get(f"{proxy.url}/empty") as answer:
                assert (answer.status, answer.headers["ETag"]) == (status, '"1"')
                assert await answer.read() == b""


async def test_head_tells_the_length_of_what_get_gives(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def text(request: web.Request) -> web.Response:
        return web.Response(text="twelve chars")

    async with serving(web.get("/head", text)) as target:
        await proxy.add("/head", target)
        async with person.head(f"{proxy.url}/head") as answer:
            assert (answer.status, answer.headers["Content-Length"]) == (200, "12")


async def test_long_addresses_and_cookies_pass(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def long(request: web.Request) -> web.Response:
        return web.Response(headers={"X-Long": request.headers["X-Long"]})

    value = "x" * 7000
    async with serving(web.get("/long", long)) as target:
        await proxy.add("/long", target)
        many = {"X-Long": value, "Cookie": "y" * 8000}
        async with person.get(f"{proxy.url}/long", headers=many) as answer:
            assert answer.headers["X-Long"] == value
