"""Operations on the caller's notifications about their own work."""

from typing import Final

from carrel_scheduler.api.operation import Answer, Call, Operation
from carrel_scheduler.api.principals.access import Access
from carrel_schema.governance.alerts import SubscriptionFields, SubscriptionOut

OWN: Final = "/users/me/notifications"


@Operation("GET", OWN, access=Access.USER, answers={200: SubscriptionOut}, problems=(403, 404))
async def read_own_notifications(call: Call) -> Answer:
    """Read the caller's notification settings, with the state of their delivery."""
    return Answer(await call.services.subscriptions.read(call.visitor.person))


@Operation(
    "PUT",
    OWN,
    access=Access.USER,
    body=SubscriptionFields,
    answers={200: SubscriptionOut},
    problems=(403, 404),
)
async def put_own_notifications(call: Call) -> Answer:
    """Set where to and about which events the caller is notified."""
    made = await call.services.subscriptions.put(call.body, call.visitor.person)
    return Answer(made)


@Operation("DELETE", OWN, access=Access.USER, answers={204: None}, problems=(403, 404))
async def delete_own_notifications(call: Call) -> Answer:
    """Delete the caller's notification settings."""
    await call.services.subscriptions.remove(call.visitor.person)
    return Answer(status=204)


@Operation(
    "POST",
    f"{OWN}/test",
    access=Access.USER,
    answers={200: SubscriptionOut},
    problems=(403, 404, 409),
    audited=False,
)
async def test_own_notifications(call: Call) -> Answer:
    """Send the caller a message now."""
    return Answer(await call.services.subscriptions.test(call.visitor.person))


OPERATIONS: Final = (
    read_own_notifications,
    put_own_notifications,
    delete_own_notifications,
    test_own_notifications,
)
