"""Credentials that are of no use are tried seldom, said once, and known as soon as they work."""

import json
import logging
import sys
from pathlib import Path

import pytest

from carrel_scheduler.kube.credentials import (
    ASKED_AGAIN_SECONDS,
    CredentialsUnusable,
    from_kubeconfig,
)
from carrel_scheduler.kube.transport import (
    LONGEST_SECONDS,
    NOT_KNOWN,
    TRANSIENT_FAILURES,
    CredentialsBreaker,
)

HOUR = 3600.0
VERSION = "client.authentication.k8s.io/v1"
NOTHING = json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": {}})
MISSING = CredentialsUnusable("there is no plugin")


class Trying:
    """Somebody who asks four times a second, of something that fails as long as ``broken``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.broken = True
        self.tried = 0
        self.breaker = CredentialsBreaker(lambda: self.now)

    def ask(self, seconds: float, why: CredentialsUnusable = MISSING) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            try:
                self.breaker.check()
            except CredentialsUnusable:
                continue
            self.tried += 1
            if self.broken:
                self.breaker.failed(why)
            else:
                self.breaker.works()


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_it_is_tried_ever_more_seldom_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    trying = Trying()
    with caplog.at_level(logging.INFO):
        trying.ask(HOUR)
    assert HOUR / LONGEST_SECONDS <= trying.tried <= HOUR / LONGEST_SECONDS + 10
    assert trying.breaker.trouble == "there is no plugin"
    assert len(said(caplog, logging.ERROR)) == 1
    trying.broken = False
    with caplog.at_level(logging.INFO):
        trying.ask(LONGEST_SECONDS + 1)
    assert trying.breaker.trouble == ""
    assert said(caplog, logging.INFO) == ["the Kubernetes API answers again"]
    assert len(said(caplog, logging.ERROR)) == 1


def test_a_few_failures_are_chance(caplog: pytest.LogCaptureFixture) -> None:
    trying = Trying()
    for _ in range(TRANSIENT_FAILURES - 1):
        trying.breaker.check()
        trying.breaker.failed(MISSING)
    trying.breaker.check()
    assert (trying.breaker.trouble, caplog.records) == ("", [])
    trying.breaker.works()
    trying.breaker.failed(MISSING)
    trying.breaker.check()


def test_another_reason_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    breaker = CredentialsBreaker(lambda: 0.0)
    for why in (*[MISSING] * 5, *[CredentialsUnusable(NOT_KNOWN, refused=True)] * 5):
        breaker.failed(why)
    assert breaker.trouble == NOT_KNOWN
    assert len(said(caplog, logging.ERROR)) == 2
    with pytest.raises(CredentialsUnusable) as told:
        breaker.check()
    assert told.value.refused


def test_one_try_is_let_through_at_a_time() -> None:
    trying = Trying()
    trying.ask(2 * LONGEST_SECONDS)
    trying.now += LONGEST_SECONDS
    trying.breaker.check()
    with pytest.raises(CredentialsUnusable):
        trying.breaker.check()


def kubeconfig(folder: Path, command: str, *arguments: str) -> Path:
    run = {
        "apiVersion": VERSION,
        "command": command,
        "args": list(arguments),
        "interactiveMode": "Never",
    }
    said = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": run}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(said))
    return path


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("/no/such/plugin", [], "No such file"),
        (sys.executable, ["-c", "import sys; sys.exit('signed out')"], "signed out"),
        (sys.executable, ["-c", "print('{}')"], "apiVersion"),
        (
            sys.executable,
            ["-c", f"print({NOTHING!r})"],
            "gives no credentials: exec: missing token",
        ),
    ],
)
async def test_a_plugin_that_fails_is_told_with_its_reason_and_not_logged_by_others(
    command: str,
    arguments: list[str],
    words: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    credentials = from_kubeconfig(kubeconfig(tmp_path, command, *arguments), now=lambda: now)
    for _ in range(2):
        with pytest.raises(CredentialsUnusable, match=words):
            await credentials.access()
        now += ASKED_AGAIN_SECONDS
    assert said(caplog, logging.ERROR) == []
