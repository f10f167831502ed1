"""Codes of command lines that wait for their person: told once, few wrong ones, few of a source."""

import pytest

from carrel_hub.code_sign_in import codes
from carrel_hub.code_sign_in.codes import CodeState, SignIns, TooManyCodes, spaced


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def sign_ins(clock: list[float]) -> SignIns:
    return SignIns(lambda: clock[0])


def test_a_code_is_found_however_it_is_typed_and_its_token_is_told_once(sign_ins: SignIns) -> None:
    secret, made = sign_ins.begin("10.0.0.1", "desk")
    assert sign_ins.collect(secret) is made
    found = sign_ins.find(f" {spaced(made.code).lower()} ", "ada")
    assert found is made
    found.state, found.token = CodeState.ALLOWED, "token"
    assert sign_ins.find(made.code, "grace") is None  # what is decided is not decided again
    assert sign_ins.collect(secret) is made
    assert sign_ins.collect(secret) is None
    assert sign_ins.collect("guess") is None


def test_a_code_counts_for_ten_minutes(sign_ins: SignIns, clock: list[float]) -> None:
    secret, made = sign_ins.begin("10.0.0.1", "")
    clock[0] = codes.SECONDS - 1
    assert sign_ins.find(made.code, "ada") is made
    clock[0] = codes.SECONDS
    assert sign_ins.find(made.code, "ada") is None
    assert sign_ins.collect(secret) is None


def test_nobody_tries_many_codes(sign_ins: SignIns, clock: list[float]) -> None:
    _, made = sign_ins.begin("10.0.0.1", "")
    for _ in range(codes.MOST_WRONG_CODES):
        assert sign_ins.find("", "mallory") is None
    with pytest.raises(TooManyCodes, match="10 minutes"):
        sign_ins.find(made.code, "mallory")
    assert sign_ins.find(made.code, "ada") is made
    clock[0] = codes.SECONDS
    _, later = sign_ins.begin("10.0.0.1", "")
    assert sign_ins.find(later.code, "mallory") is later


def test_no_source_keeps_others_from_signing_in(
    sign_ins: SignIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(codes.MOST_OF_A_SOURCE):
        sign_ins.begin("10.0.0.1", "")
    with pytest.raises(TooManyCodes):
        sign_ins.begin("10.0.0.1", "")
    sign_ins.begin("10.0.0.2", "")
    monkeypatch.setattr(codes, "MOST_REQUESTS", codes.MOST_OF_A_SOURCE + 1)
    with pytest.raises(TooManyCodes):
        sign_ins.begin("10.0.0.3", "")


def test_two_requests_never_have_one_code(
    sign_ins: SignIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["BBBBBBBB", "BBBBBBBB", "CCCCCCCC"])
    monkeypatch.setattr(codes, "_new_code", lambda: next(drawn))
    assert [sign_ins.begin("10.0.0.1", "")[1].code for _ in range(2)] == ["BBBBBBBB", "CCCCCCCC"]
