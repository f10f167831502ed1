"""Departments in the console: made, previewed, changed, deleted, by who may."""

from contract.console.site import Site, Visitor


async def test_a_department_is_made_changed_and_deleted(site: Site) -> None:
    async with Visitor(site, "root") as root:
        listed = await root.get("projects")
        assert "Create a department" in listed.words
        made = await root.post(
            "new-department", {"name": "arts", "quota_gpus": "2", "weight": "high"}
        )
        assert made.status == 200
        assert site.scheduler.departments["arts"]["quota"]["gpus"] == 2
        assert site.scheduler.departments["arts"]["weight"] == 3
        assert "interactive" not in site.scheduler.departments["arts"]
        page = await root.get("departments/arts")
        assert "No project is in this department yet" in page.words
        tried = await root.post("departments/arts", {"action": "preview", "weight": "2"})
        assert "start vision/a" in tried.words
        assert site.scheduler.departments["arts"]["weight"] == 3
        wrong = await root.post("departments/arts", {"action": "save", "weight": "some"})
        assert wrong.status == 422
        await root.post("departments/arts", {"action": "save", "quota_gpus": "1", "weight": ""})
        assert site.scheduler.departments["arts"]["weight"] is None
        assert "arts" in (await root.get("projects")).words
        gone = await root.post("departments/arts", {"action": "delete"})
        assert (gone.status, "arts" in site.scheduler.departments) == (200, False)


async def test_who_governs_none_sees_none(site: Site) -> None:
    async with Visitor(site, "ada") as ada:
        assert "Create a department" not in (await ada.get("projects")).words
        assert (await ada.get("new-department")).status == 403
        assert (await ada.get("departments/arts")).status == 404
