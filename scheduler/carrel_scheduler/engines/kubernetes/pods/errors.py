"""What of an object cannot be scheduled as it is written."""


class PodRefused(ValueError):  # noqa: N818 - named for what it is, as the core's refusals are
    """A pod or node says something that cannot be understood or is not supported.

    Attributes:
        code: stable token, such as ``bad_quantity`` or ``resource_claims``.
        field: what is wrong, as a path in the object.
        value: what it says.
        expected: what would be right.
    """

    def __init__(self, code: str, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}={value!r}: {expected} ({code})")
        self.code, self.field, self.value, self.expected = code, field, value, expected

    @property
    def sentence(self) -> str:
        """For whoever wrote the object."""
        return f"`{self.field}` is `{self.value}`; it should be {self.expected}."
