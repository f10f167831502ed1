"""The Hub's handlers of people's tokens, which also report who makes and ends them."""

from typing import Any

from jupyterhub.apihandlers.users import UserTokenAPIHandler, UserTokenListAPIHandler
from typing_extensions import override

from carrel_hub.accounts.audit_reports import origin_of


def report(handler: Any, verb: str, owner: str) -> None:
    """Report that whoever is signed in made or ended a token of ``owner``."""
    reports = getattr(handler.authenticator, "reports", None)
    if reports is not None:
        who = handler.current_user
        origin = origin_of(handler.authenticator, handler)
        reports.add(verb, owner, kind="Token", user="" if who is None else who.name, **origin)


class Tokens(UserTokenListAPIHandler):
    """``/api/users/NAME/tokens``."""

    @override
    async def post(self, user_name: str) -> None:
        """Make one."""
        base: Any = super()
        await base.post(user_name)
        report(self, "create", user_name)


class UserTokenHandler(UserTokenAPIHandler):
    """``/api/users/NAME/tokens/ID``."""

    @override
    def delete(self, user_name: str, token_id: str) -> None:
        """Stop one token; the Hub's own method is not a coroutine."""
        base: Any = super()
        base.delete(user_name, token_id)
        report(self, "delete", user_name)


HANDLERS = [
    (r"/api/users/([^/]+)/tokens", Tokens),
    (r"/api/users/([^/]+)/tokens/([^/]*)", UserTokenHandler),
]
