"""The contract of ``Ledger`` for what lies beside the objects: the past, secrets, keys, values."""

import asyncio
import math
import random
from typing import Any

import msgspec
import pytest

from carrel_scheduler.ledger.accounting.spans import GROUPINGS, spans
from carrel_scheduler.ledger.accounting.usage import account, series
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import GpuUse, Ledger, MetricPoint, Transition
from carrel_scheduler.ledger.rows.curves import MOST
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.governance.costs import PricePeriod
from carrel_schema.history import PlaceUse
from carrel_schema.objects import ReasonInfo, Workload
from contract.ledger.ledger_tools import (
    DAY,
    NOW,
    Ledgers,
    decision,
    submit,
    transition,
    without_ids,
)
from contract.ledger.store_tools import take, workload


class Past:
    """Reading rows."""

    async def test_transitions_are_filtered_and_in_order(self, store: Ledger) -> None:
        one, two = workload("one"), workload("two", "speech")
        one.meta.uid, two.meta.uid = "uid-1", "uid-2"
        rows = [
            transition(one, "pending", 10.0, devices=(0, 1), reason=ReasonInfo(token="QuotaUsed")),
            transition(two, "pending", 20.0),
            transition(one, "running", 30.0, gpu_milli=2**40),
            transition(one, "failed", 25.0),
        ]
        await store.record(epoch=await store.begin_epoch(), transitions=rows)

        async def read(**filters: Any) -> list[Transition]:
            return without_ids(await store.transitions(**filters))

        ids = [row.id for row in await store.transitions()]
        assert ids == sorted(set(ids))
        assert min(ids) > 0
        assert await read() == rows
        assert await read(workload_uid="uid-1") == [rows[0], rows[2], rows[3]]
        assert await read(projects=["speech"]) == [rows[1]]
        assert await read(projects=[]) == []
        assert await read(since=20.0) == rows[1:]
        assert await read(until=20.0) == rows[:1]
        assert await read(since=20.0, until=30.0) == [rows[1], rows[3]]
        assert await read(limit=2) == rows[2:]

    async def test_decisions_newest_last(self, store: Ledger) -> None:
        one, two = workload("one"), workload("two")
        one.meta.uid, two.meta.uid = "uid-1", "uid-2"
        rows = [decision(one, 1), decision(two, 1), decision(one, 2), decision(one, 3)]
        await store.record(epoch=await store.begin_epoch(), decisions=rows)
        assert without_ids(await store.decisions()) == rows
        assert without_ids(await store.decisions(workload_uid="uid-1", limit=2)) == rows[2:]

    async def test_bad_limits_are_refused(self, store: Ledger) -> None:
        with pytest.raises(InvalidArgument, match="limit"):
            await store.transitions(limit=0)
        with pytest.raises(InvalidArgument, match="limit"):
            await store.decisions(limit=-1)

    async def test_usage_is_computed_from_transitions(self, store: Ledger) -> None:
        one, two = workload("one"), workload("two", "speech", user="bob")
        one.meta.uid, two.meta.uid = "uid-1", "uid-2"
        held = {"gpu_milli": 1500, "cpu_milli": 2000, "memory_bytes": 1024}
        rows = [
            transition(one, "pending", 0.0),
            transition(two, "pending", 5.0),
            transition(one, "running", 10.0, **held, borrowed=True),
            transition(one, "preempting", 30.0, **held, borrowed=True),
            transition(one, "pending", 40.0, from_phase="preempting"),
            transition(two, "running", 50.0, gpu_milli=1000),
        ]
        await store.record(epoch=await store.begin_epoch(), transitions=rows)
        speech, vision = await store.usage(by="project", since=0.0, until=100.0)
        assert (vision.key, vision.preemptions, vision.workloads) == ("vision", 1, 1)
        assert vision.gpu_seconds == vision.borrowed_gpu_seconds == 45.0
        assert (vision.cpu_seconds, vision.memory_byte_seconds) == (60.0, 30 * 1024.0)
        assert vision.wait_seconds == 70.0
        assert (speech.gpu_seconds, speech.borrowed_gpu_seconds) == (50.0, 0.0)
        assert speech.wait_seconds == 45.0
        (late,) = await store.usage(by="workload", since=60.0, until=70.0, projects=["speech"])
        assert (late.key, late.gpu_seconds, late.wait_seconds) == ("speech/two", 10.0, 0.0)
        users = await store.usage(by="user", since=0.0, until=100.0)
        assert [line.key for line in users] == ["ada", "bob"]
        with pytest.raises(InvalidArgument, match="by"):
            await store.usage(by="planet", since=0.0, until=1.0)
        with pytest.raises(InvalidArgument, match="until"):
            await store.usage(by="user", since=1.0, until=0.0)

    async def test_measured_use_counts_by_its_part_of_the_time(self, store: Ledger) -> None:
        one = workload("one")
        one.meta.uid = "uid-1"
        rows = [transition(one, "running", 0.0, gpu_milli=2000), transition(one, "failed", 600.0)]
        await store.record(epoch=await store.begin_epoch(), transitions=rows)
        first = GpuUse(
            workload_uid="uid-1",
            workload="one",
            project="vision",
            user="ada",
            since=0.0,
            until=300.0,
            used_gpu_seconds=90.0,
            idle_gpu_seconds=30.0,
        )
        pieces = [first, msgspec.structs.replace(first, since=300.0, until=600.0)]
        await store.add_gpu_use(pieces)
        (whole,) = await store.usage(by="project", since=0.0, until=1000.0)
        assert (whole.gpu_seconds, whole.gpu_used_seconds) == (1200.0, 180.0)
        assert whole.gpu_idle_seconds == 60.0
        (part,) = await store.usage(by="workload", since=200.0, until=450.0)
        assert (part.key, part.gpu_used_seconds, part.gpu_idle_seconds) == ("vision/one", 75, 25)
        assert not await store.usage(by="user", since=0.0, until=9.0, projects=["speech"])

    async def test_usage_agrees_with_the_arithmetic_on_any_history(self, store: Ledger) -> None:
        chance = random.Random(21)
        objs = [workload(f"w{n}", project) for n in range(4) for project in ("vision", "speech")]
        for number, obj in enumerate(objs):
            obj.meta.uid, obj.spec.user = f"uid-{number}", f"user-{number % 3}"
        rows = [
            transition(
                chance.choice(objs),
                chance.choice(("pending", "running", "preempting", "succeeded")),
                # Roughly in order: clocks are set back now and then.
                at=float(step + chance.randint(-3, 3)),
                gpu_milli=chance.choice((0, 0, 250, 1000)),
                cpu_milli=chance.choice((0, 2000)),
                borrowed=chance.random() < 0.5,
            )
            for step in range(300)
        ]
        await store.record(epoch=await store.begin_epoch(), transitions=rows)
        for since, until in ((0.0, 400.0), (100.0, 200.0), (150.0, 150.0), (299.0, 1000.0)):
            for by in ("project", "user", "workload"):
                expected = account(spans(rows), by=by, since=since, until=until)
                assert await store.usage(by=by, since=since, until=until) == expected
                if by == "project":
                    narrow = [line for line in expected if line.key == "speech"]
                    found = await store.usage(by=by, since=since, until=until, projects=["speech"])
                    assert found == narrow

    async def test_aggregation_changes_no_answer(self, store: Ledger) -> None:
        """Queries agree also while only some is aggregated, and where such work is resumed."""
        rows = _some_history(random.Random(5))
        middle = len(rows) // 2
        epoch = await store.begin_epoch()
        await store.record(epoch=epoch, transitions=rows[:middle])
        while await store.aggregate_usage(17):
            await _same_as_arithmetic(store, rows[:middle])
        await store.record(epoch=epoch, transitions=rows[middle:])
        await _same_as_arithmetic(store, rows)
        assert await store.aggregate_usage(1) == 1
        await _same_as_arithmetic(store, rows)
        while await store.aggregate_usage(50):
            pass
        await _same_as_arithmetic(store, rows)
        assert await store.aggregate_usage(50) == 0

    async def test_sums_beyond_64_bits_are_exact(self, store: Ledger) -> None:
        rows, held = [], 2**44 + 1
        for number in range(30):
            obj = workload(f"w{number}")
            obj.meta.uid = f"uid-{number}"
            rows += [
                transition(obj, "running", 1.0, memory_bytes=held, gpu_milli=64_001),
                transition(obj, "succeeded", 1.0 + 90 * DAY),
            ]
        await store.record(epoch=await store.begin_epoch(), transitions=rows)
        assert await store.aggregate_usage(1000) == len(rows)
        (line,) = await store.usage(by="project", since=0.0, until=100 * DAY)
        seconds = 30 * 90 * DAY
        assert line.memory_byte_seconds == held * seconds
        assert line.gpu_seconds == 64_001 * seconds / 1000


PRICES = (
    PricePeriod(since=0.0, gpu_hour=2.0, cpu_hour=0.1, memory_gib_hour=0.5),
    PricePeriod(since=130.0, gpu_hour=3.0, cpu_hour=0.1, memory_gib_hour=0.5),
)


def _some_history(chance: random.Random) -> list[Transition]:
    """Short lives of many workloads, some of them resumed long after their end."""
    timed: list[tuple[float, Transition]] = []
    for number in range(60):
        obj = workload(f"w{number}", chance.choice(("vision", "speech", "robots")))
        obj.meta.uid, obj.spec.user = f"uid-{number}", f"user-{number % 5}"
        obj.spec.kind = chance.choice(("training", "workspace"))
        at = chance.uniform(0, 250)
        phases = ["pending", "running", *chance.sample(("preempting", "pending", "running"), 2)]
        phases += ["stopped"] if chance.random() < 0.8 else []
        if chance.random() < 0.2:
            phases += ["pending", "running", "succeeded"]
        for phase in phases:
            holds = phase in ("running", "preempting")
            timed.append(
                (
                    at,
                    transition(
                        obj,
                        phase,
                        at,
                        gpu_milli=(gpu := chance.choice((0, 250, 1000, 8000)) if holds else 0),
                        cpu_milli=2000 if holds else 0,
                        memory_bytes=2**43 + 1 if holds else 0,
                        borrowed=chance.random() < 0.5,
                        places=_some_places(chance, gpu) if holds else (),
                    ),
                )
            )
            at += chance.expovariate(1 / 12)
    return [row for _, row in sorted(timed, key=lambda one: one[0])]


def _some_places(chance: random.Random, gpu: int) -> tuple[PlaceUse, ...]:
    """Places of 2 cores, 8 TiB and so many GPUs: one, two, or none that is known."""
    wheres = chance.sample([("H100", "a"), ("H100", "b"), ("A100", "b"), ("", "")], 2)
    return tuple(
        PlaceUse(
            gpu_type=gpu_type,
            node_group=node_group,
            gpu_milli=gpu // 2,
            cpu_milli=1000,
            memory_bytes=2**42,
        )
        for gpu_type, node_group in wheres[: chance.randrange(3)]
    )


async def _same_as_arithmetic(store: Ledger, rows: list[Transition]) -> None:
    departments = {"vision": "sciences", "robots": "sciences"}
    for since, until in ((0.0, 500.0), (50.0, 140.0), (120.0, 120.0)):
        for by in GROUPINGS:
            terms = {"by": by, "since": since, "until": until, "departments": departments}
            for prices in ((), PRICES):
                expected = account(spans(rows), **terms, prices=prices)  # type: ignore[arg-type]
                assert await store.usage(**terms, prices=prices) == expected  # type: ignore[arg-type]
            if until > since:
                parts = series(spans(rows), **terms, buckets=7)  # type: ignore[arg-type]
                found = await store.usage_series(**terms, buckets=7)  # type: ignore[arg-type]
                assert found.keys() == parts.keys()
                for key, line in parts.items():
                    assert found[key] == pytest.approx(line)
                some = await store.usage_series(**terms, buckets=7, largest=2)  # type: ignore[arg-type]
                sums = sorted((sum(line) for line in parts.values()), reverse=True)
                assert [*some] == sorted(some)
                assert sorted(map(sum, some.values()), reverse=True) == pytest.approx(sums[:2])
                for key, values in some.items():
                    assert values == pytest.approx(parts[key])


class SmallThings:
    """Secrets, idempotency keys, metrics, settings."""

    async def test_secrets_are_replaced(self, store: Ledger) -> None:
        made = await submit(store, A="1", B="2")
        await store.set_secrets(made.meta.uid, {"B": "3"})
        assert await store.secrets(made.meta.uid) == {"B": "3"}
        await store.set_secrets(made.meta.uid, {})
        assert await store.secrets(made.meta.uid) == {}
        with pytest.raises(ObjectNotFound):
            await store.set_secrets("no-such-uid", {"A": "1"})
        assert await store.secrets("no-such-uid") == {}

    async def test_secrets_are_never_part_of_an_object(self, store: Ledger) -> None:
        made = await submit(store, TOKEN="s3cret")
        watched = await take(store.watch(Workload, 0), 1)
        page = await store.list(Workload)
        shown = [made, page, watched, await store.get_by_uid(Workload, made.meta.uid)]
        assert b"s3cret" not in msgspec.json.encode([shown, await store.transitions()])

    async def test_deleting_takes_the_secrets_along(self, store: Ledger) -> None:
        made = await submit(store, TOKEN="s3cret")
        await store.delete(Workload, "train-1", "vision")
        assert await store.secrets(made.meta.uid) == {}

    async def test_the_first_use_of_a_key_wins(self, store: Ledger) -> None:
        claim = store.claim_idempotency_key
        assert await claim("vision/ada", "k", "digest-1", "uid-1", NOW) == ("digest-1", "uid-1")
        assert await claim("vision/ada", "k", "digest-2", "uid-2", NOW) == ("digest-1", "uid-1")
        assert await claim("vision/bob", "k", "digest-3", "uid-3", NOW) == ("digest-3", "uid-3")
        claims = (claim("s", "many", f"digest-{turn}", f"uid-{turn}", NOW) for turn in range(20))
        assert len(set(await asyncio.gather(*claims))) == 1

    async def test_keys_expire_after_a_day(self, store: Ledger) -> None:
        claim = store.claim_idempotency_key
        await claim("s", "k", "old", "uid-1", NOW)
        assert await claim("s", "k", "new", "uid-2", NOW + DAY - 1) == ("old", "uid-1")
        assert await claim("s", "k", "new", "uid-2", NOW + DAY) == ("new", "uid-2")

    async def test_keys_last(self, stores: Ledgers) -> None:
        first = await stores.open()
        await first.claim_idempotency_key("s", "k", "digest", "uid-1", NOW)
        await first.close()
        second = await stores.open()
        again = await second.claim_idempotency_key("s", "k", "other", "uid-2", NOW + 1)
        assert again == ("digest", "uid-1")

    async def test_metrics_by_name_in_order(self, store: Ledger) -> None:
        points = [
            MetricPoint(at=NOW + step, step=step, name=name, value=value)
            for step in range(3)
            for name, value in (("loss", 1.0 / (step + 1)), ("lr", math.inf))
        ]
        await store.add_metrics("uid-1", points[:3])
        await store.add_metrics("uid-1", points[3:])
        await store.add_metrics("uid-2", points[:1])
        await store.add_metrics("uid-2", [])
        assert await store.metrics("uid-1") == {"loss": points[::2], "lr": points[1::2]}
        assert await store.metrics("uid-1", names=["loss", "none"]) == {"loss": points[::2]}
        assert await store.metrics("uid-3") == {}
        with pytest.raises(InvalidArgument, match="max_points"):
            await store.metrics("uid-1", max_points=0)

    async def test_values_of_workloads_that_are_gone_are_removed(self, store: Ledger) -> None:
        asked = workload("kept")
        made = await store.create_workload(
            asked, secrets={}, transition=transition(asked, "pending")
        )
        point = MetricPoint(at=NOW, step=0, name="loss", value=1.0)
        for uid in (made.meta.uid, "gone-1", "gone-2"):
            await store.add_metrics(uid, [point])
        assert await store.remove_orphaned_metrics(1) == 1
        assert await store.remove_orphaned_metrics(5) == 1
        assert await store.metrics(made.meta.uid) == {"loss": [point]}
        assert await store.remove_orphaned_metrics(5) == 0

    async def test_a_value_may_be_no_number(self, store: Ledger) -> None:
        await store.add_metrics("uid", [MetricPoint(at=NOW, step=0, name="loss", value=math.nan)])
        ((point,),) = (await store.metrics("uid")).values()
        assert math.isnan(point.value)

    async def test_long_curves_are_thinned_evenly(self, store: Ledger) -> None:
        for start in range(0, 9000, 300):
            points = [
                MetricPoint(at=NOW, step=step, name="loss", value=float(step))
                for step in range(start, start + 300)
            ]
            await store.add_metrics("uid", points)
        await store.add_metrics("uid", [MetricPoint(at=NOW, step=9000, name="loss", value=0.5)])
        await store.add_metrics("uid", [MetricPoint(at=NOW, step=9001, name="loss", value=0.25)])
        curve = (await store.metrics("uid", max_points=100_000))["loss"]
        steps = [point.step for point in curve]
        assert len(steps) <= MOST
        assert steps == [*range(0, 9001, 8), 9001]
        shown = (await store.metrics("uid", max_points=10))["loss"]
        assert len(shown) == 10
        assert (shown[0].step, shown[-1].step) == (0, 9001)

    async def test_settings_are_json_by_key(self, stores: Ledgers) -> None:
        first = await stores.open()
        assert await first.settings() == {}
        await first.put_setting("default_project", "vision")
        await first.put_setting("keys", {"id": [1, None]})
        await first.put_setting("default_project", "speech")
        await first.close()
        expected = {"default_project": "speech", "keys": {"id": [1, None]}}
        assert await (await stores.open()).settings() == expected
