"""The contract of ``ObjectStore``; inherit ``ObjectStoreContract`` and give it the fixtures.

``stores`` opens the same store again and again (``await stores.open()``), also several at once, and
closes what is left open; ``store`` is one of them, and ``beginning`` a version before which nothing
of the test is. A store that keeps as many changes as it is told inherits ``Forgetting``, too.
"""

from contract.ledger.store_forgetting import Forgetting
from contract.ledger.store_reading import Listing, ReadingAndWriting
from contract.ledger.store_tools import Stores
from contract.ledger.store_watching import Watching

__all__ = ["Forgetting", "ObjectStoreContract", "Stores"]


class ObjectStoreContract(ReadingAndWriting, Listing, Watching):
    """The whole contract of ``ObjectStore``."""
