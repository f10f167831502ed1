"""Changes that are committed with what others commit, against a database in memory."""

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import IntegrityError, SAWarning
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from carrel_spawner import group_commit
from carrel_spawner.group_commit import keep


class Base(DeclarativeBase):
    """Tables of these tests."""


class Row(Base):
    """Stands for a spawner's row."""

    __tablename__ = "rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str]


class Commits:
    """A session that counts its commits."""

    def __init__(self) -> None:
        self.engine = create_engine("sqlite://")
        Base.metadata.create_all(self.engine)
        self.session = Session(self.engine, expire_on_commit=False)
        self.rows = [Row(id=number, state="old") for number in range(3)]
        self.session.add_all(self.rows)
        self.session.commit()
        self.count = 0
        event.listen(self.session, "after_commit", self._committed)

    def _committed(self, _: Session) -> None:
        self.count += 1

    async def change(self, number: int, state: str = "new") -> None:
        """Have a row's change kept."""
        await keep(self.session, lambda: setattr(self.rows[number], "state", state))

    def stored(self) -> list[str]:
        """What another reader of the database would find."""
        self.session.rollback()
        return list(self.session.scalars(text("select state from rows order by id")))


@pytest.fixture
def commits() -> Iterator[Commits]:
    """A database with three rows."""
    made = Commits()
    yield made
    made.session.close()
    made.engine.dispose()


async def test_nobody_else_commits(commits: Commits) -> None:
    await asyncio.gather(*(commits.change(number) for number in range(3)))
    assert commits.count == 1
    assert commits.stored() == ["new", "new", "new"]


async def test_others_commit_for_us(commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "COMMIT_WAIT_SECONDS", 60.0)
    kept = asyncio.create_task(commits.change(0))
    await asyncio.sleep(0)
    assert not kept.done()
    commits.session.commit()
    await kept
    assert commits.count == 1
    assert commits.stored() == ["new", "old", "old"]


async def test_nothing_lies_uncommitted_and_a_rollback_of_others_takes_nothing_back(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "COMMIT_WAIT_SECONDS", 60.0)
    kept = asyncio.create_task(commits.change(0))
    await asyncio.sleep(0)
    assert not commits.session.dirty
    commits.session.rollback()
    await asyncio.sleep(0)
    assert not kept.done()
    commits.session.commit()
    await kept
    assert commits.stored() == ["new", "old", "old"]


async def test_a_commit_that_fails_is_no_commit(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "COMMIT_WAIT_SECONDS", 60.0)
    kept = asyncio.create_task(commits.change(0))
    await asyncio.sleep(0)
    commits.session.add(Row(id=1, state="a second one"))
    with pytest.raises(IntegrityError), pytest.warns(SAWarning, match="conflicts"):
        commits.session.commit()
    commits.session.rollback()
    await asyncio.sleep(0)
    assert not kept.done()
    commits.session.commit()
    await kept
    assert commits.stored() == ["new", "old", "old"]


async def test_who_gives_up_changes_nothing(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "COMMIT_WAIT_SECONDS", 60.0)
    kept = asyncio.create_task(commits.change(0))
    await asyncio.sleep(0)
    kept.cancel()
    await asyncio.gather(kept, return_exceptions=True)
    commits.session.commit()
    assert commits.stored() == ["old", "old", "old"]
