"""The operations, one resource a file; ``api.table`` puts them together."""
