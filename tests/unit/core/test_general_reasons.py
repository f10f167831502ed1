"""What people outside a project may read of why its work waits."""

import pytest

from carrel_scheduler.core.messages import general
from carrel_scheduler.core.reasons import Token


@pytest.mark.parametrize("token", Token)
def test_every_token_has_a_sentence_of_its_own_right(token: Token) -> None:
    sentence = general.sentence(token.value)
    assert sentence != general.NAMELESS
    assert sentence.endswith(".")
    assert not any(mark in sentence for mark in "`0123456789")


def test_what_is_not_of_the_core_is_not_explained() -> None:
    assert general.sentence("BackOff") == general.NAMELESS
