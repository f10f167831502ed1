"""The statements that write and read the tables of the ledger; nothing but SQL."""
