"""Task tokens are good for one workload and cannot be made without the key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.workloads.launch.task_specs import TaskTokens

TOKENS = TaskTokens(b"a" * 32)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_only_issued_tokens_are_read(text: str) -> None:
    assert TOKENS.uid(text) is None


@given(st.from_regex(r"[-0-9a-f.]{1,40}", fullmatch=True))
def test_a_token_gives_back_its_uid_and_only_under_its_key(uid: str) -> None:
    token = TOKENS.issue(uid)
    assert TOKENS.uid(token) == uid
    assert TaskTokens(b"b" * 32).uid(token) is None
    other = token.replace(f".{uid}.", f".{uid}0.")
    assert TOKENS.uid(other) is None
    assert TOKENS.uid(token[:-1]) is None


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        TaskTokens(b"short")
