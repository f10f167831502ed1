"""Use as tables for other programs: CSV, and Parquet by pyarrow.

Both have one row for each line of the report, the largest first, and the same columns: what it is
summed up by, and the amounts of ``Usage``. A spreadsheet would run a text that looks like a
formula, so in CSV such a name begins with an apostrophe. Parquet keeps types; pyarrow is an extra,
because it is larger than the rest of the scheduler.
"""

import csv
import io
from collections.abc import Sequence
from typing import Final

from carrel_scheduler.api.problems import Code, Conflicting
from carrel_schema.history import Usage
from carrel_schema.text.csv_cells import csv_cell

CSV: Final = "text/csv"
PARQUET: Final = "application/vnd.apache.parquet"
AMOUNTS: Final = tuple(name for name in Usage.__struct_fields__ if name != "key")
COUNTS: Final = frozenset({"preemptions", "workloads"})


def largest_first(items: Sequence[Usage]) -> list[Usage]:
    """Lines in descending order of use."""
    return sorted(items, key=lambda one: (-one.gpu_seconds, -one.cpu_seconds, one.key))


def as_csv(by: str, items: Sequence[Usage]) -> bytes:
    """The table as CSV in UTF-8, with the names of the columns in its first line."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([by, *AMOUNTS])
    for one in largest_first(items):
        writer.writerow([csv_cell(one.key), *(getattr(one, name) for name in AMOUNTS)])
    return text.getvalue().encode()


def as_parquet(by: str, items: Sequence[Usage]) -> bytes:
    """The table as a Parquet file. Raises ``Conflicting`` where pyarrow is not installed."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise Conflicting(
            Code.LIBRARY_MISSING,
            "Parquet files are written by pyarrow, which is not installed where the scheduler "
            "runs: `pip install 'jupyter-carrel[parquet]'` there, or ask for `format=csv`",
        ) from None
    lines = largest_first(items)
    columns = {by: pa.array([one.key for one in lines], pa.string())}
    for name in AMOUNTS:
        kind = pa.int64() if name in COUNTS else pa.float64()
        columns[name] = pa.array([getattr(one, name) for one in lines], kind)
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file)
    return file.getvalue()
