"""End what a person holds at the Hub: sessions of browsers, tokens, membership.

All of it is rows of the Hub's database, so it can be done with the row of a user alone, before the
Hub serves anybody. Services keep an answer of the Hub for some seconds, see ``AUTH_CACHE_SECONDS``
of each.

The Hub's own cookie names the user and no browser, so a copy of it can be made worthless only for
all browsers of that user at once: signing out of one signs out of all.
"""

from typing import Any, Final

from jupyterhub import orm
from jupyterhub.utils import new_token
from sqlalchemy.orm import object_session

from carrel_hub.scopes import DISABLED_GROUP

# The client of tokens that were asked for by API, on the token page or for a server; all other
# tokens were given to a service for a browser.
_OWN_CLIENT: Final = "jupyterhub"


def end_browser_sessions(user: Any) -> None:
    """End the Hub's session and those of every service, in all browsers. Commit."""
    _end_browser_sessions(user)
    _commit(user)


def end_sessions(user: Any) -> None:
    """End sessions of browsers and remove all tokens but those of running servers. Commit."""
    _end_browser_sessions(user)
    kept = {token.id for token in _server_tokens(user)}
    _remove_tokens(user, kept)
    _commit(user)


def end_all(user: Any) -> None:
    """End sessions and remove all tokens, also those of running servers. Commit."""
    _end_browser_sessions(user)
    _remove_tokens(user, set())
    _commit(user)


def revoke(user: Any) -> None:
    """Remove every right: sessions, tokens, membership of groups. Commit.

    Who is disabled stays so: in a directory they may come back.
    """
    _end_browser_sessions(user)
    _remove_tokens(user, set())
    user.groups = [group for group in user.groups if group.name == DISABLED_GROUP]
    user.admin = False
    _commit(user)


def _commit(user: Any) -> None:
    database: Any = object_session(user)
    database.commit()


def _end_browser_sessions(user: Any) -> None:
    database: Any = object_session(user)
    fresh: Any = new_token
    user.cookie_id = fresh()
    database.query(orm.OAuthCode).filter_by(user_id=user.id).delete()
    tokens = database.query(orm.APIToken).filter_by(user_id=user.id)
    tokens.filter(orm.APIToken.client_id != _OWN_CLIENT).delete()


def _remove_tokens(user: Any, kept: set[int]) -> None:
    database: Any = object_session(user)
    for token in database.query(orm.APIToken).filter_by(user_id=user.id).all():
        if token.id not in kept:
            database.delete(token)


def _server_tokens(user: Any) -> list[Any]:
    """The token that each running server was started with.

    A note can be chosen by whoever makes a token, the time cannot: a server's token is the last one
    with its note that was made before the server was recorded as started.
    """
    database: Any = object_session(user)
    found = []
    for spawner in user.orm_spawners.values():
        if spawner.server is None or spawner.started is None:
            continue
        tokens = database.query(orm.APIToken).filter_by(
            user_id=user.id,
            client_id=_OWN_CLIENT,
            note=f"Server at {spawner.server.base_url}",
        )
        before = tokens.filter(orm.APIToken.created <= spawner.started)
        found += before.order_by(orm.APIToken.created.desc()).limit(1).all()
    return found
