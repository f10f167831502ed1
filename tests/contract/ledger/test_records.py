"""The contract of ``Ledger`` on SQLite and on PostgreSQL."""

from contract.ledger.ledger_contract import LedgerContract


class TestLedger(LedgerContract):
    """Every rule."""
