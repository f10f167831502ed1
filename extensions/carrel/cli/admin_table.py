"""The groups of commands that look after things of many people: ``table`` has the others."""

from collections.abc import Callable, Mapping
from typing import Final

Command = Callable[..., None]
Verbs = Mapping[str, Command]
Groups = Mapping[str, tuple[str, Callable[[], Verbs]]]


def _group_people() -> Verbs:
    from carrel.cli.commands.admin import people

    return {
        "list": people.list_people,
        "describe": people.describe,
        "invite": people.invite,
        "revoke-invitation": people.revoke_invitation,
        "disable": people.disable,
        "enable": people.enable,
        "end-sessions": people.end_sessions,
        "update": people.update,
        "delete": people.delete,
    }


def _group_group() -> Verbs:
    from carrel.cli.commands.admin import people

    return {
        "list": people.list_groups,
        "map": people.map_group,
        "unmap": people.unmap_group,
    }


def _group_audit() -> Verbs:
    from carrel.cli.commands.admin import audit

    return {
        "list": audit.list_entries,
        "verify": audit.verify,
        "export": audit.export,
        "settings": audit.settings,
    }


def _group_retention() -> Verbs:
    from carrel.cli.commands.admin import retention

    return {
        "show": retention.show_retention,
        "set": retention.set_retention,
    }


def _group_policy() -> Verbs:
    from carrel.cli.commands.admin import policies

    return {
        "list": policies.list_policies,
        "describe": policies.describe,
        "apply": policies.apply,
        "delete": policies.delete,
        "effective": policies.effective,
    }


def _group_template() -> Verbs:
    from carrel.cli.commands.admin import templates

    return {
        "list": templates.list_templates,
        "describe": templates.describe,
        "apply": templates.apply,
        "delete": templates.delete,
    }


def _group_prices() -> Verbs:
    from carrel.cli.commands.admin import costs

    return {
        "show": costs.show_prices,
        "set": costs.set_prices,
    }


def _group_secret() -> Verbs:
    from carrel.cli.commands.admin import secrets

    return {
        "list": secrets.list_secrets,
        "create": secrets.create,
        "delete": secrets.delete,
    }


def _group_budget() -> Verbs:
    from carrel.cli.commands.admin import costs

    return {
        "list": costs.list_budgets,
        "set": costs.set_budget,
        "delete": costs.delete_budget,
    }


def _group_asset() -> Verbs:
    from carrel.cli.commands.admin import assets

    return {
        "list": assets.list_assets,
        "describe": assets.describe,
        "apply": assets.apply,
        "delete": assets.delete,
    }


def _group_alert() -> Verbs:
    from carrel.cli.commands.admin import alerts

    return {
        "list": alerts.list_alerts,
        "rules": alerts.rules,
        "set-rule": alerts.set_rule,
        "silence": alerts.silence,
        "silences": alerts.silences,
        "unsilence": alerts.unsilence,
        "channels": alerts.channels,
        "set-channel": alerts.set_channel,
        "test-channel": alerts.try_channel,
        "delete-channel": alerts.delete_channel,
    }


def _group_notify() -> Verbs:
    from carrel.cli.commands.admin import alerts

    return {
        "show": alerts.show_own,
        "set": alerts.set_own,
        "test": alerts.test_own,
        "delete": alerts.delete_own,
    }


def _group_service_account() -> Verbs:
    from carrel.cli.commands.admin import service_accounts

    return {
        "list": service_accounts.list_accounts,
        "create": service_accounts.create,
        "token": service_accounts.token,
        "revoke": service_accounts.revoke,
        "delete": service_accounts.delete,
    }


def _group_role() -> Verbs:
    from carrel.cli.commands.admin import access

    return {
        "list": access.list_roles,
        "describe": access.describe_role,
    }


def _group_access() -> Verbs:
    from carrel.cli.commands.admin import access

    return {
        "list": access.list_rules,
        "grant": access.grant,
        "revoke": access.revoke,
        "can-i": access.can_i,
    }


def _group_department() -> Verbs:
    from carrel.cli.commands import departments

    return {
        "list": departments.list_departments,
        "describe": departments.describe,
        "create": departments.create,
        "update": departments.update,
        "delete": departments.delete,
    }


def _group_nodegroup() -> Verbs:
    from carrel.cli.commands.admin import node_groups

    return {
        "list": node_groups.list_groups,
        "describe": node_groups.describe,
        "create": node_groups.create,
        "update": node_groups.update,
        "delete": node_groups.delete,
    }


def _group_project() -> Verbs:
    from carrel.cli.commands import cluster, projects

    return {
        "create": projects.create,
        "update": projects.update,
        "delete": projects.delete,
        "check": projects.check,
        "list": cluster.list_projects,
        "describe": projects.describe,
        "add-user": projects.add_user,
        "remove-user": projects.remove_user,
    }


ADMIN_GROUPS: Final[Groups] = {
    "people": ("Look after the people who may sign in (administrators).", _group_people),
    "group": ("Say what groups of the directory are here (administrators).", _group_group),
    "audit": ("See who changed what (administrators).", _group_audit),
    "retention": ("Say how long what is kept (administrators).", _group_retention),
    "policy": ("Set rules for the fields of submitted work (administrators).", _group_policy),
    "template": ("Keep values for submissions under a name.", _group_template),
    "prices": ("Say what work costs.", _group_prices),
    "secret": ("Keep values that work gets by name.", _group_secret),
    "budget": ("Say how many GPU-hours may be used.", _group_budget),
    "asset": ("Keep environments, compute resources and data sources under names.", _group_asset),
    "alert": ("See what needs attention, and say who is told.", _group_alert),
    "notify": ("Be told of your own work.", _group_notify),
    "service-account": ("Make callers for programs, such as pipelines.", _group_service_account),
    "role": ("Show what roles let people do.", _group_role),
    "access": ("Say who may do what, where.", _group_access),
    "department": ("Manage departments (administrators).", _group_department),
    "nodegroup": ("Say which nodes belong together, and for whom.", _group_nodegroup),
    "project": ("Manage projects (administrators).", _group_project),
}
