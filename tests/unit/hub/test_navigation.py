"""The bar above every page: the same on the console's pages and on the Hub's."""

import asyncio
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from carrel_hub import navigation
from carrel_hub.console.rendering import environment
from carrel_hub.console.settings import Urls
from carrel_hub.pages import Pages

CONSOLE, HUB = Pages.console_url, "/hub/"
HUB_PAGE = (
    '{% from "bar.html" import bar %}'
    '{{ bar(carrel.navigation, carrel.console_url, base_url, user, theme="dark-theme-toggle",'
    ' sign_out="/sso/out", sign_in="/hub/login") }}'
)


def of_the_console(user: str) -> str:
    """The bar of a page of the console."""
    templates = environment(Urls(CONSOLE, HUB), lambda name: f"/s/{name}", lambda name: name)
    frame = {"user": user, "section": "queue", "now": 0.0, "xsrf": "x", "live": None}
    page = templates.get_template("base.html").render(frame | {"permissions": (), "here": "/"})
    return page[page.index('<header class="top">') : page.index("</header>")]


def of_the_hub(user: str) -> str:
    """The bar of a page of the Hub, whose templates are rendered in the event loop."""
    found = Environment(
        loader=FileSystemLoader([navigation.TEMPLATES]),
        enable_async=True,
        autoescape=True,
        undefined=StrictUndefined,
    ).from_string(HUB_PAGE)
    return asyncio.run(found.render_async(carrel=Pages(None), base_url=HUB, user=user))


def links(bar: str) -> dict[str, str]:
    return {
        text: address
        for address, text in re.findall(r'<a [^>]*?href="([^"]+)"[^>]*>(\w[^<]*)', bar)
    }


def test_both_lead_to_the_same_pages() -> None:
    console, hub = links(of_the_console("ada")), links(of_the_hub("ada"))
    assert list(console) == list(hub)
    assert {"Queue", "Workspaces", "Help", "Notifications", "Tokens"} <= set(hub)
    assert hub["Notifications"] == f"{CONSOLE}notifications"
    assert (console.pop("Sign out"), hub.pop("Sign out")) == ("/hub/logout", "/sso/out")
    assert console == hub


def test_both_have_the_palette_and_the_hub_reads_nothing_of_the_console() -> None:
    assert f'data-find="{CONSOLE}find"' in of_the_console("ada")
    assert f'data-console="{CONSOLE}" data-find=""' in of_the_hub("ada")


def test_nobody_is_offered_pages_before_the_sign_in() -> None:
    assert links(of_the_console("")) == {}
    assert links(of_the_hub("")) == {"Sign in": "/hub/login"}
    assert 'id="find"' not in of_the_console("") + of_the_hub("")


def test_the_files_are_those_of_the_console_with_their_version() -> None:
    templates = Path(navigation.TEMPLATES).parent / "templates" / "page.html"
    for name in ("navigation.css", "palette.js"):
        address = navigation.file_address(CONSOLE, name)
        assert re.fullmatch(rf"{CONSOLE}static/{re.escape(name)}\?v=\w+", address)
        assert f"file_address(carrel.console_url, '{name}')" in templates.read_text()


def test_a_name_is_text() -> None:
    for bar in (of_the_console("<b>"), of_the_hub("<b>")):
        assert "<b>" not in bar
        assert "&lt;b&gt;" in bar
