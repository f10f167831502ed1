"""The audit log of a ledger: entries are written in the transaction of the change they tell of."""
