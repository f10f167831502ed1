"""Cells of CSV files, which no spreadsheet takes for formulas."""

import pytest

from carrel_schema.text.csv_cells import csv_cell


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_text_like_a_formula_begins_with_an_apostrophe(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["vision", "a=b", "", -1.5, 3, None])
def test_others_stay(value: object) -> None:
    assert csv_cell(value) == value
