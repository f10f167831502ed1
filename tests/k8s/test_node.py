"""A node of the tests' cluster runs real pods: read, entered, ended, reached, found by name."""

import http.server
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from typing_extensions import override

from k8s.cluster import pods
from k8s.cluster.images.builder import Image
from k8s.cluster.node import Node

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow, pytest.mark.root]

WAITS = "import time; print('at work', flush=True); time.sleep(600)"
TELLS_OF_SIGNALS = """
import signal, sys, time
from pathlib import Path
def told(number, _):
    Path('/told/signal').write_text(str(number))
    sys.exit()
signal.signal(signal.SIGTERM, told)
Path('/told/ready').touch()
while True:  # a signal between two instructions would not end a pause
    time.sleep(0.1)
"""
ASKS = """
import ssl, sys, time, urllib.request
trusted = ssl.create_default_context(
    cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt')
while True:  # names and addresses are told to who passes them on, which takes its time
    try:
        print(urllib.request.urlopen(sys.argv[1], context=trusted, timeout=30).status)
        break
    except OSError:
        time.sleep(0.2)
"""


def test_a_pod_is_read_and_entered(node: Node, base_image: Image, kubectl: Path) -> None:
    pods.make(node.plane, "read", base_image.name, ["python3", "-c", WAITS], nodeName=node.name)
    pods.wait(node.plane, "read")
    pods.until(lambda: pods.log(node.plane, "read") == "at work\n")
    said = pods.execute(kubectl, node.kubeconfig, "read", "cat", "/etc/hostname")
    assert said == "read\n"
    pods.delete(node.plane, "read")


def test_a_pod_hears_that_it_has_to_end(node: Node, base_image: Image, tmp_path: Path) -> None:
    volume = {"name": "told", "hostPath": {"path": str(tmp_path)}}
    mount = {"volumeMounts": [{"name": "told", "mountPath": "/told"}]}
    pods.make(
        node.plane,
        "told",
        base_image.name,
        ["python3", "-c", TELLS_OF_SIGNALS],
        nodeName=node.name,
        container=mount,
        volumes=[volume],
    )
    pods.until((tmp_path / "ready").exists)
    pods.delete(node.plane, "told", grace_seconds=30)
    assert (tmp_path / "signal").read_text() == "15"


def test_pods_and_the_host_reach_each_other(node: Node, base_image: Image) -> None:
    serve = ["python3", "-m", "http.server", "8000"]
    pods.make(node.plane, "server", base_image.name, serve, nodeName=node.name)
    address = pods.wait(node.plane, "server")["status"]["podIP"]
    pods.until(lambda: urlopen(f"http://{address}:8000/", timeout=30).status == 200)
    with _served(node.address) as port:
        ask = (
            f"import urllib.request as r; print(r.urlopen('http://{node.address}:{port}/').read())"
        )
        pods.make(node.plane, "client", base_image.name, ["python3", "-c", ask], nodeName=node.name)
        pods.wait(node.plane, "client", "Succeeded")
        assert pods.log(node.plane, "client") == "b'the host'\n"
    pods.delete(node.plane, "server")
    pods.delete(node.plane, "client")


def test_members_of_a_headless_service_find_each_other(node: Node, base_image: Image) -> None:
    gang = {"selector": {"gang": "g"}, "clusterIP": "None", "publishNotReadyAddresses": True}
    service = {"metadata": {"name": "gang"}, "spec": gang}
    node.plane.ask("POST", "/api/v1/namespaces/default/services", service)
    for name, code in (
        ("member-0", WAITS),
        ("member-1", _finds("member-0.gang.default.svc.cluster.local")),
        ("member-2", _finds("member-0.gang")),
    ):
        pods.make(
            node.plane,
            name,
            base_image.name,
            ["python3", "-c", code],
            nodeName=node.name,
            hostname=name,
            subdomain="gang",
            labels={"gang": "g"},
        )
    address = pods.wait(node.plane, "member-0")["status"]["podIP"]
    for name in ("member-1", "member-2"):
        pods.wait(node.plane, name, "Succeeded")
        assert pods.log(node.plane, name) == f"{address}\n"
    for name in ("member-0", "member-1", "member-2"):
        pods.delete(node.plane, name)
    node.plane.ask("DELETE", "/api/v1/namespaces/default/services/gang")


def test_a_service_leads_to_a_pod_that_is_ready(node: Node, base_image: Image) -> None:
    port = {"name": "web", "port": 80, "targetPort": 8000}
    behind = {"selector": {"app": "web"}, "ports": [port]}
    service = {"metadata": {"name": "web"}, "spec": behind}
    made = node.plane.ask("POST", "/api/v1/namespaces/default/services", service)
    serve = ["python3", "-m", "http.server", "8000"]
    labels = {"app": "web"}
    pods.make(node.plane, "web", base_image.name, serve, nodeName=node.name, labels=labels)
    address = made["spec"]["clusterIP"]
    pods.until(lambda: urlopen(f"http://{address}/", timeout=30).status == 200)
    code = ["python3", "-c", ASKS, "http://web.default.svc/"]
    pods.make(node.plane, "asks-web", base_image.name, code, nodeName=node.name)
    pods.wait(node.plane, "asks-web", "Succeeded", "Failed")
    assert pods.log(node.plane, "asks-web") == "200\n"
    pods.delete(node.plane, "asks-web")
    pods.delete(node.plane, "web")
    node.plane.ask("DELETE", "/api/v1/namespaces/default/services/web")
    pods.until(lambda: address not in _addresses())


def test_a_pod_reaches_the_api_server_where_pods_look_for_it(node: Node, base_image: Image) -> None:
    code = ["python3", "-c", ASKS, "https://kubernetes.default.svc/version"]
    pods.make(node.plane, "asks", base_image.name, code, nodeName=node.name)
    pods.wait(node.plane, "asks", "Succeeded", "Failed")
    assert pods.log(node.plane, "asks") == "200\n"
    pods.delete(node.plane, "asks")


def test_a_node_gives_as_many_gpus_as_it_offers(node: Node, base_image: Image) -> None:
    for name, gpus, phase in (("eight", 8, "Running"), ("one", 1, "Failed")):
        pods.make(
            node.plane,
            name,
            base_image.name,
            ["python3", "-c", WAITS],
            nodeName=node.name,
            container={"resources": {"limits": {"nvidia.com/gpu": gpus}}},
        )
        pods.wait(node.plane, name, phase)
    assert pods.get(node.plane, "one")["status"]["reason"] == "OutOfnvidia.com/gpu"
    pods.delete(node.plane, "eight")
    pods.delete(node.plane, "one")


def _addresses() -> str:
    """Of this machine."""
    show = ["ip", "-4", "address", "show"]
    return subprocess.run(show, check=True, capture_output=True, text=True).stdout


def _finds(name: str) -> str:
    """A program that says a name's address once it has one."""
    return (
        "import socket, time\n"
        "while True:\n"
        f"    try: print(socket.gethostbyname('{name}')); break\n"
        "    except OSError: time.sleep(0.2)\n"
    )


class _Host(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the host")

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _served(address: str) -> Iterator[int]:
    with http.server.HTTPServer((address, 0), _Host) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
