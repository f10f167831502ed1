"""Alerts: conditions that administrators or users should know of, and the channels for them.

A rule finds conditions, each about one subject (a node, a project, a piece of work, the platform).
What lasts for the rule's time fires once and resolves once. Channels tell of both; silences keep an
alert from being told.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, ShortText, Text

Severity = Literal["info", "warning", "critical"]
RuleName = Literal[
    "idle-gpu",
    "low-use",
    "long-pending",
    "crash-loop",
    "node-lost",
    "gpu-unhealthy",
    "starved-queue",
    "scheduler-lag",
    "disk-full",
    "set-aside",
    "certificate-expiring",
    "budget",
    "not-ready",
    "part-unreachable",
    "channel-failing",
    "directory-silent",
    "backup-old",
]
AlertState = Literal["pending", "firing", "resolved"]
ChannelKind = Literal["webhook", "slack", "alertmanager", "mail"]


MailDomain = Annotated[
    str, Constraint(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9-]+)+$")
]
SubscriptionKind = Literal["mail", "slack", "webhook"]
WorkEvent = Literal["finished", "failed", "preempted", "long-pending", "idle-gpu"]
"""The events of their own work that people can be told of."""


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that says when a condition is an alert.

    Attributes:
        enabled: whether the rule is evaluated.
        severity: of its alerts.
        for_seconds: how long the condition has to last.
        threshold: what counts; its unit depends on the rule, see ``ABOUT``.
    """

    enabled: bool = True
    severity: Severity = "warning"
    for_seconds: Annotated[float, Constraint(ge=0, le=7 * 86_400)] = 300.0
    threshold: Annotated[float, Constraint(ge=0, le=1e6)] = 0.0


class RuleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a rule.

    Attributes:
        unit: of its threshold; empty: it has none.
        action: what to do about what it found.
    """

    description: str
    unit: str
    default: AlertRule
    action: str


ABOUT: Final[Mapping[RuleName, RuleDescription]] = {
    "idle-gpu": RuleDescription(
        description="A GPU is allocated and does nothing.",
        unit="minutes without work on it",
        default=AlertRule(threshold=30, for_seconds=0),
        action="Ask its owner to stop it, or set an idle limit for the project.",
    ),
    "low-use": RuleDescription(
        description="The GPUs of running work are hardly used.",
        unit="percent of utilization, mean of the last hour",
        default=AlertRule(severity="info", threshold=10, for_seconds=3600),
        action="Ask its owner whether a fraction of a GPU would do.",
    ),
    "long-pending": RuleDescription(
        description="Work has been pending for long.",
        unit="hours since it was queued",
        default=AlertRule(severity="info", threshold=24, for_seconds=0),
        action="Read its reason: ask for less, or raise the quota of its project.",
    ),
    "crash-loop": RuleDescription(
        description="Work fails again and again and is retried.",
        unit="failures",
        default=AlertRule(threshold=3, for_seconds=0),
        action="Read the end of its log, and stop it until the cause is found.",
    ),
    "node-lost": RuleDescription(
        description="A node is silent, gone or not ready.",
        unit="",
        default=AlertRule(severity="critical", for_seconds=120),
        action="Start the machine, or what reports it; work that ran there begins again elsewhere.",
    ),
    "gpu-unhealthy": RuleDescription(
        description="A GPU was taken out of service by a health check.",
        unit="",
        default=AlertRule(severity="critical", for_seconds=0),
        action="Look at the GPU (`nvidia-smi -q`), then `carrel node uncordon NODE/GPU`.",
    ),
    "starved-queue": RuleDescription(
        description="A project has less than its quota while its work is pending.",
        unit="",
        default=AlertRule(for_seconds=1800),
        action="`carrel project check` says which guarantees cannot all be kept.",
    ),
    "scheduler-lag": RuleDescription(
        description="The scheduler is late with what it has to process.",
        unit="seconds since it last looked at its inputs",
        default=AlertRule(severity="critical", threshold=30, for_seconds=60),
        action="Look at the processor and the disk of the scheduler, and at its metrics.",
    ),
    "disk-full": RuleDescription(
        description="The disk of the state folder is nearly full.",
        unit="percent used",
        default=AlertRule(severity="critical", threshold=90, for_seconds=300),
        action="Add room, delete what is not needed, or keep less (`carrel retention show`).",
    ),
    "set-aside": RuleDescription(
        description="The scheduler has set inputs aside, or found an invariant violated.",
        unit="inputs",
        default=AlertRule(threshold=1, for_seconds=300),
        action="`carrel list faults` names them; each is tried again when it changes.",
    ),
    "budget": RuleDescription(
        description="A budget of GPU-hours is nearly used up.",
        unit="percent used",
        default=AlertRule(threshold=80, for_seconds=0),
        action="Raise the budget, or tell its people that it ends.",
    ),
    "certificate-expiring": RuleDescription(
        description="The TLS certificate of the front expires soon.",
        unit="days left",
        default=AlertRule(threshold=14, for_seconds=0),
        action="Put a new certificate into the file of --tls-cert.",
    ),
    "not-ready": RuleDescription(
        description="Nothing can be started: the ledger or the cluster does not take writes.",
        unit="",
        default=AlertRule(severity="critical", for_seconds=60),
        action="Look at the disk of the ledger, or at the cluster's API server; its log has more.",
    ),
    "part-unreachable": RuleDescription(
        description="The Hub, the proxy or the gateway does not answer the scheduler.",
        unit="",
        default=AlertRule(severity="critical", for_seconds=120),
        action="Read the log of that part; `carrel up` and Kubernetes start one that has ended.",
    ),
    "channel-failing": RuleDescription(
        description="A channel does not take what it is told.",
        unit="",
        default=AlertRule(for_seconds=900),
        action="`carrel alert test-channel` says why; correct its address or secret.",
    ),
    "directory-silent": RuleDescription(
        description="Rights of people were not compared with the directory for some time.",
        unit="minutes since they were",
        default=AlertRule(threshold=30, for_seconds=0),
        action="Look whether the Hub reaches the directory (LDAP, OIDC); its log says more.",
    ),
    "backup-old": RuleDescription(
        description="The last backup by `carrel backup` is old; none at all is not told.",
        unit="days since the last backup",
        default=AlertRule(threshold=7, for_seconds=0),
        action="Run `carrel backup FILE`, and look at what ran it before.",
    ),
}


class AlertRuleOut(AlertRule, frozen=True, kw_only=True):
    """A rule as it holds, what it finds, and what to do about that."""

    name: str = ""
    description: str = ""
    unit: str = ""
    action: str = ""


class AlertRuleList(Answer, frozen=True, kw_only=True):
    """The alert rules."""

    items: Sequence[AlertRuleOut] = ()


class AlertOut(Answer, frozen=True, kw_only=True):
    """An alert; times in epoch seconds, 0: not yet.

    Attributes:
        rule: that found it.
        subject: what it is about: ``node/NAME``, ``project/NAME``, ``workload/PROJECT/NAME``,
            ``part/NAME``, ``channel/NAME`` or ``platform``.
        since: when its condition began.
        silenced_until: nobody is told before; 0: people are.
    """

    rule: str
    subject: str
    severity: str = "warning"
    state: AlertState = "pending"
    summary: str = ""
    since: float = 0.0
    fired_at: float = 0.0
    resolved_at: float = 0.0
    silenced_until: float = 0.0


class AlertList(Answer, frozen=True, kw_only=True):
    """Alerts that the caller may see, firing ones first."""

    items: Sequence[AlertOut] = ()


class SilenceFields(msgspec.Struct, frozen=True, kw_only=True):
    """A silence as it is written; ``*`` in ``rule`` and ``subject`` stands for anything."""

    until: Annotated[float, Constraint(ge=0, le=1e11)]
    rule: Annotated[str, Constraint(min_length=1, max_length=100)] = "*"
    subject: Annotated[str, Constraint(min_length=1, max_length=300)] = "*"
    comment: Annotated[Text, Constraint(max_length=1000)] = ""


class SilenceOut(Answer, frozen=True, kw_only=True):
    """A silence; it ends by itself."""

    name: str
    rule: str
    subject: str
    until: float
    comment: str = ""
    created_by: str = ""


class SilenceList(Answer, frozen=True, kw_only=True):
    """Silences that have not ended."""

    items: Sequence[SilenceOut] = ()


class ChannelFields(msgspec.Struct, frozen=True, kw_only=True):
    """A channel that messages about alerts are sent to.

    Attributes:
        kind: what is sent where.
        url: of a webhook, a Slack-type hook or an Alertmanager; of mail the server, as
            ``smtps://host:465`` or ``smtp://host:587``, which has to offer STARTTLS.
        secret: name of a secret of the platform: its key ``signing_key`` signs a webhook's body
            (HMAC-SHA256 in ``X-Carrel-Signature``), ``token`` is sent as bearer token, ``username``
            and ``password`` sign in to the mail server.
        to: addresses of mail; ``sender`` the one it comes from.
        severities: of alerts that it is told; none: all.
        send_resolved: whether it is told that an alert is over.
        weekly_report: whether mail or a Slack-type hook is sent what was used in each week.
        people_domains: mail is sent through this server to people about their own work, at
            addresses in these domains, as ``example.org``; none: it is not.
    """

    kind: ChannelKind
    url: Annotated[
        str, Constraint(min_length=1, max_length=2048, pattern=r"^(https?|smtps?)://[^\s\x00]+$")
    ]
    secret: Annotated[ShortText, Constraint(max_length=63)] = ""
    to: Annotated[list[ShortText], Constraint(max_length=50)] = []
    sender: ShortText = ""
    severities: Annotated[list[Severity], Constraint(max_length=3)] = []
    send_resolved: bool = True
    weekly_report: bool = False
    people_domains: Annotated[list[MailDomain], Constraint(max_length=50)] = []


class ChannelOut(Answer, frozen=True, kw_only=True):
    """A channel with the state of its delivery; the URL is without query and credentials."""

    name: str
    kind: str
    url: str
    secret: str = ""
    to: Sequence[str] = ()
    sender: str = ""
    severities: Sequence[str] = ()
    send_resolved: bool = True
    weekly_report: bool = False
    people_domains: Sequence[str] = ()
    waiting: int = 0
    sent_at: float = 0.0
    error: str = ""
    dropped: int = 0


class ChannelList(Answer, frozen=True, kw_only=True):
    """The channels."""

    items: Sequence[ChannelOut] = ()


class SubscriptionFields(msgspec.Struct, frozen=True, kw_only=True):
    """The notification settings of a user about their own work.

    Attributes:
        kind: ``mail``, a Slack-type hook, or a webhook that gets JSON.
        address: of mail, in a domain that administrators allow.
        url: of a hook, in the public network.
        events: of which; none: of nothing for now.
    """

    kind: SubscriptionKind
    address: Annotated[
        str, Constraint(max_length=254, pattern=r"^([A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,189})?$")
    ] = ""
    url: Annotated[str, Constraint(max_length=2048, pattern=r"^(https://[^\s\x00]+)?$")] = ""
    events: Annotated[list[WorkEvent], Constraint(max_length=5)] = []


class SubscriptionOut(Answer, frozen=True, kw_only=True):
    """The caller's notification settings, with the state of their delivery.

    Attributes:
        kind: empty: they are not.
        url: of a hook, without its path, which gives access.
        mail_domains: that addresses of mail may be in; none: no mail is sent to people here.
        waiting: messages that were not taken yet.
        sent_at: when one was taken last, epoch seconds; 0: never.
        error: why the last one was not; empty: it was.
    """

    kind: str = ""
    address: str = ""
    url: str = ""
    events: Sequence[str] = ()
    mail_domains: Sequence[str] = ()
    waiting: int = 0
    sent_at: float = 0.0
    error: str = ""
