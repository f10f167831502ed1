"""The operations without HTTP. One ``Services`` belongs to one application."""

from collections.abc import Callable
from dataclasses import dataclass

from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.jobs import ChildLimits
from carrel_scheduler.api.principals.service_accounts import LastUses
from carrel_scheduler.api.services.batches import Batches
from carrel_scheduler.api.services.changes import WorkloadService
from carrel_scheduler.api.services.control import Control
from carrel_scheduler.api.services.copies import Copies
from carrel_scheduler.api.services.departments import Departments
from carrel_scheduler.api.services.event_stream import EventStreams
from carrel_scheduler.api.services.governance.access import AccessRuleService
from carrel_scheduler.api.services.governance.accounting import Accounting
from carrel_scheduler.api.services.governance.alerts import Alerts
from carrel_scheduler.api.services.governance.assets import AssetService
from carrel_scheduler.api.services.governance.audit import AuditLog
from carrel_scheduler.api.services.governance.budgets import BudgetService
from carrel_scheduler.api.services.governance.node_groups import NodeGroupService
from carrel_scheduler.api.services.governance.policies import Policies
from carrel_scheduler.api.services.governance.secrets import Secrets
from carrel_scheduler.api.services.governance.service_accounts import ServiceAccounts
from carrel_scheduler.api.services.governance.templates import Templates
from carrel_scheduler.api.services.governance.users import DirectoryGroups, UserAccounts
from carrel_scheduler.api.services.platform.health import Health
from carrel_scheduler.api.services.platform.retention import RetentionTimes
from carrel_scheduler.api.services.platform.subscriptions import Subscriptions
from carrel_scheduler.api.services.projects import Projects
from carrel_scheduler.api.services.prometheus.metrics import Metrics
from carrel_scheduler.api.services.remedies import Remedies
from carrel_scheduler.api.services.submission import Submission


@dataclass(frozen=True, slots=True)
class Services:
    """The services that operations may use."""

    deps: ApiDependencies
    submission: Submission
    batches: Batches
    control: Control
    copies: Copies
    changes: WorkloadService
    projects: Projects
    departments: Departments
    node_groups: NodeGroupService
    policies: Policies
    templates: Templates
    assets: AssetService
    secrets: Secrets
    access: AccessRuleService
    service_accounts: ServiceAccounts
    users: UserAccounts
    groups: DirectoryGroups
    accounting: Accounting
    budgets: BudgetService
    alerts: Alerts
    health: Health
    retention: RetentionTimes
    subscriptions: Subscriptions
    remedies: Remedies
    streams: EventStreams
    metrics: Metrics
    audit: AuditLog
    document: Callable[[], bytes]

    @classmethod
    def build(
        cls, deps: ApiDependencies, document: Callable[[], bytes], used: LastUses
    ) -> "Services":
        """The services of one application.

        Args:
            deps: what they stand on.
            document: makes the OpenAPI document.
            used: when tokens of service accounts were used last.
        """
        projects, control = Projects(deps), Control(deps.ledger)
        children = ChildLimits(deps.ledger, deps.job_limits)
        budgets = BudgetService(deps)
        policies, assets = Policies(deps, budgets), AssetService(deps)
        return cls(
            deps=deps,
            submission=Submission(deps, projects, children, policies),
            batches=Batches(deps, projects, children, policies),
            control=control,
            copies=Copies(deps),
            changes=WorkloadService(deps, control, policies),
            projects=projects,
            departments=Departments(deps.ledger, deps.access_rules, deps.live),
            node_groups=NodeGroupService(deps),
            policies=policies,
            templates=Templates(deps, assets, policies.records),
            assets=assets,
            access=AccessRuleService(deps),
            budgets=budgets,
            service_accounts=ServiceAccounts(deps, used),
            users=UserAccounts(deps),
            groups=DirectoryGroups(deps),
            accounting=Accounting(deps),
            alerts=Alerts(deps),
            health=Health(deps),
            retention=RetentionTimes(deps),
            subscriptions=Subscriptions(deps),
            secrets=Secrets(deps),
            remedies=Remedies(deps.live.remedies, deps.clock),
            streams=EventStreams(deps),
            metrics=Metrics(deps),
            audit=AuditLog(deps.ledger.audit, deps.clock),
            document=document,
        )
