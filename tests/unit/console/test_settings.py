"""What the console is told by its environment, and the addresses that it writes."""

import pytest
from tornado.web import HTTPError

from carrel.errors import ApiError, NotSignedIn, Unreachable
from carrel_hub.console.explain import StaleForm, explain
from carrel_hub.console.settings import ConsoleSettings, Urls
from carrel_hub.service_environment import SettingsError

ENVIRONMENT = {
    "JUPYTERHUB_SERVICE_PREFIX": "/base/services/console/",
    "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:8061",
    "JUPYTERHUB_BASE_URL": "/base/",
    "JUPYTERHUB_API_TOKEN": "secret-token",
    "JUPYTERHUB_CLIENT_ID": "service-console",
    "CARREL_API_URL": "http://127.0.0.1:9000/services/carrel/",
}
URLS = Urls("/services/console/", "/hub/")


def test_the_hubs_environment_is_read() -> None:
    settings = ConsoleSettings.from_environment(ENVIRONMENT)
    assert settings.prefix == "/base/services/console/"
    assert settings.hub_prefix == "/base/hub/"
    assert (settings.host, settings.port) == ("127.0.0.1", 8061)
    assert settings.api_url == "http://127.0.0.1:9000/services/carrel"
    assert "secret-token" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [("JUPYTERHUB_API_TOKEN", ""), ("JUPYTERHUB_CLIENT_ID", "")]
    + [("JUPYTERHUB_SERVICE_URL", url) for url in ("http://127.0.0.1", "unix:///x", "nonsense")],
)
def test_what_is_missing_or_wrong_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        ConsoleSettings.from_environment(ENVIRONMENT | {name: value})


def test_addresses_are_quoted() -> None:
    assert URLS.job("a/b", "c?d", "delete") == "/services/console/jobs/a%2Fb/c%3Fd/delete"
    assert URLS.project("a b") == "/services/console/projects/a%20b"
    assert URLS.workspace("ada@x", "") == "/user/ada@x/"
    assert URLS.workspace("a/da", "gpu") == "/user/a%2Fda/gpu/"
    assert URLS.hub("spawn") == "/hub/spawn"


@pytest.mark.parametrize(
    ("error", "status", "title"),
    [
        (NotSignedIn("x"), 401, "You are signed out"),
        (Unreachable("x"), 503, "The scheduler does not answer"),
        (ApiError(403, detail="Not a member."), 403, "This is not open to you"),
        (ApiError(404), 404, "There is nothing here"),
        (ApiError(409, detail="It has ended."), 409, "That cannot be done now"),
        (ApiError(502), 502, "Something went wrong here"),
        (StaleForm(403), 403, "This form is out of date"),
        (HTTPError(401), 401, "You are signed out"),
        (ValueError("boom"), 500, "Something went wrong here"),
    ],
)
def test_errors_become_pages_that_say_what_to_do(error: Exception, status: int, title: str) -> None:
    told = explain(error, error.status_code if isinstance(error, HTTPError) else 500, URLS)
    assert (told.status, told.title) == (status, title)
    assert told.detail
    assert told.actions or told.retry


def test_the_apis_own_sentence_is_kept_and_inner_errors_are_not_shown() -> None:
    assert explain(ApiError(409, detail="It has ended."), 500, URLS).detail == "It has ended."
    assert "boom" not in explain(ValueError("boom"), 500, URLS).detail
