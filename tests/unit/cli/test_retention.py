"""``carrel retention``."""

import json

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


def test_what_is_kept_is_shown_previewed_and_set(run: Run, fake: FakeScheduler) -> None:
    shown = run("retention", "show", user="root").out
    assert "decisions  for ever  --decision-days" in shown
    told = run("retention", "set", "--decision-days", "90", "--dry-run", user="root")
    assert told.out.endswith("10 rows, 2.0 KiB, would be removed. Nothing is changed.\n")
    assert "decision_days" not in fake.retention["settings"]
    done = run("retention", "set", "--decision-days", "90", "--audit-days", "none", user="root")
    assert (done.code, "are removed within an hour" in done.err) == (0, True)
    assert fake.retention["settings"] == {
        "audit_days": None, "decision_days": 90, "sample_days": 14, "hourly_sample_days": 400,
    }  # fmt: skip
    plain = json.loads(run("retention", "show", "-o", "json", user="root").out)
    assert plain["settings"]["decision_days"] == 90


def test_what_cannot_be_set_is_told(run: Run) -> None:
    assert run("retention", "set", user="root").code == 2
    wrong = run("retention", "set", "--decision-days", "soon", user="root")
    assert (wrong.code, "a number of days, or none" in wrong.err) == (2, True)
    short = run("retention", "set", "--sample-days", "3", user="root")
    assert (short.code, "7 or more" in short.err) == (1, True)
