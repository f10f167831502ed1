"""Assets: the list by type, and the editor for one."""

from contract.console.site import Site, Visitor

ENVIRONMENT = "description: PyTorch 2\nfields:\n  image: torch:2\n"
DATA = "data:\n  kind: folder\n  source: /data/cells\n  destination: /cells\n"


async def test_assets_are_made_changed_and_deleted(site: Site) -> None:
    async with Visitor(site, "ada") as ada:
        empty = await ada.get("assets")
        assert empty.words.count("There are none for your work yet") == 3
        form = await ada.get("assets/edit?type=environment")
        assert "New environment" in form.words
        assert 'value="user/ada"' in form.text
        asked = {"type": "environment", "name": "torch", "scope": "user/ada", "version": "0"}
        saved = await ada.post("assets/edit", asked | {"text": ENVIRONMENT, "action": "save"},
                               form_at="secrets")  # fmt: skip
        assert "torch of user/ada was saved." in saved.words
        assert "image torch:2" in saved.words
        at = "assets/edit?type=environment&name=torch&scope=user%2Fada"
        assert "image: torch:2" in (await ada.get(at)).text
        asked["version"] = "1"
        await ada.post("assets/edit", asked | {"text": ENVIRONMENT, "action": "delete"},
                       form_at="secrets")  # fmt: skip
        assert site.scheduler.assets == {}


async def test_a_data_source_says_what_work_finds(site: Site) -> None:
    async with Visitor(site, "ada") as ada:
        asked = {"type": "data-source", "name": "cells", "scope": "user/ada", "version": "0"}
        await ada.post("assets/edit", asked | {"text": DATA, "action": "save"}, form_at="secrets")
        page = await ada.get("assets")
        assert "folder /data/cells" in page.words
        assert "destination /cells" in page.words
        at = "assets/edit?type=data-source&name=cells&scope=user%2Fada"
        text = (await ada.get(at)).text
        assert "source: /data/cells" in text
        assert "secret" not in text.split("<textarea")[1].split("</textarea>")[0]


async def test_what_is_wrong_is_said(site: Site) -> None:
    async with Visitor(site, "ada") as ada:
        asked = {"type": "compute", "name": "big", "scope": "platform", "version": "0"}
        refused = await ada.post(
            "assets/edit",
            asked | {"text": "fields: {gpus: 8}", "action": "save"},
            form_at="secrets",
        )
        assert (refused.status, "assets:manage" in refused.words) == (422, True)
        for wrong in ({"type": "spaceship"}, {"action": "sing"}):
            body = asked | {"text": "fields: {gpus: 8}", "action": "save"} | wrong
            assert (await ada.post("assets/edit", body, form_at="secrets")).status == 400
        assert (await ada.get("assets/edit?type=spaceship")).status == 400
