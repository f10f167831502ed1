"""Groups of nodes in the console: for administrators a form, for others nothing."""

from contract.console.site import Site, Visitor

TYPED = {"name": "a100", "labels": "gpu=a100, zone = b", "projects": "vision", "role": "training"}


async def test_a_group_is_defined_changed_and_deleted(site: Site) -> None:
    groups = site.scheduler.node_groups
    async with Visitor(site, "root") as root:
        saved = await root.post("node-groups", TYPED)
        assert "a100 was saved." in saved.words
        assert groups["a100"]["match_labels"] == {"gpu": "a100", "zone": "b"}
        form = await root.get("node-groups?name=a100")
        assert 'value="gpu=a100, zone=b"' in form.text
        changed = {"name": "a100", "version": "1", "nodes": "n1, n2", "departments": "arts"}
        assert "department arts" in (await root.post("node-groups", changed)).words
        assert groups["a100"]["node_names"] == ["n1", "n2"]
        await root.post("node-groups", {"name": "a100", "action": "delete"})
        assert groups == {}


async def test_what_is_wrong_stands_at_its_field(site: Site) -> None:
    async with Visitor(site, "root") as root:
        unreadable = await root.post("node-groups", TYPED | {"labels": "a100"})
        assert (unreadable.status, "This should be KEY=VALUE" in unreadable.words) == (422, True)
        empty = await root.post("node-groups", {"name": "a100"})
        assert "This should be at least one label" in empty.words
        assert site.scheduler.node_groups == {}
