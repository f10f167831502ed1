"""Sign-in by OpenID Connect: ``oauthenticator``, configured from ``Oidc``.

The provider is asked again with the user's own refresh token. Without one it can be asked only as
long as the access token of the sign-in lasts; then the person signs in again after
``UNCONFIRMED_SECONDS``. A person is known by the ``sub`` of the provider: another one with the same
name here is refused.
"""

import json
import ssl
import time
import urllib.error
import urllib.request
from contextvars import ContextVar
from typing import Any, Final

from oauthenticator.generic import GenericOAuthenticator
from tornado import web
from tornado.httpclient import HTTPClientError
from traitlets import Unicode
from typing_extensions import override

from carrel_hub.directory.authenticator import ASK_AN_ADMIN, DirectoryAuthenticator
from carrel_hub.directory.controller import DirectoryState, DirectoryUnreachableError
from carrel_hub.directory.numbers import posix_identity
from carrel_hub.sign_in import Oidc, read_secret

CONFIRMED_AT: Final = "carrel_confirmed_at"
UNCONFIRMED_SECONDS: Final = 12 * 3600.0
"""The lifetime of a session that the provider offers no way to ask about."""
DISCOVERY_SECONDS: Final = 10.0
TOO_MANY: Final = 429
BASIC: Final = "client_secret_basic"
"""The authentication of clients where a provider says none (OpenID Connect Discovery 1.0, 3)."""
ENDPOINTS: Final = {
    "authorize_url": "authorization_endpoint",
    "token_url": "token_endpoint",
    "userdata_url": "userinfo_endpoint",
}
_trouble: ContextVar[list[str] | None] = ContextVar("trouble", default=None)
"""During one question: what shows that the provider cannot answer, as against that it refuses."""

_refusals: ContextVar[list[web.HTTPError] | None] = ContextVar("refusals", default=None)
"""During one question: our own refusals, which ``oauthenticator`` takes for a refused token."""


class OidcAuthenticator(DirectoryAuthenticator, GenericOAuthenticator):
    """The Hub's sign-in with a provider of OpenID Connect."""

    login_service = Unicode("your organisation", help="What the button says.").tag(config=True)

    @property
    def _provider(self) -> Oidc:
        provider = self.sign_in.provider
        if not isinstance(provider, Oidc):
            raise TypeError(f"sign_in.provider is {type(provider).__name__}, not Oidc")
        return provider

    @override
    def user_info_to_username(self, user_info: dict[str, Any]) -> str:
        """The user name from what the provider sends; called by ``oauthenticator``."""
        provider = self._provider
        name = str(user_info.get(provider.username_claim) or "")
        if not name:
            raise web.HTTPError(
                403,
                f"Your organisation did not say your name (claim {provider.username_claim}). "
                f"{ASK_AN_ADMIN}",
            )
        if provider.strip_domain:
            name = name.removesuffix(f"@{provider.strip_domain}")
        return self.local_name(name)

    @override
    async def update_auth_model(self, auth_model: dict[str, Any]) -> dict[str, Any]:
        """Called at sign-in and for each answer later: refuse, or apply the groups."""
        name = str(auth_model["name"])
        state = auth_model["auth_state"]
        about = state[self.user_auth_state_key]
        await self._check_same_person(name, str(about.get("sub") or ""))
        if _refusals.get() is None:  # somebody signs in; rounds read the table once for all
            await self.table.refresh()
        try:
            auth_model["admin"] = self.admit(name, groups_in(about, self._provider.groups_claim))
        except web.HTTPError as error:
            refusals = _refusals.get()
            if refusals is not None:
                refusals.append(error)
            raise
        provider = self._provider
        claims = (provider.uid_claim, provider.gid_claim, provider.gids_claim)
        numbers = posix_identity(*(about.get(claim) for claim in claims))
        if _refusals.get() is None:
            await self.report_numbers(name, numbers)
        else:
            await self.report_again(name, numbers)
        state[CONFIRMED_AT] = time.time()
        return auth_model

    @override
    async def fetch(
        self, req: Any, label: str = "fetching", parse_json: bool = True, **kwargs: Any
    ) -> Any:
        """Send a request to the provider, and note when there is no answer to rely on."""
        noted = _trouble.get()
        base: Any = super()
        try:
            return await base.fetch(req, label, parse_json, **kwargs)
        except (HTTPClientError, OSError, ValueError) as error:
            code = error.code if isinstance(error, HTTPClientError) else 0
            if noted is not None and (code == TOO_MANY or not 400 <= code < 500):
                noted.append(str(error))
            raise

    @override
    async def ask(self, user: Any) -> DirectoryState:
        """Query with the user's own tokens."""
        state = await user.get_auth_state()
        if not state:
            return DirectoryState.KNOWN  # never signed in this way: an admin made the user
        noted: list[str] = []
        refusals: list[web.HTTPError] = []
        token, refusing = _trouble.set(noted), _refusals.set(refusals)
        base: Any = super()
        try:
            model = await base.refresh_user(user, None)
        except (HTTPClientError, OSError, ValueError) as error:
            raise DirectoryUnreachableError(str(error)) from error
        finally:
            _trouble.reset(token)
            _refusals.reset(refusing)
        if isinstance(model, dict):
            await user.save_auth_state(model["auth_state"])
            return DirectoryState.KNOWN
        if refusals:
            raise refusals[0]
        if noted:
            raise DirectoryUnreachableError(noted[0])
        if state.get("refresh_token"):
            return DirectoryState.SIGN_IN_AGAIN
        late = time.time() - float(state.get(CONFIRMED_AT, 0.0)) > UNCONFIRMED_SECONDS
        return DirectoryState.SIGN_IN_AGAIN if late else DirectoryState.KNOWN

    async def _check_same_person(self, name: str, subject: str) -> None:
        if not subject:
            raise web.HTTPError(403, f"Your organisation did not say who you are. {ASK_AN_ADMIN}")
        user = self.app.users.get(name)
        before = await user.get_auth_state() if user is not None else None
        known = ((before or {}).get(self.user_auth_state_key) or {}).get("sub")
        if known and known != subject:
            self.log.warning("a different person tries to sign in as %s", name)
            raise web.HTTPError(403, f"The user name {name} is another person's. {ASK_AN_ADMIN}")


def groups_in(about: dict[str, Any], claim: str) -> list[str]:
    """The groups in a provider's claims; none where the claim is missing or no list of names."""
    found: Any = about
    for part in claim.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def discover(provider: Oidc) -> dict[str, Any]:
    """The addresses of a provider, and how it wants the secret, as traits of the authenticator.

    Raises ``DirectoryUnreachableError``, which says what is wrong.
    """
    url = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"
    context = ssl.create_default_context(
        cafile=str(provider.ca_file) if provider.ca_file is not None else None
    )
    try:
        with urllib.request.urlopen(url, timeout=DISCOVERY_SECONDS, context=context) as answer:  # noqa: S310 - the settings allow https, and http on loopback
            said = json.load(answer)
        if said["issuer"].rstrip("/") != provider.issuer.rstrip("/"):
            raise DirectoryUnreachableError(
                f"issuer is {provider.issuer!r}, but {url} calls itself {said['issuer']!r}"
            )
        found: dict[str, Any] = {trait: str(said[key]) for trait, key in ENDPOINTS.items()}
        found["basic_auth"] = BASIC in (
            said.get("token_endpoint_auth_methods_supported") or [BASIC]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DirectoryUnreachableError(f"{url} cannot be used: {error}") from error
    return found


def configure(c: Any, provider: Oidc, public_url: str) -> None:
    """Fill the authenticator's section. Raises ``OSError``, ``DirectoryUnreachableError``."""
    section = c.OidcAuthenticator
    section.enable_auth_state = True
    section.client_id = provider.client_id
    section.client_secret = read_secret(provider.client_secret_file)
    section.oauth_callback_url = f"{public_url}/hub/oauth_callback"
    section.scope = provider.scopes
    section.login_service = provider.button
    if provider.ca_file is not None:
        section.http_request_kwargs = {"ca_certs": str(provider.ca_file)}
    for trait, value in discover(provider).items():
        setattr(section, trait, value)
