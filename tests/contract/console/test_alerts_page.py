"""The page Alerts."""

from contract.console.site import START, Site, Visitor


async def test_alerts_are_shown_silenced_and_told(site: Site) -> None:
    site.scheduler.alerts.append(
        {"rule": "idle-gpu", "subject": "workload/vision/train-7", "severity": "warning",
         "state": "firing", "summary": "GPU 0 <does> nothing.", "since": START}
    )  # fmt: skip
    async with Visitor(site, "ada") as ada:
        page = await ada.get("alerts")
        assert "GPU 0 <does> nothing." in page.words
        assert "Save the channel" not in page.words
        job = await ada.get("jobs/vision/train-7")
        assert "idle-gpu: GPU 0 <does> nothing." in job.words
    async with Visitor(site, "root") as root:
        wrong = await root.post("alerts", {"action": "silence", "lasts": "soon"})
        assert (wrong.status, "as 2 h or 30 min" in wrong.words) == (422, True)
        done = await root.post("alerts", {"action": "silence", "lasts": "2 h", "rule": "idle-gpu"})
        assert "Nobody is told of idle-gpu" in done.words
        channel = {"action": "channel", "name": "ops", "kind": "slack", "url": "https://h/x"}
        assert "ops is told of alerts." in (await root.post("alerts", channel)).words
        mail = await root.post("alerts", channel | {"kind": "mail"})
        assert (mail.status, "addresses to send to" in mail.words) == (422, True)
        tested = await root.post("alerts", {"action": "test", "name": "ops"})
        assert "ops took a message." in tested.words
        broken = await root.post("alerts", {"action": "test", "name": "broken"})
        assert (broken.status, "it answered 500" in broken.words) == (422, True)
        changed = await root.post("alerts", {"action": "rule", "name": "disk-full"})
        assert "disk-full is not looked for" in changed.words
        for name, action in (("ops", "delete-channel"), ("s1", "unsilence")):
            assert (await root.post("alerts", {"action": action, "name": name})).status == 200
        assert set(site.scheduler.alerting) == {("alert-rules", "disk-full")}
        for fields, status in (({"action": "hush"}, 400), ({"action": "rule", "name": "no"}, 404)):
            assert (await root.post("alerts", fields)).status == status
