"""What watches hear of recent commits without reading: everything, or that they have to read."""

import pytest

from carrel_scheduler.ledger.columns.codec import encode
from carrel_scheduler.ledger.store import ChangeType
from carrel_scheduler.ledger.watches import watch
from carrel_scheduler.ledger.watches.watch import Commit, Fresh, RecentCommits
from carrel_schema.objects import Meta, Project, ProjectSpec, Workload, WorkloadSpec


def commit(began: int, through: int, *versions: int, project: bool = False) -> Commit:
    """A commit whose other versions are statuses."""
    changes = []
    for version in versions:
        meta = Meta(name=f"n{version}", resource_version=version)
        if project:
            changes.append(Fresh(ChangeType.ADDED, encode(Project(meta=meta, spec=ProjectSpec()))))
        else:
            made = encode(Workload(meta=meta, spec=WorkloadSpec()))
            changes.append(Fresh(ChangeType.ADDED, made))
    return Commit(began, through, changes)


def heard(recent: RecentCommits, cursor: int) -> tuple[list[int], int] | None:
    batch = recent.after(Workload, cursor)
    return None if batch is None else ([change.version for change in batch.changes], batch.through)


def test_later_changes_in_order_and_statuses_left_out() -> None:
    recent = RecentCommits()
    recent.add(commit(5, 8, 6, 8))
    recent.add(commit(8, 9))
    recent.add(commit(9, 12, 10, project=True))
    recent.add(commit(12, 14, 13))
    assert heard(recent, 5) == ([6, 8, 13], 14)
    assert heard(recent, 6) == ([8, 13], 14)
    assert heard(recent, 8) == ([13], 14)
    assert heard(recent, 13) == ([], 14)


def test_what_is_not_known_is_to_be_read() -> None:
    recent = RecentCommits()
    assert heard(recent, 0) is None
    recent.add(commit(5, 8, 6))
    assert heard(recent, 4) is None  # something before it
    assert heard(recent, 8) is None  # nothing yet: another process may have written


def test_a_commit_of_another_process_in_between_is_a_gap() -> None:
    recent = RecentCommits()
    recent.add(commit(5, 8, 6))
    recent.add(commit(9, 10, 10))
    assert heard(recent, 8) is None
    assert heard(recent, 9) == ([10], 10)


def test_it_holds_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_CHANGES", 6)
    recent = RecentCommits()
    for version in range(10):
        recent.add(commit(version, version + 1, version + 1))
    assert heard(recent, 6) is None
    assert heard(recent, 7) == ([8, 9, 10], 10)
