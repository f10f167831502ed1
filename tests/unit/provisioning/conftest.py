"""The ledgers of the harnesses."""

from unit.workloads.conftest import empty_ledger

__all__ = ["empty_ledger"]
