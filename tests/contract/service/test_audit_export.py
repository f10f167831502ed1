"""Entries of the audit log on their way to syslog, and the removal of old ones."""

import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.service.audit_export import AuditExport
from carrel_schema.governance.audit import SETTING
from contract.ledger.ledger_audit import ALL, entry
from contract.ledger.ledger_tools import DAY, NOW


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ids = iter(range(1000))
    made = await open_ledger(
        f"sqlite:///{tmp_path}/a.sqlite", clock=lambda: NOW, ids=lambda: str(next(ids))
    )
    yield made
    await made.close()


async def test_each_entry_is_sent_once_as_rfc_5424(ledger: Ledger) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(10)
        port = collector.getsockname()[1]
        await ledger.put_setting(SETTING, {"syslog": f"udp://127.0.0.1:{port}"})
        export = AuditExport(ledger, lambda: NOW)
        await ledger.audit.add([entry('qu"oted]'), entry("second")])
        await export.once()
        await ledger.audit.add([entry("third")])
        await AuditExport(ledger, lambda: NOW).once()  # as after a restart
        got = [collector.recv(65536).decode() for _ in range(3)]
        collector.settimeout(0)
        with pytest.raises(BlockingIOError):
            collector.recv(1)
    assert got[0].startswith("<109>1 2026-")
    assert r'name="qu\"oted\]"' in got[0]
    assert ['"second"' in got[1], '"third"' in got[2]] == [True, True]


async def test_over_tcp_each_message_has_its_length(ledger: Ledger) -> None:
    with socket.create_server(("127.0.0.1", 0)) as collector:
        got: list[bytes] = []

        def collect() -> None:
            connection, _ = collector.accept()
            with connection:
                while piece := connection.recv(65536):
                    got.append(piece)

        thread = threading.Thread(target=collect)
        thread.start()
        port = collector.getsockname()[1]
        await ledger.put_setting(SETTING, {"syslog": f"tcp://127.0.0.1:{port}"})
        await ledger.audit.add([entry("only")])
        await AuditExport(ledger, lambda: NOW).once()
        thread.join(60)
    length, _, text = b"".join(got).partition(b" ")
    assert int(length) == len(text)


async def test_what_nobody_took_is_sent_later(ledger: Ledger) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    await ledger.put_setting(SETTING, {"syslog": f"tcp://127.0.0.1:{port}"})
    await ledger.audit.add([entry("kept")])
    await AuditExport(ledger, lambda: NOW).once()
    assert "audit_sent" not in await ledger.settings()


async def test_old_entries_are_removed_by_the_setting_alone(ledger: Ledger) -> None:
    await ledger.audit.add([entry("old", NOW - 3 * DAY), entry("young", NOW - DAY)])
    await AuditExport(ledger, lambda: NOW).once()
    assert len(await ledger.audit.read(ALL)) == 2
    await ledger.put_setting(SETTING, {"retention_days": 2})
    await AuditExport(ledger, lambda: NOW).once()
    assert [one.name for one in await ledger.audit.read(ALL)] == ["", "young"]
    assert (await ledger.audit.verify()).ok
