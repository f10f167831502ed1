"""The smallest thing that the Hub takes for a workspace's server, and Carrel's spawner for it.

Its source travels on the command line, so that an account without access to this repository can run
it, and it starts without site-packages: about 25 ms, so nothing else hides what a Hub adds to it.
"""

import sys

from typing_extensions import override

from carrel_spawner.spawner import CarrelSpawner
from carrel_spawner.workspace import Launch

STUB = """
import os, socket
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
port = os.environ["JUPYTERHUB_SERVICE_URL"].split(":")[2].split("/")[0]
listener.bind(("127.0.0.1", int(port)))
listener.listen(16)
said = b"HTTP/1.1 200 OK\\r\\nX-JupyterHub-Version: 6.1.1\\r\\nContent-Length: 2\\r\\n"
while True:
    connection, _ = listener.accept()
    try:
        connection.recv(65536)
        connection.sendall(said + b"Connection: close\\r\\n\\r\\n{}")
    except OSError:
        pass  # a visitor that gave up is no reason to end
    connection.close()
"""
COMMAND = [sys.executable, "-I", "-S", "-c", STUB]


class StubSpawner(CarrelSpawner):
    """The product's spawner with the stub in JupyterLab's place."""

    @override
    def launch_spec(self, project: str) -> Launch:
        """The stub with everything that the server would be told."""
        usual = super().launch_spec(project)
        return Launch(COMMAND, usual.environment, usual.secret_environment, usual.port)
