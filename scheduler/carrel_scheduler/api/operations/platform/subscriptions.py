"""Operations on the caller's notifications about their own work."""

from typing import Final

from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_schema.governance.alerts import SubscriptionFields, SubscriptionOut

OWN: Final = "/users/me/notifications"


@Operation(
    "GET", OWN, access=AdmittedCallers.USER, answers={200: SubscriptionOut}, problems=(403, 404)
)
async def read_own_notifications(call: Call) -> Response:
    """Read the caller's notification settings, with the state of their delivery."""
    return Response(await call.services.subscriptions.read(call.visitor.person))


@Operation(
    "PUT",
    OWN,
    access=AdmittedCallers.USER,
    body=SubscriptionFields,
    answers={200: SubscriptionOut},
    problems=(403, 404),
)
async def put_own_notifications(call: Call) -> Response:
    """Set where to and about which events the caller is notified."""
    made = await call.services.subscriptions.put(call.body, call.visitor.person)
    return Response(made)


@Operation("DELETE", OWN, access=AdmittedCallers.USER, answers={204: None}, problems=(403, 404))
async def delete_own_notifications(call: Call) -> Response:
    """Delete the caller's notification settings."""
    await call.services.subscriptions.remove(call.visitor.person)
    return Response(status=204)


@Operation(
    "POST",
    f"{OWN}/test",
    access=AdmittedCallers.USER,
    answers={200: SubscriptionOut},
    problems=(403, 404, 409),
    audited=False,
)
async def test_own_notifications(call: Call) -> Response:
    """Send the caller a message now."""
    return Response(await call.services.subscriptions.test(call.visitor.person))


OPERATIONS: Final = (
    read_own_notifications,
    put_own_notifications,
    delete_own_notifications,
    test_own_notifications,
)
