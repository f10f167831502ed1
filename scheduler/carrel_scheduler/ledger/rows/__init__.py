"""The tables of the ledger, and the statements that write and read them; nothing but SQL."""
