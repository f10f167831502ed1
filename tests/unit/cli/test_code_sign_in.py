"""``carrel login`` by a code: which address is meant, what is told, and how it ends."""

from typing import Any

import pytest

from carrel.cli import code_sign_in
from carrel.cli.code_sign_in import Decided, PendingSignIn, service_url, token_by_code
from carrel.errors import NotSignedIn, Unreachable

HUB = "https://hub.example.org"
SERVICE = f"{HUB}/services/carrel"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (HUB, SERVICE),
        (f"{HUB}/hub/home", SERVICE),
        (f"{HUB}/hub", SERVICE),
        (f"{HUB}/user/ada/lab", SERVICE),
        (f"{HUB}/services/console", SERVICE),
        (f"{HUB}/lab/hub/token", f"{HUB}/lab/services/carrel"),
        (f"{HUB}/hubs", f"{HUB}/hubs/services/carrel"),
        (SERVICE, SERVICE),
        ("http+unix://%2Frun%2Fcarrel.sock", "http+unix://%2Frun%2Fcarrel.sock"),
    ],
)
def test_any_address_of_the_hub_is_understood(given: str, meant: str) -> None:
    assert service_url(given) == meant


class _Hub:
    """What a Hub answers, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [PendingSignIn("secret", "BCDF-GHJK", 600, 0), *answers]
        self.asked: list[tuple[str, str, Any]] = []

    def __call__(self, hub: str, path: str, body: Any, kind: type) -> Any:
        self.asked.append((hub, path, body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def login(monkeypatch: pytest.MonkeyPatch, hub: _Hub) -> str | None:
    monkeypatch.setattr(code_sign_in, "_ask", hub)
    return token_by_code(SERVICE, show_page=True)


def test_the_token_is_waited_for_also_while_the_hub_restarts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = _Hub(Decided("waiting"), Unreachable("gone"), Decided("allowed", "token"))
    assert login(monkeypatch, hub) == "token"
    said = capsys.readouterr()
    assert f"Open {HUB}/hub/sign-in in a browser, and type the code BCDF-GHJK there." in said.err
    assert "secret" not in said.err + said.out
    assert [(where, path) for where, path, _ in hub.asked] == [(HUB, ""), *[(HUB, "/token")] * 3]
    assert hub.asked[1][2] == {"secret": "secret"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Decided("refused"), "refused in the browser"),
        (Decided("expired"), "counts no more"),
        (None, "counts no more"),
    ],
)
def test_a_sign_in_that_does_not_come_ends(
    monkeypatch: pytest.MonkeyPatch, answer: Any, said: str
) -> None:
    with pytest.raises(NotSignedIn, match=said):
        login(monkeypatch, _Hub(answer))


def test_a_page_opens_only_on_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    login(monkeypatch, _Hub(Decided("allowed", "token")))
    assert opened == []
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    login(monkeypatch, _Hub(Decided("allowed", "token")))
    assert opened == [f"{HUB}/hub/sign-in"]


def test_where_there_is_no_such_sign_in_a_token_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = _Hub()
    hub.answers = [None]
    assert login(monkeypatch, hub) is None
    assert token_by_code("http+unix://%2Frun%2Fcarrel.sock", show_page=True) is None
