"""The messages to channels: bodies by kind, and their signatures. Pure but for the sending itself.

Webhooks get JSON of our own, Slack-type hooks ``{"text"}``, an Alertmanager the list of its API v2
(``POST /api/v2/alerts``), mail a plain text.
"""

import hashlib
import hmac
import json
import smtplib
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from carrel_schema.governance.alerts import AlertOut, ChannelFields

SEND_SECONDS: Final = 10.0
SIGNATURE: Final = "X-Carrel-Signature"
MALFORMED: Final = "its address, the addresses of mail or the values of its secret are malformed"


class NotDelivered(Exception):  # noqa: N818 - an outcome to tell
    """A message was not accepted; the text has the cause, without secrets."""


async def send(
    session: aiohttp.ClientSession,
    channel: ChannelFields,
    alert: AlertOut,
    secret: Mapping[str, str],
    address: str,
) -> None:
    """Send an alert that fired or resolved to a channel. Raises ``NotDelivered``.

    Args:
        session: to send with.
        channel: to whom.
        alert: of what.
        secret: values of the channel's secret.
        address: of the page that shows alerts.
    """
    url = channel.url
    if channel.kind == "alertmanager":
        url = f"{url.rstrip('/')}/api/v2/alerts"
    await post(session, url, body_of(channel, alert, address), secret)


async def post(
    session: aiohttp.ClientSession, url: str, content: Any, secret: Mapping[str, str]
) -> None:
    """Post JSON, signed and authorised by a secret. Raises ``NotDelivered``."""
    body = json.dumps(content).encode()
    headers = {"Content-Type": "application/json", **_authorization(secret, body)}
    timeout = aiohttp.ClientTimeout(total=SEND_SECONDS)
    try:
        async with session.post(
            url, data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as answer:
            if answer.status >= 300:
                raise NotDelivered(f"it answered {answer.status}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise NotDelivered(f"it cannot be reached ({type(error).__name__})") from error
    except ValueError:  # its text may have the secret
        raise NotDelivered(MALFORMED) from None


def body_of(channel: ChannelFields, alert: AlertOut, address: str) -> Any:
    """The request body for an HTTP channel."""
    if channel.kind == "slack":
        return {"text": f"{title(alert)}\n{alert.summary}\n{address}"}
    if channel.kind == "alertmanager":
        ends = {"endsAt": _time(alert.resolved_at)} if alert.state == "resolved" else {}
        labels = {"alertname": alert.rule, "subject": alert.subject, "severity": alert.severity}
        return [
            {
                "labels": {**labels, "source": "carrel"},
                "annotations": {"summary": alert.summary},
                "startsAt": _time(alert.fired_at),
                "generatorURL": address,
                **ends,
            }
        ]
    return {
        "state": alert.state,
        "rule": alert.rule,
        "subject": alert.subject,
        "severity": alert.severity,
        "summary": alert.summary,
        "since": alert.since,
        "fired_at": alert.fired_at,
        "resolved_at": alert.resolved_at,
        "address": address,
    }


def title(alert: AlertOut) -> str:
    """The line that a person reads first."""
    state = "Resolved" if alert.state == "resolved" else alert.severity.capitalize()
    return f"{state}: {alert.rule} ({alert.subject})"


def send_mail(channel: ChannelFields, subject: str, text: str, secret: Mapping[str, str]) -> None:
    """Send a mail; blocks. Raises ``NotDelivered``."""
    parts = urlsplit(channel.url)
    host, context = parts.hostname or "", ssl.create_default_context()
    if not channel.to:
        raise NotDelivered("it has no addresses of its own")
    near = host in ("localhost", "127.0.0.1", "::1")
    try:
        message = EmailMessage()
        message["Subject"], message["From"] = subject, channel.sender or "carrel@localhost"
        message["To"] = ", ".join(channel.to)
        message.set_content(text)
        server: smtplib.SMTP
        if parts.scheme == "smtps":
            server = smtplib.SMTP_SSL(
                host, parts.port or 465, timeout=SEND_SECONDS, context=context
            )
        else:
            server = smtplib.SMTP(host, parts.port or 587, timeout=SEND_SECONDS)
        with server:
            if parts.scheme == "smtp" and not near:
                server.starttls(context=context)
            if secret.get("username"):
                server.login(secret["username"], secret.get("password", ""))
            server.send_message(message)
    except smtplib.SMTPResponseException as error:
        raise NotDelivered(f"the mail server answered {error.smtp_code}") from error
    except (smtplib.SMTPException, OSError) as error:
        raise NotDelivered(f"the mail server cannot be used ({type(error).__name__})") from error
    except ValueError:  # its text may have the secret
        raise NotDelivered(MALFORMED) from None


def _authorization(secret: Mapping[str, str], body: bytes) -> dict[str, str]:
    found = {}
    if key := secret.get("signing_key"):
        found[SIGNATURE] = f"sha256={hmac.new(key.encode(), body, hashlib.sha256).hexdigest()}"
    if token := secret.get("token"):
        found["Authorization"] = f"Bearer {token}"
    return found


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
