"""Isolation of the pages of users' programs from each other in the browser.

The gateway and the port proxy of workspaces use it. Programs that share an origin with others run
in a sandbox without that origin, and set cookies below their own path only.
"""

from http.cookies import CookieError, SimpleCookie
from typing import Final

SANDBOX: Final = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
"""The ``Content-Security-Policy`` of programs that share their origin."""
SEPARATE_ORIGINS: Final = "CARREL_SEPARATE_ORIGINS"
"""Environment variable; 1 where each user's servers and each route have an origin of their own."""
BEYOND_PATH: Final = frozenset(
    ["clear-site-data", "service-worker-allowed", "set-cookie2", "strict-transport-security"]
)
"""Response headers, in small letters, whose effect reaches beyond the path of a program."""


def confined_cookie(line: str, prefix: str, reserved: tuple[str, ...] = ()) -> str:
    """A ``Set-Cookie`` value bound to a path and to the host that sends it.

    Args:
        line: The value as the program sent it.
        prefix: The program's path without a slash at its end.
        reserved: Beginnings of names that programs may not set, in small letters.

    Returns:
        The value; empty for a cookie that cannot be parsed or has a reserved name.
    """
    name = line.partition("=")[0].strip()
    parsed: SimpleCookie = SimpleCookie()
    try:
        parsed.load(line)
    except CookieError:
        return ""
    if name not in parsed or name.lower().startswith(reserved):
        return ""
    morsel = parsed[name]
    morsel["domain"] = ""
    if not (morsel["path"] == prefix or morsel["path"].startswith(f"{prefix}/")):
        morsel["path"] = f"{prefix}/"
    return morsel.OutputString()
