"""The audit log on the command line: lists, exports, and exports that were changed."""

import csv
import json
from pathlib import Path

import msgspec
import pytest

from carrel.testing import FakeScheduler
from carrel_schema.governance.audit import START, AuditEntry, linked
from unit.cli.conftest import NOW, Run


@pytest.fixture
def log(fake: FakeScheduler) -> list[AuditEntry]:
    """Three entries, chained, as the scheduler has them."""
    entries = [
        AuditEntry(at=NOW, user="ada", verb="create", kind="Workload", name="=run", channel="cli"),
        AuditEntry(
            at=NOW,
            user="spawner",
            on_behalf_of="ada",
            verb="update",
            kind="Project",
            name="vision",
            before={"rank": 1},
            after={"rank": 2},
        ),
        AuditEntry(at=NOW, user="", verb="sign-in", outcome="refused", reason="no", count=9),
    ]
    made, last = [], START
    for seq, entry in enumerate(entries, start=1):
        made.append(linked(entry, seq, last)[0])
        last = made[-1].hash
    fake.audit.extend(msgspec.to_builtins(one) for one in made)
    return made


def test_entries_read_as_sentences(log: list[AuditEntry], run: Run) -> None:
    done = run("audit", "list", user="root")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[1].startswith("3 2026-09-21 14:13:20Z nobody known (9 times) sign-in refused: no")
    assert "spawner for ada" in lines[2]
    assert lines[2].endswith("rank: 1 → 2")
    assert run("audit", "list", "--user", "ada", user="root").out.count("\n") == len(log) - 1
    assert run("audit", "list", user="ada").code == 1


def test_an_export_is_verified_without_a_server(
    log: list[AuditEntry], run: Run, tmp_path: Path
) -> None:
    # The fake scheduler answers newest first.
    done = run("audit", "export", user="root")
    lines = sorted(done.out.splitlines(), key=lambda line: int(json.loads(line)["seq"]))
    file = tmp_path / "audit.jsonl"
    file.write_text("\n".join(lines) + "\n")
    whole = run("audit", "verify", "--file", str(file), user="root")
    assert (whole.code, log[-1].hash in whole.out) == (0, True)
    file.write_text("\n".join(lines).replace('"rank":2', '"rank":3') + "\n")
    changed = run("audit", "verify", "--file", str(file), user="root")
    assert (changed.code, "entry 2 was changed" in changed.err) == (2, True)
    file.write_text("\n".join([lines[0], lines[2]]) + "\n")
    assert "entry 2 is missing" in run("audit", "verify", "--file", str(file), user="root").err


def test_a_table_holds_no_formulas_and_syslog_its_severity(log: list[AuditEntry], run: Run) -> None:
    table = run("audit", "export", "--format", "csv", user="root").out
    rows = list(csv.DictReader(table.splitlines()))
    assert [row["name"] for row in rows] == ["", "vision", "'=run"]
    messages = run("audit", "export", "--format", "syslog", user="root").out.splitlines()
    assert [text[:6] for text in messages] == ["<108>1", "<109>1", "<109>1"]
    assert len(messages) == len(log)
