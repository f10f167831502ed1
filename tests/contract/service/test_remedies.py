"""What a scheduler says would unblock waiting work does so."""

from pathlib import Path

from contract.service.site import site

UNTIL_DELETED = {"command": ["sh", "-c", "while :; do sleep 1; done"], "gpus": 1}


async def test_the_quota_that_is_told_starts_it(tmp_path: Path) -> None:
    async with site(tmp_path, gpus=2, quota=1) as made:
        await made.submit("holder", **UNTIL_DELETED, preemptible=False)
        await made.phase("holder", "running")
        await made.submit("waiter", **UNTIL_DELETED, preemptible=False)
        await made.until("waiter", lambda status: status["reason"] is not None)
        told = (await made.ask("GET", "/workloads/vision/waiter/remedies"))["items"]
        assert [one["sentence"] for one in told] == [
            "If you submit it as preemptible, it starts.",
            "An admin could raise the quota of project `vision` to 2 GPUs.",
            "It starts when `holder` of project `vision` ends.",
        ]
        quota = {"gpus": told[1]["amount"] / 1000}
        await made.ask("PATCH", "/projects/vision", {"quota": quota})
        await made.phase("waiter", "running")
