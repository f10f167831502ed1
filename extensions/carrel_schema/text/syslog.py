"""Entries of the audit log as messages of RFC 5424.

The message is the entry as JSON; who, what and whether it was done stand before it as structured
data, so that collectors filter without parsing. The facility is "log audit" (13).
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from carrel_schema.governance.audit import AuditEntry

AUDIT: Final = 13
NOTICE: Final = 5
WARNING: Final = 4
ENTERPRISE: Final = 32473
"""The enterprise number of examples (RFC 5612) for structured data, as Carrel has none."""


def message(entry: AuditEntry, host: str) -> str:
    """A message, without the framing of a transport.

    Args:
        entry: of the audit log.
        host: whose log it is.
    """
    severity = NOTICE if entry.outcome == "done" else WARNING
    at = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
    facts = (
        ("seq", str(entry.seq)),
        ("user", entry.user),
        ("verb", entry.verb),
        ("kind", entry.kind),
        ("scope", entry.scope),
        ("name", entry.name),
        ("outcome", entry.outcome),
    )
    data = " ".join(f'{name}="{_quoted(value)}"' for name, value in facts if value)
    head = (
        f"<{AUDIT * 8 + severity}>1 {at.replace('+00:00', 'Z')} {_printable(host)} carrel - audit"
    )
    return f"{head} [entry@{ENTERPRISE} {data}] {msgspec.json.encode(entry).decode()}"


def _quoted(value: str) -> str:
    for special in ("\\", '"', "]"):
        value = value.replace(special, "\\" + special)
    return "".join(character if character.isprintable() else "?" for character in value)


def _printable(host: str) -> str:
    return "".join(one for one in host[:255] if "!" <= one <= "~") or "-"
