"""What a task asks for that no pod can have: the same words at submission and at the start."""

from typing import Any

from carrel_scheduler.engines.contract import EngineError


class NoPod(EngineError):  # noqa: N818 - reads as the fact it states
    """A task that cannot be a pod.

    Attributes:
        code: a stable word of the API's.
        field: which field of the task it is.
        value: what stands there.
        expected: what would be right, and why.
    """

    def __init__(self, code: str, field: str, value: Any, expected: str) -> None:
        super().__init__(f"{field}={value!r}: {expected}")
        self.code, self.field, self.value, self.expected = code, field, value, expected
