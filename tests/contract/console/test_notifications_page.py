"""The page Notifications."""

from contract.console.site import Site, Visitor

MAIL = {"action": "save", "kind": "mail", "address": "ada@example.org", "failed": "on"}


async def test_one_says_where_and_of_what_to_be_told(site: Site) -> None:
    async with Visitor(site, "ada") as ada:
        page = await ada.get("notifications")
        assert "You are told of nothing." in page.words
        assert "At example.org" in page.words
        saved = await ada.post("notifications", MAIL | {"url": "https://left.over/x"})
        assert "You are told by mail at ada@example.org" in saved.words
        assert site.scheduler.subscriptions["ada"] == {
            "kind": "mail", "address": "ada@example.org", "events": ["failed"],
        }  # fmt: skip
        wrong = await ada.post("notifications", MAIL | {"address": "ada@elsewhere.org"})
        assert (wrong.status, "an address at example.org" in wrong.words) == (422, True)
        hooked = {"action": "save", "kind": "slack", "url": "https://h/broken", "finished": "on"}
        assert (await ada.post("notifications", hooked)).status == 200
        tried = await ada.post("notifications", {"action": "test"})
        assert (tried.status, "it answered 500" in tried.words) == (422, True)
        gone = await ada.post("notifications", {"action": "delete"})
        assert "You are told of nothing any more." in gone.words
        assert site.scheduler.subscriptions == {}
        assert (await ada.post("notifications", {"action": "hush"})).status == 400
