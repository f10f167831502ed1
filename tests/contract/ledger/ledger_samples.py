"""Samples of a ledger: means by subject and span."""

from typing import get_args

from carrel_scheduler.ledger.records import Decision, Ledger
from carrel_schema.governance.retention import RetainedKind
from carrel_schema.samples import Sample

START = 1_790_000_100 - 1_790_000_100 % 3600


class SampleRules:
    """``Ledger.samples``."""

    async def test_samples_are_written_again_read_by_span_and_pruned(self, store: Ledger) -> None:
        samples = store.samples
        for number in range(4):
            means = {"cluster": Sample(gpus=8, running=number), "project/a": Sample(gpus_used=0.5)}
            await samples.add(300, START + 300 * number, means)
        await samples.add(300, START, {"cluster": Sample(gpus=4)})
        await samples.add(3600, START, {"cluster": Sample(gpus=7)})
        found = await samples.read(300, ["cluster"], START, START + 900)
        assert found == {
            "cluster": [
                (START, Sample(gpus=4)),
                (START + 300, Sample(gpus=8, running=1)),
                (START + 600, Sample(gpus=8, running=2)),
            ]
        }
        parts = await samples.of_span(300, START, START + 3600)
        assert {subject: len(of) for subject, of in parts.items()} == {"cluster": 4, "project/a": 3}
        assert await samples.latest(300) == START + 900
        assert await samples.prune(300, START + 600) == 3
        assert len((await samples.read(300, ["cluster"], START, START + 3600))["cluster"]) == 2
        assert await samples.read(3600, ["cluster"], START, START + 1) == {
            "cluster": [(START, Sample(gpus=7))]
        }

    async def test_the_past_is_counted_by_age_and_old_decisions_are_removed(
        self, store: Ledger
    ) -> None:
        epoch = await store.begin_epoch()
        made = [Decision(at=START + hour, action="bind", workload="train") for hour in range(5)]
        await store.record(epoch=epoch, decisions=made)
        found = await store.stored_amount("decisions", START + 2)
        assert (found.rows, found.old_rows, found.oldest_at) == (5, 2, START)
        assert found.size_bytes * 2 == found.old_bytes * 5
        assert found.old_bytes > 2 * len("bindtrain")
        for kind in get_args(RetainedKind):
            assert (await store.stored_amount(kind, 0.0)).old_rows == 0
        assert await store.remove_decisions(START + 3, 2) == 2
        assert await store.remove_decisions(START + 3, 2) == 1
        assert await store.remove_decisions(START + 3, 2) == 0
        assert [one.at for one in await store.decisions()] == [START + 3, START + 4]
        assert await store.size_bytes() > 1024
