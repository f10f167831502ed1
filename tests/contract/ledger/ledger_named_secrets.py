"""Named secrets: encrypted, bound to their name, the narrowest scope first."""

import msgspec
import pytest

from carrel_scheduler.ledger.errors import SecretsUnreadable
from carrel_scheduler.ledger.named_secrets import KIND
from carrel_scheduler.ledger.records import Ledger
from carrel_schema.governance.secrets import SecretFields
from carrel_schema.scopes import PLATFORM, Scope
from contract.ledger.ledger_tools import Ledgers

VISION, ADA = Scope("project", "vision"), Scope("user", "ada")
PLANTED = "planted-0815"


class NamedSecretsRules:
    """``Ledger.named_secrets``."""

    async def test_values_are_kept_encrypted_and_never_told(
        self, store: Ledger, stores: Ledgers
    ) -> None:
        fields = SecretFields(data={"TOKEN": PLANTED, "A": "1"}, description="for the hub")
        made = await store.named_secrets.put("hub", VISION, fields, "ada")
        assert (made.keys, made.version, made.changed_by) == (["A", "TOKEN"], 1, "ada")
        (stored,) = await store.scoped.list(KIND)
        assert PLANTED not in bytes(stored.content).decode()
        assert PLANTED not in repr(await store.named_secrets.list())
        again = await stores.open()
        assert await again.named_secrets.values("hub", VISION) == {"TOKEN": PLANTED, "A": "1"}

    async def test_keys_that_are_not_named_are_kept_if_asked(self, store: Ledger) -> None:
        await store.named_secrets.put("hub", ADA, SecretFields(data={"A": "1", "B": "2"}), "ada")
        more = SecretFields(data={"B": "3", "C": "4"}, keep_others=True)
        await store.named_secrets.put("hub", ADA, more, "ada")
        assert await store.named_secrets.values("hub", ADA) == {"A": "1", "B": "3", "C": "4"}
        await store.named_secrets.put("hub", ADA, SecretFields(data={"B": "5"}), "ada")
        assert await store.named_secrets.values("hub", ADA) == {"B": "5"}

    async def test_the_narrowest_scope_that_has_the_name_counts(self, store: Ledger) -> None:
        for scope in (PLATFORM, VISION, ADA):
            fields = SecretFields(data={"where": str(scope)})
            await store.named_secrets.put("hub", scope, fields, "root")
        scopes = (PLATFORM, VISION, ADA)
        assert await store.named_secrets.nearest("hub", scopes) == {"where": "user/ada"}
        await store.named_secrets.remove("hub", ADA)
        assert await store.named_secrets.nearest("hub", scopes) == {"where": "project/vision"}
        assert await store.named_secrets.nearest("hub", (ADA,)) is None

    async def test_values_under_the_name_of_another_secret_are_not_read(
        self, store: Ledger
    ) -> None:
        await store.named_secrets.put("hub", VISION, SecretFields(data={"A": PLANTED}), "ada")
        (stored,) = await store.scoped.list(KIND)
        stolen = msgspec.structs.replace(stored, scope=Scope("user", "eve"))
        await store.scoped.put(stolen, actor="eve")
        with pytest.raises(SecretsUnreadable):
            await store.named_secrets.values("hub", Scope("user", "eve"))
