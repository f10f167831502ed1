"""The contract of ``Ledger`` beyond ``ObjectStore``: rows of the past, fencing, secrets, keys.

Inherit ``LedgerContract`` and give it the fixtures ``stores`` and ``store`` of the object store's
contract, opening a ``Ledger``.
"""

import asyncio
import math
import random
from typing import Any, Protocol

import msgspec
import pytest

from carrel_scheduler.ledger.curves import MOST
from carrel_scheduler.ledger.errors import InvalidArgument, LedgerClosed
from carrel_scheduler.ledger.objects import ReasonInfo, Workload
from carrel_scheduler.ledger.records import Decision, Fenced, Ledger, MetricPoint, Transition
from carrel_scheduler.ledger.store import AlreadyExists, ChangeType, Conflict, NotFound
from carrel_scheduler.ledger.usage import account, spans
from contract.object_store import take, workload

NOW = 1_790_000_000.0
DAY = 86_400.0


class Ledgers(Protocol):
    """Opens the ledger under test."""

    async def open(self, *, keep_changes: int = 50_000) -> Ledger:
        """Another opening of the same data."""
        ...


def transition(obj: Workload, to_phase: str, at: float = NOW, **fields: Any) -> Transition:
    """A change of a workload's phase."""
    return Transition(
        **{
            "at": at,
            "epoch": 1,
            "workload_uid": obj.meta.uid,
            "workload": obj.meta.name,
            "project": obj.meta.project,
            "user": obj.spec.user,
            "kind": obj.spec.kind,
            "attempt": 0,
            "from_phase": obj.status.phase,
            "to_phase": to_phase,
            **fields,
        }
    )


def decision(obj: Workload, cycle: int) -> Decision:
    """A binding."""
    return Decision(
        at=NOW,
        epoch=1,
        cycle=cycle,
        input_version=obj.meta.resource_version,
        action="bind",
        workload_uid=obj.meta.uid,
        workload=obj.meta.name,
        project=obj.meta.project,
        node="node-1",
        devices=(0, 3),
        reason=ReasonInfo(token="Starting", cls="starting", data={"waited": 2.5}),
    )


async def submit(store: Ledger, name: str = "train-1", **secrets: str) -> Workload:
    """A workload as the API creates it."""
    obj = workload(name)
    return await store.create_workload(
        obj, secrets=secrets, transition=transition(obj, "pending", from_phase="")
    )


async def everything(store: Ledger) -> tuple[Any, ...]:
    """All that ``record`` could have written."""
    page = await store.list(Workload)
    return (page.items, page.version, await store.transitions(), await store.decisions())


def without_ids(rows: Any) -> list[Any]:
    """Rows as they were given."""
    return [msgspec.structs.replace(row, id=0) for row in rows]


class Creating:
    """A workload, its first row and its secrets."""

    async def test_create_workload_is_one_step(self, store: Ledger) -> None:
        made = await submit(store, TOKEN="s3cret")
        assert made == await store.get(Workload, "train-1", "vision")
        (row,) = await store.transitions(workload_uid=made.meta.uid)
        assert (row.workload_uid, row.to_phase, row.user) == (made.meta.uid, "pending", "ada")
        assert await store.secrets(made.meta.uid) == {"TOKEN": "s3cret"}

    async def test_a_taken_name_leaves_nothing_behind(self, store: Ledger) -> None:
        made = await submit(store, TOKEN="first")
        before = await everything(store)
        with pytest.raises(AlreadyExists):
            await submit(store, TOKEN="second")
        assert await everything(store) == before
        assert await store.secrets(made.meta.uid) == {"TOKEN": "first"}

    async def test_one_failing_call_does_not_fail_others(self, store: Ledger) -> None:
        await submit(store, "taken")
        names = ["a", "taken", "b", "taken", "c"] * 8
        names = [name if name == "taken" else f"{name}-{turn}" for turn, name in enumerate(names)]
        results = await asyncio.gather(
            *(submit(store, name) for name in names), return_exceptions=True
        )
        for name, result in zip(names, results, strict=True):
            assert isinstance(result, AlreadyExists if name == "taken" else Workload)
        expected = {"taken", *names}
        assert {obj.meta.name for obj in (await store.list(Workload)).items} == expected
        assert {row.workload for row in await store.transitions()} == expected
        changes = await take(store.watch(Workload, 0), len(expected))
        assert {change.object.meta.name for change in changes} == expected

    async def test_what_cannot_be_stored_fails_alone(self, store: Ledger) -> None:
        broken = workload("broken")
        broken.status.metrics = {"loss": math.nan}
        huge = workload("huge")
        rows = [
            transition(huge, "pending", memory_bytes=2**70),
            transition(huge, "pending"),
        ]
        results = await asyncio.gather(
            submit(store, "a"),
            store.create(broken),
            store.create_workload(huge, secrets={}, transition=rows[0]),
            submit(store, "b"),
            return_exceptions=True,
        )
        kinds = [type(result) for result in results]
        assert kinds == [Workload, InvalidArgument, InvalidArgument, Workload]
        names = [obj.meta.name for obj in (await store.list(Workload)).items]
        assert names == ["a", "b"]

    async def test_a_cancelled_caller_disturbs_nobody(self, store: Ledger) -> None:
        calls = [asyncio.ensure_future(submit(store, f"train-{number}")) for number in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        names = {obj.meta.name for obj in (await store.list(Workload)).items}
        for number, result in enumerate(results):
            if number % 2:
                assert isinstance(result, Workload)
                assert f"train-{number}" in names

    async def test_closing_finishes_what_was_asked_for(self, stores: Ledgers) -> None:
        first = await stores.open()
        calls = [asyncio.ensure_future(submit(first, f"train-{number}")) for number in range(50)]
        await asyncio.sleep(0)
        await first.close()
        await asyncio.gather(*calls)
        with pytest.raises(LedgerClosed):
            await submit(first, "late")
        with pytest.raises(LedgerClosed):
            await first.list(Workload)
        await first.close()
        second = await stores.open()
        assert len((await second.list(Workload)).items) == 50


class Recording:
    """``record``: all or nothing, by the present scheduler only."""

    async def test_writes_statuses_and_rows_together(self, store: Ledger) -> None:
        one, two = await submit(store, "one"), await submit(store, "two")
        version = (await store.list(Workload)).version
        epoch = await store.begin_epoch()
        one.status.phase, two.status.phase = "starting", "failed"
        rows = [
            transition(two, "failed"),
            transition(one, "starting", gpu_milli=500, borrowed=True),
        ]
        actions = [decision(one, 1), decision(two, 1)]
        made = await store.record(
            epoch=epoch, statuses=[two, one], transitions=rows, decisions=actions
        )
        assert [obj.meta.name for obj in made] == ["two", "one"]
        assert [obj.status for obj in made] == [two.status, one.status]
        assert list(made) == [await store.get(Workload, name, "vision") for name in ("two", "one")]
        assert without_ids((await store.transitions())[2:]) == rows
        assert without_ids(await store.decisions()) == actions
        changes = await take(store.watch(Workload, version), 2)
        assert [change.object for change in changes] == list(made)

    async def test_status_only_is_taken_from_what_is_given(self, store: Ledger) -> None:
        made = await submit(store)
        given = await store.get(Workload, "train-1", "vision")
        given.status.phase, given.spec.user = "running", "mallory"
        (stored,) = await store.record(epoch=await store.begin_epoch(), statuses=[given])
        assert stored.spec == made.spec
        assert stored.meta.generation == 1

    async def test_nothing_is_written_when_one_thing_is_refused(self, store: Ledger) -> None:
        one, two = await submit(store, "one"), await submit(store, "two")
        epoch = await store.begin_epoch()
        fresh = await store.update(two)
        before = await everything(store)
        rows = {"transitions": [transition(one, "starting")], "decisions": [decision(one, 1)]}
        unknown = workload("unknown")
        unknown.meta.uid = "no-such-uid"
        attempts: list[tuple[type[Exception], dict[str, Any]]] = [
            (Conflict, {"statuses": [one, two]}),
            (Conflict, {"statuses": [one], "removed": [two]}),
            (Conflict, {"statuses": [one, one]}),
            (NotFound, {"statuses": [one, unknown]}),
            (NotFound, {"removed": [one, unknown]}),
            (Fenced, {"statuses": [one, fresh], "epoch": epoch - 1}),
        ]
        for error, given in attempts:
            with pytest.raises(error):
                await store.record(**{"epoch": epoch, **rows, **given})
            assert await everything(store) == before

    async def test_an_older_epoch_is_fenced_out(self, stores: Ledgers) -> None:
        old, new = await stores.open(), await stores.open()
        made = await submit(old)
        first = await old.begin_epoch()
        (made,) = await old.record(epoch=first, statuses=[made])
        second = await new.begin_epoch()
        assert second > first
        before = await everything(new)
        with pytest.raises(Fenced):
            await old.record(epoch=first, statuses=[made], transitions=[transition(made, "failed")])
        with pytest.raises(Fenced):
            await old.record(epoch=first)
        assert await everything(new) == before
        assert len(await new.record(epoch=second, statuses=[made])) == 1

    async def test_concurrent_schedulers_get_different_epochs(self, stores: Ledgers) -> None:
        ledgers = [await stores.open() for _ in range(3)]
        epochs = await asyncio.gather(*(ledger.begin_epoch() for ledger in ledgers * 4))
        assert len(set(epochs)) == 12

    async def test_epochs_last(self, stores: Ledgers) -> None:
        first = await stores.open()
        epoch = await first.begin_epoch()
        await first.close()
        assert await (await stores.open()).begin_epoch() == epoch + 1

    async def test_a_removed_workload_leaves_its_history(self, store: Ledger) -> None:
        kept, gone = await submit(store, "kept", A="1"), await submit(store, "gone", B="2")
        version = (await store.list(Workload)).version
        await store.add_metrics(gone.meta.uid, [MetricPoint(at=NOW, step=1, name="loss", value=1)])
        gone.status.phase = "stopped"
        row = transition(gone, "stopped")
        (last,) = await store.record(
            epoch=await store.begin_epoch(), statuses=[gone], transitions=[row], removed=[gone]
        )
        assert last.status.phase == "stopped"
        assert [obj.meta.name for obj in (await store.list(Workload)).items] == ["kept"]
        assert await store.secrets(gone.meta.uid) == {}
        assert await store.secrets(kept.meta.uid) == {"A": "1"}
        phases = [row.to_phase for row in await store.transitions(workload_uid=gone.meta.uid)]
        assert phases == ["pending", "stopped"]
        assert len((await store.metrics(gone.meta.uid))["loss"]) == 1
        changes = await take(store.watch(Workload, version), 2)
        assert [change.type for change in changes] == [ChangeType.MODIFIED, ChangeType.DELETED]
        assert changes[1].object.status.phase == "stopped"

    async def test_hundreds_at_once(self, store: Ledger) -> None:
        made = await asyncio.gather(*(submit(store, f"train-{number}") for number in range(600)))
        epoch = await store.begin_epoch()
        for obj in made:
            obj.status.phase = "starting"
        stored = await store.record(
            epoch=epoch,
            statuses=made,
            transitions=[transition(obj, "starting") for obj in made],
            decisions=[decision(obj, 1) for obj in made],
        )
        names = [obj.meta.name for obj in stored]
        assert names == [obj.meta.name for obj in made]
        versions = [obj.meta.resource_version for obj in stored]
        assert versions == sorted(set(versions))
        assert len((await store.list(Workload, phases=["starting"])).items) == 600
        assert await store.record(epoch=epoch, removed=stored) == []
        assert not (await store.list(Workload)).items


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


class SmallThings:
    """Secrets, idempotency keys, metrics, settings."""

    async def test_secrets_are_replaced(self, store: Ledger) -> None:
        made = await submit(store, A="1", B="2")
        await store.set_secrets(made.meta.uid, {"B": "3"})
        assert await store.secrets(made.meta.uid) == {"B": "3"}
        await store.set_secrets(made.meta.uid, {})
        assert await store.secrets(made.meta.uid) == {}
        with pytest.raises(NotFound):
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


class LedgerContract(Creating, Recording, Past, SmallThings):
    """Every rule of ``Ledger``."""
