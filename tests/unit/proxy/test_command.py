"""The options of the package, and what we make of them."""

from pathlib import Path
from typing import Any

import click
import pytest

from carrel_hub.proxy.command import command, options
from carrel_hub.proxy.options import Options


def given(*words: str) -> dict[str, Any]:
    return command.make_context("proxy", list(words)).params


def test_without_a_word_it_is_on_loopback() -> None:
    assert options(given()) == Options(ip="127.0.0.1", port=8000, api_ip="127.0.0.1", api_port=8001)


def test_what_jupyterhub_says_is_understood() -> None:
    found = options(
        given(
            *("--ip", "*", "--port", "9000", "--api-ip", "127.0.0.2", "--api-port", "9005"),
            *("--error-target", "http://127.0.0.1:8081/hub/error", "--host-routing"),
            *("--log-level", "debug", "--timeout", "1500", "--custom-header", "X-One: 1"),
        ),
        "token",
    )
    assert found == Options(
        ip=None,
        port=9000,
        api_ip="127.0.0.2",
        api_port=9005,
        auth_token="token",
        error_target="http://127.0.0.1:8081/hub/error",
        host_routing=True,
        answer_seconds=1.5,
        custom_headers=(("X-One", "1"),),
    )
    assert "token" not in repr(found).replace("auth_token", "")


@pytest.mark.parametrize(
    "words",
    [
        ("--ssl-key", "a.pem", "--ssl-cert", "b.pem"),
        ("--api-ssl-key", "a.pem"),
        ("--redirect-port", "80"),
        ("--insecure", "yes"),
        ("--protocol-rewrite", "https"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(words: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match=words[0]):
        options(given(*words))


def test_one_place_for_error_pages() -> None:
    with pytest.raises(click.UsageError, match="--error-target and --error-path"):
        options(given("--error-target", "http://127.0.0.1:1", "--error-path", str(Path("/x"))))
