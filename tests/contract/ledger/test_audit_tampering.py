"""Whoever changes the audit log in the database behind the scheduler's back is noticed."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Engine, text

from carrel_scheduler.ledger.database import database_of
from carrel_scheduler.ledger.secret_keys import SecretKeys, new_key
from carrel_schema.governance.audit import AuditHead, head_text
from contract.ledger.ledger_audit import entry
from contract.ledger.ledger_tools import Ledgers

LAST = "(SELECT max(seq) FROM audit_entries)"


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    database = database_of(database_url)
    yield database.writer
    database.dispose()


@pytest.mark.parametrize(
    ("statement", "wrong_seq"),
    [
        ("UPDATE audit_entries SET entry = replace(entry, 'n3', 'x3') WHERE seq = 4", 4),
        ("UPDATE audit_entries SET name = 'x3' WHERE seq = 4", 4),
        ("UPDATE audit_entries SET entry = 'x' WHERE seq = 4", 4),
        ("DELETE FROM audit_entries WHERE seq = 4", 4),
        ("DELETE FROM audit_entries WHERE seq = 1", 1),
        (f"DELETE FROM audit_entries WHERE seq = {LAST}", 10),
        ("UPDATE audit_entries SET seq = 11 WHERE seq = 4", 4),
        ("UPDATE audit_head SET seq = 9, hash = (SELECT hash FROM audit_entries WHERE seq = 9)", 9),
        ("UPDATE audit_head SET anchor_seq = 2", 10),
        ("DELETE FROM audit_entries", 1),
    ],
)
async def test_a_changed_log_is_noticed(
    stores: Ledgers, engine: Engine, statement: str, wrong_seq: int
) -> None:
    ledger = await stores.open()
    await ledger.audit.add([entry(f"n{n}") for n in range(10)])
    assert (await ledger.audit.verify()).ok
    with engine.begin() as connection:
        connection.execute(text(statement))
    found = await ledger.audit.verify()
    assert (found.ok, found.wrong_seq) == (False, wrong_seq), found.problem


async def test_a_head_is_signed_by_the_keys_of_the_ledger(stores: Ledgers) -> None:
    ledger = await stores.open()
    await ledger.audit.add([entry("n0")])
    head = await ledger.audit.head()
    other, text_of_head = SecretKeys([new_key()]), head_text(head)
    assert not other.signed(text_of_head, head.signature)
    assert other.signed(text_of_head, other.sign(text_of_head))
    assert not other.signed(head_text(AuditHead()), other.sign(text_of_head))
