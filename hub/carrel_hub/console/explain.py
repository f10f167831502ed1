"""Error pages: from what went wrong to what to do about it."""

from dataclasses import dataclass
from http import HTTPStatus

from tornado.web import HTTPError

from carrel.errors import ApiError, NotSignedIn, UnexpectedAnswer, Unreachable
from carrel_hub.console.settings import Urls


class StaleForm(HTTPError):  # noqa: N818 - reads as the fact it states
    """A form without an XSRF token, or with another user's."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An error page: ``actions`` are pairs of text and address; ``retry`` offers the same again."""

    status: int
    title: str
    detail: str
    actions: tuple[tuple[str, str], ...] = ()
    retry: bool = False


def explain(error: BaseException | None, status: int, urls: Urls) -> Explanation:
    """The page for an error; ``status`` is the one that Tornado would send."""
    if isinstance(error, NotSignedIn):
        return _signed_out(urls)
    if isinstance(error, Unreachable | UnexpectedAnswer):
        return _no_scheduler()
    if isinstance(error, StaleForm):
        return Explanation(
            HTTPStatus.FORBIDDEN,
            "This form is out of date",
            "It was opened before you signed in, or it did not come from this console. Nothing "
            "was done: go back, reload the page and send it again.",
            (("Home", urls.page()),),
        )
    if isinstance(error, ApiError):
        return _by_status(error.status, str(error), urls)
    detail = ""
    if isinstance(error, HTTPError) and error.log_message and status != HTTPStatus.NOT_FOUND:
        detail = _sentence(error.log_message % error.args if error.args else error.log_message)
    return _by_status(status, detail, urls)


def _signed_out(urls: Urls) -> Explanation:
    return Explanation(
        HTTPStatus.UNAUTHORIZED,
        "You are signed out",
        "Your sign-in has ended or is not known here. Sign in again; nothing of yours has stopped.",
        (("Sign in", urls.page("sign-in")),),
    )


def _no_scheduler() -> Explanation:
    return Explanation(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The scheduler does not answer",
        "What runs goes on running, and what waits keeps its place. Try again in a moment; if this "
        "lasts, tell whoever runs this Carrel that the scheduler service is down.",
        retry=True,
    )


def _by_status(status: int, detail: str, urls: Urls) -> Explanation:
    home = ("Home", urls.page())
    if status == HTTPStatus.UNAUTHORIZED:
        return _signed_out(urls)
    if status == HTTPStatus.FORBIDDEN:
        return Explanation(
            status,
            "This is not open to you",
            detail or "Ask an admin to add you to the project that it belongs to.",
            (home, ("Sign in as somebody else", urls.hub("logout"))),
        )
    if status == HTTPStatus.NOT_FOUND:
        return Explanation(
            status,
            "There is nothing here",
            "It may have been deleted, its name may be written differently, or it belongs to a "
            "project that you are not in.",
            (home, ("All my work", urls.page("jobs"))),
        )
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Explanation(
            status,
            "That cannot be done now",
            detail or "The request was not understood. Go back, reload the page and try again.",
            (home,),
        )
    return Explanation(
        status,
        "Something went wrong here",
        "This is a fault of the console or of the Hub, not yours; it has been written to the log. "
        "What runs goes on running.",
        (home,),
        retry=True,
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
