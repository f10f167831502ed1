"""The page Health."""

from contract.console.site import START, Site, Visitor


async def test_what_failed_is_shown_with_what_to_do(site: Site) -> None:
    report = {
        "state": "failed",
        "version": "1.2.3",
        "at": START,
        "checks": [
            {"name": "parts", "state": "failed", "summary": "The <Hub> is off.", "action": "Read."},
            {"name": "nodes", "state": "ok", "summary": "2 nodes are known."},
        ],
    }
    site.scheduler.health.update(report)
    async with Visitor(site, "root") as root:
        page = await root.get("health")
        assert page.status == 200
        for said in ("Something has failed.", "Carrel 1.2.3", "The <Hub> is off.", "Read."):
            assert said in page.words
        assert "Hub, proxy and gateway" in page.words
        assert "Health" in (await root.get("alerts")).words
    async with Visitor(site, "ada") as ada:
        assert (await ada.get("health")).status == 403
