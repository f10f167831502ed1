"""The contract of ``Ledger`` beyond ``ObjectStore``: rows of the past, fencing, secrets, keys.

Inherit ``LedgerContract`` and give it the fixtures ``stores`` and ``store`` of the object store's
contract, opening a ``Ledger``.
"""

from contract.ledger.ledger_audit import AuditLog
from contract.ledger.ledger_batches import CreatingMany, WatchingSpecifications
from contract.ledger.ledger_copies import Copies
from contract.ledger.ledger_named_secrets import NamedSecretsRules
from contract.ledger.ledger_reading import Past, SmallThings
from contract.ledger.ledger_samples import SampleRules
from contract.ledger.ledger_scoped import ScopedRecordsRules
from contract.ledger.ledger_studies import StudyLogs
from contract.ledger.ledger_writing import Creating, Recording


class LedgerContract(
    Creating,
    CreatingMany,
    Recording,
    WatchingSpecifications,
    Past,
    SmallThings,
    StudyLogs,
    Copies,
    ScopedRecordsRules,
    SampleRules,
    NamedSecretsRules,
    AuditLog,
):
    """The whole contract of ``Ledger``."""
