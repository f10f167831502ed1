"""Upkeep of the audit log: old entries are removed, new ones are sent to syslog.

How far the sending came is kept in the ledger, so that what was not sent while nobody listened, or
while the scheduler was stopped, follows. After a kill some entries may be sent twice.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from carrel_scheduler.ledger.audit.contract import AuditFilter
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.periodic import run_periodically
from carrel_schema.governance.audit import SETTING, AuditEntry, AuditSettings
from carrel_schema.text.syslog import message

log = logging.getLogger(__name__)
SENT: Final = "audit_sent"
PAUSE_SECONDS: Final = 2.0
PRUNE_SECONDS: Final = 3600.0
SEND_SECONDS: Final = 5.0
AT_ONCE: Final = 500
DAY_SECONDS: Final = 86_400.0
EVERYTHING: Final = AuditFilter()


class AuditExport:
    """See the module.

    Args:
        ledger: whose audit log it is.
        clock: epoch seconds.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger, self._clock = ledger, clock
        self._host = socket.gethostname()
        self._pruned_at = 0.0

    async def run(self) -> None:
        """Send new entries periodically until cancelled."""
        await run_periodically(
            self.once, PAUSE_SECONDS, log, "the audit log was not exported or pruned"
        )

    async def once(self) -> None:
        """Send what is new, and remove what is too old if it is time to."""
        stored = await self._ledger.settings()
        settings = msgspec.convert(stored.get(SETTING) or {}, AuditSettings)
        now = self._clock()
        if settings.retention_days is not None and now - self._pruned_at >= PRUNE_SECONDS:
            before = now - settings.retention_days * DAY_SECONDS
            note = AuditEntry(at=now, user="scheduler", verb="prune", kind="AuditLog")
            await self._ledger.audit.prune(before, note)
            self._pruned_at = now
        if settings.syslog:
            sent = stored.get(SENT)
            await self._send_new(settings.syslog, int(sent) if sent is not None else 0)

    async def _send_new(self, url: str, sent: int) -> None:
        while entries := await self._ledger.audit.read(EVERYTHING, after=sent, limit=AT_ONCE):
            try:
                await asyncio.to_thread(send, url, self._host, entries)
            except OSError as error:
                log.warning("entries of the audit log could not be sent to %s: %s", url, error)
                return
            sent = entries[-1].seq
            await self._ledger.put_setting(SENT, sent)


def send(url: str, host: str, entries: Sequence[AuditEntry]) -> None:
    """Send entries to ``udp://host:port``, or ``tcp://host:port`` with their lengths (RFC 6587).

    Blocks; raises ``OSError``.
    """
    parts = urlsplit(url)
    kind = socket.SOCK_STREAM if parts.scheme == "tcp" else socket.SOCK_DGRAM
    name, port = parts.hostname or "", parts.port or 0
    family, _, _, _, address = socket.getaddrinfo(name, port, type=kind)[0]
    with socket.socket(family, kind) as there:
        there.settimeout(SEND_SECONDS)
        there.connect(address)
        for entry in entries:
            text = message(entry, host).encode()
            there.sendall(b"%d %s" % (len(text), text) if kind is socket.SOCK_STREAM else text)
