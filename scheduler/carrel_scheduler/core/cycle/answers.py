"""What becomes of an offer."""

from enum import Enum, auto


class Answer(Enum):
    """What became of an offer."""

    SERVED = auto()
    NO = auto()
    """Neither this job nor any that looks like it."""
    PLAINLY_NO = auto()
    """Like ``NO``, found out at a glance."""
    NOT_THIS = auto()
    """Others that look like it may still be served."""


REFUSED = (Answer.NO, Answer.PLAINLY_NO)
SEARCHED = (Answer.NO, Answer.NOT_THIS)


def answered(found: bool) -> Answer:
    """The answer of a search."""
    return Answer.SERVED if found else Answer.NO
