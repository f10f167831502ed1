"""What Traefik is started with."""

from pathlib import Path
from typing import Any

from carrel_hub.front.traefik import Listening, Tls, configuration, from_file, from_hub


def made(**more: Any) -> dict[str, Any]:
    listening = Listening(public="127.0.0.1:8000", internal="127.0.0.1:10001", **more)
    return configuration(listening, from_file(Path("/state/routes")))


def test_the_api_is_open_to_nobody_and_nothing_is_reported() -> None:
    found = made()
    assert found["api"] == {"dashboard": False}
    assert found["global"] == {"checkNewVersion": False, "sendAnonymousUsage": False}
    assert found["entryPoints"]["internal"]["address"] == "127.0.0.1:10001"


def test_the_access_log_has_no_header_and_no_query(tmp_path: Path) -> None:
    log = made(access_log=tmp_path / "access.log")["accessLog"]
    assert log["filePath"] == str(tmp_path / "access.log")
    assert log["fields"]["headers"] == {"defaultMode": "drop"}
    assert log["fields"]["queryParameters"] == {"defaultMode": "drop"}


def test_requests_heads_and_idle_connections_have_limits() -> None:
    entry = made(request_seconds=17)["entryPoints"]["public"]
    assert entry["transport"]["respondingTimeouts"] == {"readTimeout": "17s", "idleTimeout": "120s"}
    assert entry["http"]["maxHeaderBytes"] == 65536


def test_nobody_is_believed_who_was_not_named() -> None:
    assert made()["entryPoints"]["public"]["forwardedHeaders"] == {"trustedIPs": []}
    found = made(trusted_proxies=["10.0.0.0/8"])
    assert found["entryPoints"]["public"]["forwardedHeaders"] == {"trustedIPs": ["10.0.0.0/8"]}


def test_tls_of_an_authority(tmp_path: Path) -> None:
    tls = Tls(acme_domains=["a.org", "b.org"], acme_email="me@a.org", plain_port=8080)
    found = made(tls=tls, state=tmp_path)
    assert found["certificatesResolvers"]["acme"]["acme"] == {
        "email": "me@a.org",
        "storage": str(tmp_path / "acme.json"),
        "tlsChallenge": {},
    }
    secured = found["entryPoints"]["public"]["http"]["tls"]
    assert secured["domains"] == [{"main": "a.org", "sans": ["b.org"]}]
    plain = found["entryPoints"]["plain"]
    assert plain["address"] == "127.0.0.1:8080"
    assert plain["http"]["redirections"]["entryPoint"]["to"] == ":8000"


def test_a_traefik_elsewhere_asks_the_hub_with_its_key() -> None:
    provider = from_hub("http://hub:8081/hub/carrel/routes", "k")
    assert provider["http"]["headers"] == {"Authorization": "token k"}
