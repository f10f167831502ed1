"""What the machine allows, in words."""

from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local import capabilities
from carrel_scheduler.engines.local.accounts import Accounts
from carrel_scheduler.engines.local.capabilities import describe_isolation, require_sandbox
from carrel_scheduler.engines.local.cgroups import Limiter


def found(tmp_path: Path, *, privileged: bool) -> tuple[str, str]:
    accounts = Accounts(tmp_path, tmp_path, privileged=privileged)
    return describe_isolation(accounts, Limiter({}, refusal="the test says so"))


def test_a_refused_sandbox_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "_refusal", lambda: "Operation not permitted")
    users, _ = found(tmp_path, privileged=True)
    assert "CAP_SYS_ADMIN" in users
    assert "Operation not permitted" in users
    with pytest.raises(EngineError, match="CAP_SYS_ADMIN"):
        require_sandbox()


def test_an_ordinary_account_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> str:
        raise AssertionError("nothing is to be tried")

    monkeypatch.setattr(capabilities, "_refusal", never)
    users, limits = found(tmp_path, privileged=False)
    assert users.startswith("All users' work runs under your account")
    assert limits == "CPU and memory limits are not enforced: the test says so."


def test_root_keeps_users_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "_refusal", lambda: "")
    users, _ = found(tmp_path, privileged=True)
    assert users == "Every user's work runs under an account of their own."
    require_sandbox()


def test_a_mount_that_goes_away_meanwhile_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, bwrap = tmp_path / "tried", tmp_path / "bwrap"
    bwrap.write_text(
        f'#!/bin/sh\n[ -e {tried} ] || {{ : > {tried}; echo "remount" >&2; exit 1; }}\n'
    )
    bwrap.chmod(0o755)
    monkeypatch.setattr(capabilities, "sandbox_programs", lambda: (str(bwrap), "/bin/cat"))
    capabilities._refusal.cache_clear()
    require_sandbox()
    assert tried.exists()
    bwrap.write_text('#!/bin/sh\necho "not permitted" >&2\nexit 1\n')
    capabilities._refusal.cache_clear()
    with pytest.raises(EngineError, match="not permitted"):
        require_sandbox()
    capabilities._refusal.cache_clear()
