"""The table of all options of work at submission.

``table`` holds the rows: how each option is spelt, how its text is read, the sentence that explains
it, which field of the API it fills, and for which kinds of work. The shell tool, the magics, the
console's form and docs/options.md are made from it; a test holds it to the API's own schema.

    from carrel import options
    asked = options.read({"experiment": True, "param": ["lr=log:1e-5..1e-1"]}, options.Surface.CLI)
    asked.kind, asked.fields        # "experiment", {"experiment": {"parameters": ...}}
"""

from carrel.options.kinds import EVERY, KINDS, Kind, type_word
from carrel.options.option import Option, Surface
from carrel.options.request import RequestFields, read
from carrel.options.table import TABLE, by_flag, rows, sentence, spellings, unknown

__all__ = [
    "EVERY",
    "KINDS",
    "TABLE",
    "Kind",
    "Option",
    "RequestFields",
    "Surface",
    "by_flag",
    "read",
    "rows",
    "sentence",
    "spellings",
    "type_word",
    "unknown",
]
