"""JupyterHub, listening on the socket that `carrel up` holds for it; same arguments."""

import socket
from typing import Any

from jupyterhub.app import JupyterHub
from tornado.httpserver import HTTPServer
from typing_extensions import override

from carrel_process import listening


class InheritingServer(HTTPServer):
    """Listens on ``listener``, and at no other address."""

    listener: socket.socket

    @override
    def listen(self, port: int, address: str | None = None, *_: Any, **__: Any) -> None:
        listening.check(self.listener, address or "", port)
        self.add_socket(self.listener)


def main() -> None:
    """Run the Hub."""
    listener = listening.inherited()
    if listener is not None:
        InheritingServer.listener = listener
        HTTPServer.configure(InheritingServer)  # what JupyterHub makes is one of these
    JupyterHub.launch_instance()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
