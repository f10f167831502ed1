"""The Hub's handlers: two that a command line asks without a sign-in, and its person's page."""

import time
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

import msgspec
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.handlers.base import BaseHandler
from tornado import web
from typing_extensions import override

from carrel_hub.accounts.sources import source_of
from carrel_hub.accounts.token_reports import report
from carrel_hub.code_sign_in.codes import (
    SECONDS,
    CodeState,
    PendingCode,
    SignIns,
    TooManyCodes,
    spaced,
)

T = TypeVar("T")
TOKEN_DAYS: Final = 90
PAUSE_SECONDS: Final = 2
LONGEST_BODY: Final = 1_000
GONE: Final = "expired"


class NewSignIn(msgspec.Struct):
    """A command line's request to sign in: the name of its machine."""

    host: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[A-Za-z0-9._-]*$")] = ""


class TokenFields(msgspec.Struct):
    """The fields with which a command line fetches its token."""

    secret: Annotated[str, msgspec.Meta(max_length=200)]


class _SignInHandler(APIHandler):
    """Shared by the addresses for command lines."""

    @override
    def initialize(self, sign_ins: SignIns) -> None:
        """Called by Tornado."""
        self.sign_ins = sign_ins

    def read(self, kind: type[T]) -> T:
        """The body. Raises ``HTTPError`` 400."""
        try:
            return msgspec.json.decode(self.request.body[:LONGEST_BODY], type=kind)
        except msgspec.MsgspecError as error:
            raise web.HTTPError(400, str(error)) from error

    def answer(self, content: dict[str, Any]) -> None:
        """Answer with JSON that no cache stores."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        untyped: Any = self
        untyped.finish(msgspec.json.encode(content))


class NewSignInHandler(_SignInHandler):
    """``POST /hub/api/carrel/sign-ins``."""

    @override
    async def post(self) -> None:
        """Begin a sign-in: answer with its code and its secret."""
        untyped: Any = self
        forwarded = ",".join(self.request.headers.get_list("X-Forwarded-For"))
        peer = str(self.request.remote_ip)
        source = source_of(forwarded, peer, untyped.app.trusted_downstream_ips)
        try:
            secret, made = self.sign_ins.begin(source, self.read(NewSignIn).host)
        except TooManyCodes as error:
            raise web.HTTPError(429, str(error)) from error
        self.set_status(HTTPStatus.CREATED)
        self.answer(
            {
                "secret": secret,
                "code": spaced(made.code),
                "expires_in": int(SECONDS),
                "interval": PAUSE_SECONDS,
            }
        )


class TokenHandler(_SignInHandler):
    """``POST /hub/api/carrel/sign-ins/token``."""

    @override
    async def post(self) -> None:
        """Say what became of it; with the token, once, when it was allowed."""
        found = self.sign_ins.collect(self.read(TokenFields).secret)
        state = GONE if found is None else str(found.state)
        self.answer({"state": state, "token": "" if found is None else found.token})


class CodeHandler(BaseHandler):
    """``/hub/sign-in``: enter the code, see which computer asks, allow or deny."""

    @override
    def initialize(self, sign_ins: SignIns) -> None:
        """Called by Tornado."""
        self.sign_ins = sign_ins

    @web.authenticated
    @override
    async def get(self) -> None:
        """Ask for the code."""
        await self._show()

    @web.authenticated
    @override
    async def post(self) -> None:
        """Show which computer asks; carry out a decision."""
        untyped: Any = self
        person: str = untyped.current_user.name
        try:
            found = self.sign_ins.find(self.get_body_argument("code", ""), person)
        except TooManyCodes as error:
            await self._show(429, problem=str(error))
            return
        if found is None:
            await self._show(
                404, problem="No command line waits with this code. It counts for 10 minutes."
            )
            return
        decision = self.get_body_argument("decision", "")
        if decision == "allow":
            self._allow(found)
            await self._show(done="The command line is signed in. You can close this page.")
        elif decision == "refuse":
            found.state = CodeState.REFUSED
            await self._show(done="The command line is not signed in.")
        else:
            ago = max(0, round(time.monotonic() - found.begun_at))
            await self._show(asking=found, code=spaced(found.code), ago=ago)

    def _allow(self, found: PendingCode) -> None:
        """Make a token of whoever is signed in here."""
        untyped: Any = self
        found.token = untyped.current_user.new_api_token(
            note=f"carrel login{f' on {found.host}' if found.host else ''}",
            expires_in=TOKEN_DAYS * 86_400,
        )
        found.state = CodeState.ALLOWED
        report(self, "create", untyped.current_user.name)

    async def _show(self, status: int = 200, **context: Any) -> None:
        untyped: Any = self
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        shown = {"problem": "", "done": "", "asking": None, "days": TOKEN_DAYS} | context
        untyped.finish(await untyped.render_template("code_sign_in.html", **shown))


def handlers() -> list[tuple[str, type, dict[str, Any]]]:
    """``c.JupyterHub.extra_handlers``."""
    shared = {"sign_ins": SignIns(time.monotonic)}
    return [
        ("/api/carrel/sign-ins", NewSignInHandler, shared),
        ("/api/carrel/sign-ins/token", TokenHandler, shared),
        ("/sign-in", CodeHandler, shared),
    ]
