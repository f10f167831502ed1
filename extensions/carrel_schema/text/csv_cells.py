"""Cells of CSV files, which a spreadsheet would run where they begin like a formula."""

from typing import Any, Final

FORMULA_BEGINS: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_cell(value: Any) -> Any:
    """The value of a cell: a text like a formula gets an apostrophe before it, others stay."""
    if isinstance(value, str) and value.startswith(FORMULA_BEGINS):
        return f"'{value}"
    return value
