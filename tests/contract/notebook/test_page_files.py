"""Our files of JupyterLab's page over HTTP: kept by browsers for good, and nothing beside them."""

from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from carrel.workspace.page_files import OPTION, OWN, install

BASE = "/user/ada/"


async def test_our_files_are_kept_for_good_and_no_others_are_there() -> None:
    app = Application()
    install(app, BASE)
    page = app.settings["page_config_data"]
    assert page["buildCheck"] is False
    (listener,) = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(app)
    server.add_sockets([listener])
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        client = AsyncHTTPClient()
        got = await client.fetch(f"{address}{page[OPTION]}plugin.js")
        assert got.body == (OWN / "plugin.js").read_bytes()
        assert got.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        for wrong in ("carrel/static/0000000000000000/plugin.js", "carrel/static/plugin.js"):
            missing = await client.fetch(f"{address}{BASE}{wrong}", raise_error=False)
            assert missing.code == 404
        above = await client.fetch(f"{address}{page[OPTION]}..%2Fpackage.json", raise_error=False)
        assert above.code in (403, 404)
    finally:
        server.stop()
        await server.close_all_connections()
