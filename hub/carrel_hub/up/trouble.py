"""What keeps Carrel from starting, as one sentence for a person."""


class Trouble(Exception):  # noqa: N818 - shown as a sentence, without a traceback
    """The sentence; `carrel up` shows it and ends with exit code 1."""
