"""The contract of ``ObjectStore``; inherit ``ObjectStoreContract`` and give it the fixtures.

``stores`` opens the same store again and again (``await stores.open()``), also several at once, and
closes what is left open; ``store`` is one of them.
"""

from contract.ledger.store_reading import Listing, ReadingAndWriting
from contract.ledger.store_tools import Stores
from contract.ledger.store_watching import Watching

__all__ = ["ObjectStoreContract", "Stores"]


class ObjectStoreContract(ReadingAndWriting, Listing, Watching):
    """Every rule of ``ObjectStore``."""
