"""The chain of the audit log: whatever is done to its entries is noticed."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from carrel_schema.governance.audit import START, AuditEntry, ChainCheck, linked

TEXTS = st.text(max_size=8)
ENTRIES = st.lists(
    st.builds(
        AuditEntry,
        at=st.floats(0, 2e9),
        user=TEXTS,
        verb=TEXTS,
        name=TEXTS,
        after=st.dictionaries(TEXTS, st.none() | TEXTS | st.integers() | st.floats(0, 1)),
    ),
    min_size=2,
    max_size=12,
)


def chained(entries: list[AuditEntry]) -> list[AuditEntry]:
    made: list[AuditEntry] = []
    last = START
    for seq, entry in enumerate(entries, start=1):
        placed, _ = linked(entry, seq, last)
        last = placed.hash
        made.append(msgspec.json.decode(msgspec.json.encode(placed), type=AuditEntry))
    return made


def holds(chain: list[AuditEntry], of: list[AuditEntry]) -> bool:
    check = ChainCheck()
    check.take(chain)
    return check.end(len(of), of[-1].hash)


@given(ENTRIES)
def test_what_was_written_holds_also_after_a_way_as_json(entries: list[AuditEntry]) -> None:
    chain = chained(entries)
    assert holds(chain, chain)


@given(ENTRIES, st.data())
def test_every_change_is_noticed(entries: list[AuditEntry], data: st.DataObject) -> None:
    chain = chained(entries)
    at = data.draw(st.integers(0, len(chain) - 1))
    field = data.draw(st.sampled_from(AuditEntry.__struct_fields__))
    old = getattr(chain[at], field)
    new = old + 1 if isinstance(old, int | float) else old | {"new": 1} if old == {} else "other"
    if isinstance(old, dict):
        new = {**old, "one more field": 1}
    changed = msgspec.structs.replace(chain[at], **{field: new})
    forged = [*chain[:at], changed, *chain[at + 1 :]]
    assert (changed == chain[at]) == holds(forged, chain)


@given(ENTRIES, st.data())
def test_what_is_changed_and_hashed_anew_does_not_fit_the_next_or_the_head(
    entries: list[AuditEntry], data: st.DataObject
) -> None:
    chain = chained(entries)
    at = data.draw(st.integers(0, len(chain) - 1))
    changed = msgspec.structs.replace(chain[at], name=chain[at].name + "x")
    forged, _ = linked(changed, changed.seq, changed.previous)
    assert not holds([*chain[:at], forged, *chain[at + 1 :]], chain)


@given(ENTRIES, st.data())
def test_what_is_removed_or_moved_is_noticed(
    entries: list[AuditEntry], data: st.DataObject
) -> None:
    chain = chained(entries)
    at = data.draw(st.integers(0, len(chain) - 1))
    assert not holds([*chain[:at], *chain[at + 1 :]], chain)
    to = data.draw(st.integers(0, len(chain) - 1).filter(lambda other: other != at))
    moved = list(chain)
    moved.insert(to, moved.pop(at))
    assert not holds(moved, chain)


@given(ENTRIES, st.data())
def test_a_chain_goes_on_from_its_anchor(entries: list[AuditEntry], data: st.DataObject) -> None:
    chain = chained(entries)
    cut = data.draw(st.integers(1, len(chain) - 1))
    check = ChainCheck(chain[cut - 1].seq, chain[cut - 1].hash)
    check.take(chain[cut:])
    assert check.end(chain[-1].seq, chain[-1].hash)
