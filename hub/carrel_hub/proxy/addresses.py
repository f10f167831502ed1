"""Which address of a target a request is for. Escapes stay as they were sent."""

from urllib.parse import urlsplit

from yarl import URL

from carrel_hub.proxy.options import Options
from carrel_hub.proxy.routes import Route


def address(route: Route, path_and_query: str, options: Options) -> URL:
    """The address at the target.

    Args:
        route: Where the request goes.
        path_and_query: Of the request, as sent; begins with ``/``.
        options: Whether prefix and path of the target are part of it.
    """
    path, _, query = path_and_query.partition("?")
    if not options.include_prefix:
        path = _without(path, route.prefix, hosts=options.host_routing)
    base = urlsplit(route.target)
    if options.prepend_path:
        path = base.path.rstrip("/") + path
        query = "&".join(part for part in (base.query, query) if part)
    text = f"{base.scheme}://{base.netloc}{path}"
    return URL(f"{text}?{query}" if query else text, encoded=True)


def _without(path: str, prefix: str, *, hosts: bool) -> str:
    """Counted in parts: a prefix is not escaped and a path is; a host is in no path."""
    parts = [part for part in prefix.split("/") if part]
    drop = max(len(parts) - hosts, 0)
    return "/" + "/".join(path.split("/")[drop + 1 :])
