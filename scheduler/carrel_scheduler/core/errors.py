"""Errors of the core: events that contradict the state, and unknown workloads."""


class InvalidEvent(ValueError):  # noqa: N818 - named for what it is, as events are
    """An event that cannot be true; the state is unchanged.

    Attributes:
        code: stable token, such as ``unknown_node`` or ``device_taken``.
        field: the field of the event that is wrong.
        value: what it says.
        expected: what would be right.
    """

    def __init__(self, code: str, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}={value!r}: {expected} ({code})")
        self.code, self.field, self.value, self.expected = code, field, value, expected


class UnknownWorkload(KeyError):  # noqa: N818 - reads as what happened
    """The state has no workload of this uid."""
