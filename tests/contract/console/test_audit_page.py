"""The audit log in the console: filters, pages, the table, and for whom it is."""

from collections.abc import AsyncIterator

import pytest

from contract.console.site import START, Site, Visitor


@pytest.fixture
async def root(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "root") as visitor:
        yield visitor


def entry(seq: int, **more: object) -> dict[str, object]:
    usual = {"user": "ada", "verb": "update", "kind": "Project", "name": f"p{seq}"}
    return {"seq": seq, "at": START - 60, "scope": "platform", **usual, **more}


async def test_entries_are_shown_and_what_people_wrote_is_no_markup(
    site: Site, root: Visitor
) -> None:
    changed = {"before": {"rank": 1}, "after": {"rank": "<b>2</b>"}, "address": "10.0.0.7"}
    site.scheduler.audit.append(entry(1, on_behalf_of="grace", channel="cli", **changed))
    refused = {"outcome": "refused", "reason": "missing_scope", "count": 7}
    site.scheduler.audit.append(entry(2, user="<i>eve</i>", **refused))
    page = await root.get("audit")
    assert "ada for grace" in page.words
    assert "rank 1 <b>2</b>" in page.words.replace("&lt;", "<").replace("&gt;", ">")
    assert "refused missing scope, 7 times" in page.words
    assert "<i>eve" not in page.text
    assert "<b>2</b>" not in page.text


async def test_filters_and_pages_keep_each_other(site: Site, root: Visitor) -> None:
    site.scheduler.audit.extend(entry(n, user=("ada", "eve")[n % 2]) for n in range(1, 121))
    first = await root.get("audit?user=ada")
    assert "eve" not in first.words
    assert "audit?user=ada&amp;after=50" in first.text
    second = await root.get("audit?user=ada&after=50")
    assert ("p20" in second.words, "p120" in second.words) == (True, False)
    assert (await root.get("audit?days=9")).status == 400


async def test_the_table_has_all_pages_and_no_formulas(site: Site, root: Visitor) -> None:
    site.scheduler.audit.extend(entry(n, name="=1+1") for n in range(1, 701))
    page = await root.get("audit.csv")
    lines = page.text.strip().splitlines()
    assert len(lines) == 701
    assert lines[0].startswith("seq,at,user,on_behalf_of,verb,kind")
    assert ",'=1+1," in lines[1]


async def test_the_chain_is_verified_on_request(site: Site, root: Visitor) -> None:
    site.scheduler.audit.append(entry(1))
    assert "The log is whole: 1" in (await root.get("audit?verify=1")).words


async def test_nobody_else_sees_it(site: Site) -> None:
    async with Visitor(site, "ada") as ada:
        site.scheduler.audit.append(entry(1, user="grace"))
        page = await ada.get("audit")
        assert page.status == 403
        assert "grace" not in page.words
        assert "Audit log" not in (await ada.get("help")).words


async def test_how_long_and_where_to_is_set_on_the_page(site: Site, root: Visitor) -> None:
    wanted = {"retention_days": "90", "syslog": "udp://log.example:514"}
    saved = await root.post("audit", wanted)
    assert 'value="90"' in saved.text
    assert "udp://log.example:514" in saved.text
    for wrong in ({**wanted, "retention_days": "x"}, {**wanted, "syslog": "file:///etc"}):
        page = await root.post("audit", wrong)
        assert (page.status, 'role="alert"' in page.text) == (422, True)
