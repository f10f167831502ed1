"""Authentication of a caller: from the header of a request to a principal of the Hub."""

from collections.abc import Iterator
from contextlib import contextmanager

from carrel_scheduler.api import problems
from carrel_scheduler.api.principals.identity import Identity, IdentityUnavailable, Principal
from carrel_scheduler.api.problems import Code


def token_of(authorization: str) -> str:
    """The token of an ``Authorization`` header; raises ``Unauthenticated``."""
    scheme, _, token = authorization.strip().partition(" ")
    token = token.strip()
    if scheme.lower() not in ("token", "bearer") or not token:
        raise problems.Unauthenticated(
            "Send a JupyterHub token as `Authorization: token …`; the Hub's token page makes one"
        )
    return token


async def principal_of(identity: Identity, token: str) -> Principal:
    """The owner of a token.

    Raises ``Unauthenticated`` or, with the Hub down, ``ServiceUnavailable``.
    """
    with asking_the_hub():
        principal = await identity.user_for_token(token)
    if principal is None:
        raise problems.Unauthenticated("The Hub does not know this token (expired or revoked?)")
    return principal


@contextmanager
def asking_the_hub() -> Iterator[None]:
    """Around what needs an answer of the Hub; raises ``ServiceUnavailable`` when there is none."""
    try:
        yield
    except IdentityUnavailable as error:
        raise problems.ServiceUnavailable(
            Code.HUB_UNAVAILABLE,
            "JupyterHub does not answer, so nobody can be identified; try again in a moment",
            headers={"Retry-After": "5"},
        ) from error
