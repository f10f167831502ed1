"""The contract of ``ObjectStore`` on SQLite and on PostgreSQL."""

from contract.object_store import ObjectStoreContract


class TestObjectStore(ObjectStoreContract):
    """Every rule."""
