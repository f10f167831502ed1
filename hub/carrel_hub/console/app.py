"""The console as a service of the Hub, in a process of its own.

``make_app`` puts the pages together; ``main`` reads the environment that the Hub gives to its
services and serves until it is told to stop.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import aiohttp
from jupyterhub.services.auth import HubOAuth
from tornado.httpserver import HTTPServer
from tornado.log import access_log, app_log, enable_pretty_logging
from tornado.web import Application, StaticFileHandler

from carrel_hub.console.handlers import (
    catalogue,
    compare,
    departments,
    events,
    job,
    log,
    models,
    notifications,
    overview,
    projects,
    session,
    work,
)
from carrel_hub.console.handlers import (
    help as help_pages,
)
from carrel_hub.console.handlers.admin import (
    access,
    alerts,
    analytics,
    assets,
    audit,
    consumption,
    health,
    node_groups,
    people,
    policies,
    project_changes,
    retention,
    secrets,
    service_accounts,
)
from carrel_hub.console.handlers.base import Console
from carrel_hub.console.handlers.submission import folders
from carrel_hub.console.handlers.submission.page import SubmitPage
from carrel_hub.console.rendering import SHARED, SHARED_FILES, STATIC, environment
from carrel_hub.console.settings import ConsoleSettings, Urls
from carrel_hub.service_environment import SettingsError
from carrel_process.listening import inherited, listen

_NAME = r"([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)"
_LARGEST_FORM_BYTES = 1024 * 1024
_LARGEST_HEAD_BYTES = 64 * 1024
# Until a head is complete, from the end of the request before it; Traefik keeps idle connections
# for 90 s. Neither limit concerns answers and websockets.
_HEAD_SECONDS = 120.0
_BODY_SECONDS = 60.0
# Keeps a quiet websocket open through proxies, and finds out who has gone without a word.
_PING_SECONDS = 20
# How long a change of somebody's rights may take to be seen here; the scheduler has its own.
_AUTH_CACHE_SECONDS = 5


def hub_oauth(settings: ConsoleSettings, **more: Any) -> HubOAuth:
    """The Hub as identity provider, from the environment where ``more`` does not say otherwise."""
    return HubOAuth(
        base_url=settings.prefix,
        hub_prefix=settings.hub_prefix,
        api_token=settings.token,
        cache_max_age=_AUTH_CACHE_SECONDS,
        cookie_options={"samesite": "Lax"},
        **more,
    )


class ConsoleApplication(Application):
    """The pages; owns the one HTTP session to the scheduler."""

    def __init__(
        self, settings: ConsoleSettings, hub_auth: HubOAuth, clock: Callable[[], float] = time.time
    ) -> None:
        self._session: aiohttp.ClientSession | None = None
        urls = Urls(settings.prefix, settings.hub_prefix)
        static_prefix = urls.page("static/")
        tornado_settings: dict[str, Any] = {
            "static_path": str(STATIC),
            "static_url_prefix": static_prefix,
        }
        shared = {"static_path": str(SHARED), "static_url_prefix": urls.page("shared/")}
        templates = environment(
            urls,
            lambda name: StaticFileHandler.make_static_url(tornado_settings, name),
            lambda name: StaticFileHandler.make_static_url(shared, name),
        )
        self.console = Console(settings, urls, hub_auth, templates, self.session, clock)
        super().__init__(
            _routes(settings.prefix, self.console),
            default_handler_class=session.NotFoundPage,
            default_handler_args={"console": self.console},
            cookie_secret=_cookie_secret(settings.token),
            xsrf_cookies=True,
            xsrf_cookie_kwargs={"httponly": True, "samesite": "Lax", "path": settings.prefix},
            websocket_ping_interval=_PING_SECONDS,
            websocket_max_message_size=events.LONGEST_MESSAGE_BYTES,
            static_handler_class=session.StaticFiles,
            **tornado_settings,
        )

    def session(self) -> aiohttp.ClientSession:
        """The session, opened inside the event loop when first used."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, resolver=aiohttp.ThreadedResolver()),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def make_app(
    settings: ConsoleSettings, hub_auth: HubOAuth, clock: Callable[[], float] = time.time
) -> ConsoleApplication:
    """The console's application; ``clock`` gives epoch seconds."""
    return ConsoleApplication(settings, hub_auth, clock)


def _routes(prefix: str, console: Console) -> list[Any]:
    arguments = {"console": console}
    one_job = rf"jobs/{_NAME}/{_NAME}"
    one_project = rf"projects/{_NAME}"
    pages: list[tuple[str, Any]] = [
        ("", overview.HomePage),
        ("jobs", work.WorkPage),
        ("cluster", overview.ClusterPage),
        ("queue", overview.QueuePage),
        ("submit", SubmitPage),
        (rf"submit/folders/{_NAME}", folders.FolderList),
        (rf"submit/folders/{_NAME}/([0-9a-f]{{64}})", folders.Chunk),
        ("marked", work.MarkedWork),
        ("compare", compare.ComparePage),
        ("curves", compare.CompareCurves),
        (r"compare\.csv", compare.CompareTable),
        (one_job, job.JobPage),
        (rf"{one_job}/(suspend|resume|extend|rerun)", job.JobVerb),
        (rf"{one_job}/delete", job.JobDeletion),
        (rf"{one_job}/log", log.LogFile),
        ("projects", projects.ProjectsPage),
        (r"projects\.csv", projects.ProjectsTable),
        ("projects-edit", project_changes.MarkedProjectsForm),
        ("new-project", projects.ProjectCreation),
        ("new-department", departments.DepartmentPage),
        (rf"departments/{_NAME}", departments.DepartmentPage),
        (one_project, projects.ProjectPage),
        (rf"{one_project}/members/(add|remove)", projects.MemberForm),
        (rf"{one_project}/delete", projects.ProjectDeletion),
        (rf"{one_project}/models", models.ModelsPage),
        (rf"{one_project}/models/{_NAME}", models.ModelPage),
        ("analytics", analytics.AnalyticsPage),
        ("analytics-curves", analytics.AnalyticsCurves),
        (r"analytics\.csv", analytics.AnalyticsTable),
        ("usage", consumption.ConsumptionPage),
        ("usage-curves", consumption.ConsumptionCurves),
        (r"usage\.(csv|parquet)", consumption.ConsumptionTable),
        ("policies", policies.PoliciesPage),
        (r"(policies|templates|assets)/edit", policies.DocumentPage),
        ("catalogue", catalogue.CataloguePage),
        ("node-groups", node_groups.NodeGroupsPage),
        ("secrets", secrets.SecretsPage),
        ("assets", assets.AssetsPage),
        ("access", access.AccessPage),
        ("service-accounts", service_accounts.ServiceAccountsPage),
        ("health", health.HealthPage),
        ("retention", retention.RetentionPage),
        ("alerts", alerts.AlertsPage),
        ("people", people.PeoplePage),
        ("directory-groups", people.GroupsPage),
        ("audit", audit.AuditLogPage),
        (r"audit\.csv", audit.AuditTable),
        ("reference", help_pages.ReferencePage),
        (r"openapi\.json", help_pages.ReferenceDocument),
        ("notifications", notifications.NotificationsPage),
        ("find", work.FindWork),
        ("help", help_pages.HelpPage),
        ("events", events.EventRelay),
        ("oauth_callback", session.SignInCallback),
        ("sign-in", session.SignInAgain),
    ]
    files = "|".join(re.escape(name) for name in SHARED_FILES)
    return [
        *((rf"{prefix}{path}", handler, arguments) for path, handler in pages),
        (rf"{prefix}shared/({files})", session.StaticFiles, {"path": str(SHARED)}),
    ]


def _cookie_secret(token: str) -> bytes:
    """Derived from the service's token: people stay signed in when the console restarts."""
    return hmac.new(token.encode(), b"carrel console cookies", hashlib.sha256).digest()


def http_server(
    app: ConsoleApplication,
    head_seconds: float = _HEAD_SECONDS,
    body_seconds: float = _BODY_SECONDS,
) -> HTTPServer:
    """A server that closes connections whose requests do not arrive in time."""
    return HTTPServer(
        app,
        xheaders=True,
        max_body_size=_LARGEST_FORM_BYTES,
        max_header_size=_LARGEST_HEAD_BYTES,
        idle_connection_timeout=head_seconds,
        body_timeout=body_seconds,
    )


async def serve(settings: ConsoleSettings, listener: socket.socket | None = None) -> None:
    """Serve until SIGINT or SIGTERM, at ``listener`` or at a socket of its own."""
    app = make_app(settings, hub_oauth(settings))
    server = http_server(app)
    listen(server, settings.host, settings.port, listener)
    app_log.info("The console listens at http://%s:%d", settings.host, settings.port)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    server.stop()
    await server.close_all_connections()
    await app.close()


def main() -> None:
    """Run the console as a JupyterHub service."""
    # After the imports: the compiled modules that they leave behind are for everybody.
    os.umask(0o077)
    listener = inherited()
    enable_pretty_logging()
    # Open pages read themselves again and again: only what went wrong is worth a line.
    access_log.setLevel(logging.WARNING)
    try:
        settings = ConsoleSettings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(f"carrel-console: {error}.")
    asyncio.run(serve(settings, listener))


if __name__ == "__main__":
    main()
