"""Ports of the parts on a real machine: none that anybody is given, and the same again."""

import socket
from pathlib import Path

import msgspec

from carrel_hub.up.ports import HIGHEST, load_or_choose


def test_they_are_out_of_everybodys_way_and_kept_while_they_are_free(tmp_path: Path) -> None:
    chosen, changed = load_or_choose(tmp_path / "ports.json")
    ports = set(msgspec.structs.asdict(chosen).values())
    assert (len(ports), changed) == (5, False)
    assert max(ports) < HIGHEST
    assert load_or_choose(tmp_path / "ports.json") == (chosen, False)
    with socket.create_server(("127.0.0.1", chosen.scheduler)):
        others, changed = load_or_choose(tmp_path / "ports.json")
    assert changed
    assert others.scheduler != chosen.scheduler
    assert load_or_choose(tmp_path / "ports.json") == (others, False)
