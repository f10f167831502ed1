"""The bar above every page, the Hub's and the console's: where it leads, and its command palette.

``bar.html`` draws it for both kinds of pages; its style sheet and its script are the console's.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tornado.web import StaticFileHandler

TEMPLATES: Final = Path(__file__).parent
FILES: Final = Path(__file__).parent.parent / "console" / "static"


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A link of the bar.

    Attributes:
        section: of the console that it stands for.
        path: below the console's address.
    """

    section: str
    text: str
    path: str


PAGES: Final = (
    NavigationEntry("home", "Home", ""),
    NavigationEntry("jobs", "Work", "jobs"),
    NavigationEntry("cluster", "Cluster", "cluster"),
    NavigationEntry("queue", "Queue", "queue"),
    NavigationEntry("projects", "Projects", "projects"),
    NavigationEntry("manage", "Manage", "usage"),
)
OWN: Final = (
    NavigationEntry("help", "Help", "help"),
    NavigationEntry("notifications", "Notifications", "notifications"),
)
"""Beside the reader's name."""


@cache
def file_address(console: str, name: str) -> str:
    """The address of a file that the console serves, with its version; ``console``: its own."""
    settings = {"static_path": str(FILES), "static_url_prefix": f"{console}static/"}
    return StaticFileHandler.make_static_url(settings, name)
