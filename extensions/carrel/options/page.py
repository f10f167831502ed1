"""docs/options.md, made from the table: ``python -m carrel.options > docs/options.md``."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from carrel.options.kinds import EVERY, KINDS
from carrel.options.option import ALL_KINDS, Option, Surface
from carrel.options.table import TABLE, by_flag, sentence

HEAD: Final = """\
# Options of work

Made from `carrel.options` by `python -m carrel.options > docs/options.md`; change it there.

The shell tool, the magics and the console's form take these options and fill these fields of the
[API](api.md). What is asked for follows from the options: `--workers` makes it distributed
training, `--parallelism` an experiment. Amounts: `2`, `0.5` or `500m` processors, `4G` memory (in
powers of 1024), times as `45s`, `10m`, `8h`, `2d`; a bare number is seconds.
"""
TAIL: Final = """
## Search spaces

| `--param` | means |
|---|---|
| `drop=0.0..0.5` | any number between |
| `drop=0.0..0.5:0.1` | numbers in steps |
| `lr=log:1e-5..1e-1` | any number between, evenly over orders of magnitude |
| `layers=int:1..4`, `width=int:32..256:32`, `width=int:log:16..1024` | whole numbers |
| `opt=adam,sgd` | one of these; numbers, `true`, `false` and `null` are themselves |
| `opt=choice:1..2,3` | one of these texts, though one looks like a range |

## Requests in a file

`carrel submit -f FILE` reads the API's fields from YAML, one document for each workload; what is
typed beside it counts more.

```yaml
name: train-7
kind: distributed
command: [torchrun, train.py]
gpus: 1
tasks: 4
elastic: {min_tasks: 2}
```
"""
MARKS: Final = ((Surface.CLI, "shell"), (Surface.MAGIC, "magic"), (Surface.FORM, "form"))


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    shown = [row for row in TABLE if not row.hidden]
    for group, rows in groupby(shown, key=lambda row: row.group):
        parts.append(f"\n## {group}\n\n| option | meaning | field | for | where |\n")
        parts.append("|---|---|---|---|---|\n")
        parts += [_line(same_flag) for same_flag in by_flag(rows).values()]
    return "".join(parts) + TAIL


def _line(same_flag: Sequence[Option]) -> str:
    row = same_flag[0]
    spelt = ", ".join(f"`{one}`" for one in row.spellings)
    if row.off:
        spelt += f", `--{row.off}`"
    if row.shown:
        spelt += f" `{row.shown}`".replace("|", "\\|")
    fields = ", ".join(f"`{path}`" for one in same_flag for path in one.fields)
    kinds = frozenset[str]().union(*(one.kinds for one in same_flag))
    where = ", ".join(word for mark, word in MARKS if mark in row.surfaces)
    return f"| {spelt} | {sentence(same_flag)} | {fields} | {_kinds(kinds)} | {where} |\n".replace(
        "|  |", "| |"
    )


def _kinds(kinds: frozenset[str]) -> str:
    if kinds == ALL_KINDS:
        return "all"
    if len(kinds) > len(KINDS) / 2:
        missing = ", ".join(kind.name for kind in KINDS if kind.name not in kinds)
        return f"all but {missing}"
    return ", ".join(name for name in EVERY if name in kinds)
