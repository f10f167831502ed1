"""The health of the platform: what administrators look at first.

It is made of the conditions that the rules of alerts find: there is no second set of checks.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, Text

DIRECTORY_SETTING: Final = "directory_sync"
LAST_BACKUP_FILE: Final = "last-backup.json"
"""The file in the state folder with the time of the last `carrel backup`, in epoch seconds."""
HealthState = Literal["ok", "warning", "failed"]


class HealthCheck(Answer, frozen=True, kw_only=True):
    """A subject of the health report.

    Attributes:
        name: of the subject, stable.
        state: ``failed``: a critical rule found something; ``warning``: another one did.
        summary: a sentence.
        action: what to do; empty where nothing is to be done.
        rules: of the alerts that look at it.
    """

    name: str
    state: HealthState = "ok"
    summary: str = ""
    action: str = ""
    rules: Sequence[str] = ()


class HealthReport(Answer, frozen=True, kw_only=True):
    """The health checks of all subjects, and the worst state of them.

    Attributes:
        version: of Carrel.
        at: when it was made, epoch seconds.
    """

    state: HealthState = "ok"
    version: str = ""
    at: float = 0.0
    checks: Sequence[HealthCheck] = ()


class DirectorySync(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing rights with the directory (LDAP, OIDC); the Hub reports it.

    Attributes:
        reported_at: when the Hub tried last, epoch seconds.
        succeeded_at: when it succeeded last; 0: not since the Hub started.
        error: why the last try failed; empty: it did not.
    """

    reported_at: Annotated[float, Constraint(ge=0, le=1e11)]
    succeeded_at: Annotated[float, Constraint(ge=0, le=1e11)] = 0.0
    error: Annotated[Text, Constraint(max_length=500)] = ""
