"""Errors of the client: one tree, each error one sentence for a person.

``str(error)`` is fit for a terminal or a notebook as it stands; machines look at ``code``.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class CarrelError(Exception):
    """Base of all errors of this package."""


class NotSignedIn(CarrelError):  # noqa: N818 - reads as the fact it states
    """A request had no token, or one that the server does not know."""


class Unreachable(CarrelError):  # noqa: N818 - reads as the fact it states
    """The server did not answer: it is away, too slow, or another program answers."""


class UnexpectedAnswer(CarrelError):  # noqa: N818 - reads as the fact it states
    """The server answered in a way that this client does not understand."""


class BadSetting(CarrelError):  # noqa: N818 - reads as the fact it states
    """A setting or an argument cannot be used; the message names it and what would be right.

    Attributes:
        code: stable code for machines, such as ``unknown_option``.
    """

    def __init__(self, sentence: str, *, code: str = "bad_setting") -> None:
        self.code = code
        super().__init__(sentence)


class ApiError(CarrelError):
    """The server refused a request (RFC 9457 problem).

    Attributes:
        status: HTTP status.
        code: stable code for machines, such as ``not_found``.
        title: the kind of problem in a few words.
        detail: what is wrong with this request, as a sentence.
        errors: one mapping per offending field: ``field``, ``value``, ``code``, ``expected``.
    """

    def __init__(
        self,
        status: int,
        code: str = "",
        title: str = "",
        detail: str = "",
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.status, self.code, self.title, self.detail = status, code, title, detail
        self.errors = tuple(errors)
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        sentence = self.detail or self.title or f"The server refused the request ({self.status})."
        untold = [
            (error.get("field", "?"), str(error["expected"]))
            for error in self.errors
            if error.get("expected") and str(error["expected"]).lower() not in sentence.lower()
        ]
        hints = [f"{field} should be {one}" for field, one in untold if one[-1] != "."]
        advice = [one for _, one in untold if one[-1] == "."]
        if hints:
            sentence = f"{sentence.rstrip('.')}: {'; '.join(hints)}."
        return " ".join((sentence if not advice else f"{sentence.rstrip('.')}.", *advice))
