"""The contract of ``ObjectStore`` on SQLite and on PostgreSQL."""

from contract.object_store import Forgetting, ObjectStoreContract


class TestObjectStore(ObjectStoreContract, Forgetting):
    """Every rule."""
