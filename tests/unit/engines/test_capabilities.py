"""What the machine allows, in words."""

from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local import capabilities
from carrel_scheduler.engines.local.accounts import Accounts
from carrel_scheduler.engines.local.capabilities import find_capabilities, require_sandbox
from carrel_scheduler.engines.local.cgroups import Limiter


def found(tmp_path: Path, *, privileged: bool) -> capabilities.Capabilities:
    accounts = Accounts(tmp_path, tmp_path, privileged=privileged)
    return find_capabilities(accounts, Limiter({}, refusal="the test says so"))


def test_a_refused_sandbox_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "_refusal", lambda: "Operation not permitted")
    able = found(tmp_path, privileged=True)
    assert not able.separate_users
    assert "CAP_SYS_ADMIN" in able.users_line
    assert "Operation not permitted" in able.users_line
    with pytest.raises(EngineError, match="CAP_SYS_ADMIN"):
        require_sandbox()


def test_an_ordinary_account_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> str:
        raise AssertionError("nothing is to be tried")

    monkeypatch.setattr(capabilities, "_refusal", never)
    able = found(tmp_path, privileged=False)
    assert (able.separate_users, able.limits) == (False, False)
    assert able.limits_line == "CPU and memory limits are not enforced: the test says so."


def test_root_keeps_users_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "_refusal", lambda: "")
    able = found(tmp_path, privileged=True)
    assert able.separate_users
    assert "\n" not in able.users_line
    require_sandbox()
