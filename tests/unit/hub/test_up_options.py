"""The name by which people reach an installation on one machine."""

import socket
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from carrel_hub.front.traefik import Tls
from carrel_hub.settings import InstallationSettings, Ports
from carrel_hub.up import options
from carrel_hub.up.checks import StartupError
from carrel_hub.up.ports import hold_ipv6_loopback

FILES = Tls(certificate=Path("/c.pem"), key=Path("/k.pem"))
PORTS = Ports(hub=1, proxy_api=2, scheduler=3, console=4, gateway=5)


@pytest.mark.parametrize(
    ("given", "host", "tls", "name"),
    [
        (None, "127.0.0.1", None, "localhost"),
        (None, "localhost", None, "localhost"),
        (None, "0.0.0.0", None, ""),
        (None, "127.0.0.1", FILES, ""),
        ("", "127.0.0.1", None, ""),
        ("hub.example.org", "0.0.0.0", FILES, "hub.example.org"),
    ],
)
def test_which_name_there_is(given: str | None, host: str, tls: Tls | None, name: str) -> None:
    assert options.domain(given, host, tls) == name


def test_names_that_cannot_be() -> None:
    with pytest.raises(StartupError, match=r"hub\.example\.org"):
        options.domain("hub/x", "127.0.0.1", None)
    with pytest.raises(StartupError, match="--tls-cert"):
        options.domain("hub.example.org", "", Tls(acme_domains=["hub.example.org"]))


@pytest.mark.parametrize(
    ("port", "tls", "url"),
    [
        (8000, None, "http://hub.example.org:8000"),
        (80, None, "http://hub.example.org"),
        (443, FILES, "https://hub.example.org"),
        (8443, FILES, "https://hub.example.org:8443"),
    ],
)
def test_the_address_says_the_name(port: int, tls: Tls | None, url: str, tmp_path: Path) -> None:
    settings = InstallationSettings(
        state_dir=tmp_path, ports=PORTS, port=port, tls=tls, domain="hub.example.org"
    )
    assert settings.separate_origins
    assert settings.public_url == url
    assert not InstallationSettings(state_dir=tmp_path, ports=PORTS).separate_origins


@pytest.mark.enable_socket
def test_nobody_else_listens_where_browsers_look_for_localhost() -> None:
    port = free_port()
    with hold_ipv6_loopback("localhost", port):
        with socket.socket(socket.AF_INET6) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("::1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("::1", port)).close()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        with pytest.raises(StartupError, match=str(port)), hold_ipv6_loopback("localhost", port):
            pass
        with hold_ipv6_loopback("hub.example.org", port):
            pass
