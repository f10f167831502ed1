"""The one way to say that a choice cannot be used."""


class BadOption(ValueError):  # noqa: N818 - reads as the fact it states
    """A choice that cannot be used: names the field, the value and what would be right."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field} is {value!r}; it should be {expected}.")
        self.field, self.value, self.expected = field, value, expected
