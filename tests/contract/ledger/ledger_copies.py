"""Models and kept checkpoints: numbered, never changed, never numbered again."""

import pytest

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound
from carrel_schema.files import StoredCopy
from contract.ledger.ledger_tools import Ledgers


def copy(name: str, project: str = "vision") -> StoredCopy:
    return StoredCopy(project=project, name=name, metrics={"loss": 0.5}, parameters={"lr": "1"})


class Copies:
    """``add_copy``, ``copies`` and ``remove_copy``."""

    async def test_versions_of_a_model_count_up_and_are_not_given_again(
        self, store: Ledger, stores: Ledgers
    ) -> None:
        made = [await store.add_copy("model", uid, copy("net")) for uid in ("u1", "u2")]
        await store.add_copy("model", "u3", copy("net", "speech"))
        assert [one.copy.version for one in made] == [1, 2]
        await store.remove_copy("u2")
        with pytest.raises(ObjectNotFound):
            await store.remove_copy("u2")
        assert (await store.add_copy("model", "u4", copy("net"))).copy.version == 3
        again = await stores.open()
        found = await again.copies("model", "vision", "net")
        assert [(one.uid, one.copy.version) for one in found] == [("u1", 1), ("u4", 3)]
        assert found[0].copy.metrics == {"loss": 0.5}
        assert {one.uid for one in await again.copies()} == {"u1", "u3", "u4"}

    async def test_the_name_of_a_kept_checkpoint_is_given_once(self, store: Ledger) -> None:
        await store.add_copy("checkpoint", "u1", copy("best"))
        await store.add_copy("model", "u2", copy("best"))
        with pytest.raises(ObjectExists):
            await store.add_copy("checkpoint", "u3", copy("best"))
        assert [one.uid for one in await store.copies("checkpoint")] == ["u1"]
