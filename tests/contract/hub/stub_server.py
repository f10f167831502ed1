"""A stub of JupyterLab: answers every request with what a test wants to know of it."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from typing_extensions import override


class Handler(BaseHTTPRequestHandler):
    """Answers every request in the same way."""

    def do_GET(self) -> None:
        body = json.dumps({"environment": dict(os.environ), "path": self.path}).encode()
        self.send_response(200)
        self.send_header("X-JupyterHub-Version", "6.1.1")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, *args: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    where = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    ThreadingHTTPServer(("127.0.0.1", where.port or 0), Handler).serve_forever()
