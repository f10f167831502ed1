"""Invariants of the state, recounted from single tasks; checked by the audit and by tests."""
