"""The page Retention."""

from contract.console.site import START, Site, Visitor

TYPED = {"audit_days": "", "decision_days": "90", "sample_days": "14", "hourly_sample_days": "400"}


async def test_a_change_is_previewed_and_saved(site: Site) -> None:
    decisions = {
        "name": "decisions", "description": "Why", "until": "for ever", "field": "decision_days",
        "rows": 1200, "size_bytes": 5 * 2**20, "oldest_at": START - 86_400,
    }  # fmt: skip
    artifacts = {"name": "artifacts", "days": 90, "option": "CARREL_ARTIFACT_DAYS"}
    site.scheduler.retention["kinds"] = [decisions, artifacts]
    async with Visitor(site, "root") as root:
        page = await root.get("retention")
        for said in ("for ever", "1,200", "5.0 MiB", "90 days", "CARREL_ARTIFACT_DAYS"):
            assert said in page.words
        seen = await root.post("retention", TYPED | {"action": "preview"})
        assert "With these times 20 rows" in seen.words
        assert "Nothing is saved yet." in seen.words
        assert site.scheduler.retention["settings"]["sample_days"] == 14
        assert "decision_days" not in site.scheduler.retention["settings"]
        done = await root.post("retention", TYPED | {"action": "save"})
        assert "Saved." in done.words
        assert site.scheduler.retention["settings"] == {
            "audit_days": None, "decision_days": 90, "sample_days": 14, "hourly_sample_days": 400,
        }  # fmt: skip
        for wrong, said in (
            ({"sample_days": ""}, "fill this in"),
            ({"sample_days": "3"}, "7 or more"),
            ({"decision_days": "soon"}, "a number"),
        ):
            refused = await root.post("retention", TYPED | wrong | {"action": "save"})
            assert (refused.status, said in refused.words) == (422, True)
        assert (await root.post("retention", TYPED | {"action": "hush"})).status == 400
    async with Visitor(site, "ada") as ada:
        assert (await ada.get("retention")).status == 403
