"""The commands of the command line, and their functions.

Each entry names a function of this module that imports the commands: one command imports only what
it needs, and importing all of them takes longer than most of them run.
"""

from collections.abc import Callable, Mapping
from typing import Final

from carrel.cli.admin_table import ADMIN_GROUPS, Groups, Verbs


def _of_session() -> Verbs:
    from carrel.cli.commands import session

    return {
        "login": session.login,
        "logout": session.logout,
        "whoami": session.whoami,
        "kubeconfig": session.kubeconfig,
        "version": session.version,
    }


def _of_submit() -> Verbs:
    from carrel.cli.commands import submit

    return {
        "submit": submit.submit,
    }


def _of_jobs() -> Verbs:
    from carrel.cli.commands import jobs

    return {
        "logs": jobs.logs,
        "suspend": jobs.suspend,
        "resume": jobs.resume,
    }


def _of_terminal() -> Verbs:
    from carrel.cli.commands import terminal

    return {
        "bash": terminal.bash,
        "exec": terminal.exec_command,
    }


def _of_files() -> Verbs:
    from carrel.cli.storage import files

    return {
        "cp": files.cp,
        "port-forward": files.port_forward,
        "artifacts": files.artifacts,
        "checkpoints": files.checkpoints,
    }


def _of_notebooks() -> Verbs:
    from carrel.cli.commands import notebooks

    return {
        "run-notebook": notebooks.run_notebook,
        "fetch": notebooks.fetch,
        "schedule": notebooks.schedule,
        "tensorboard": notebooks.tensorboard,
    }


def _of_endpoints() -> Verbs:
    from carrel.cli.commands import endpoints

    return {
        "endpoints": endpoints.list_endpoints,
        "call": endpoints.call,
        "share": endpoints.share,
    }


def _of_cluster() -> Verbs:
    from carrel.cli.commands import cluster

    return {
        "queue": cluster.queue,
        "usage": cluster.usage,
    }


def _of_samples() -> Verbs:
    from carrel.cli.commands.admin import samples

    return {
        "history": samples.history,
    }


def _of_health() -> Verbs:
    from carrel.cli.commands.admin import health

    return {
        "health": health.health,
    }


def _of_ending() -> Verbs:
    from carrel.cli.commands import ending

    return {
        "wait": ending.wait,
        "rerun": ending.rerun,
        "update": ending.update,
        "prune": ending.prune,
    }


def _of_people() -> Verbs:
    from carrel.cli.commands.admin import people

    return {
        "password": people.password,
    }


def _group_list() -> Verbs:
    from carrel.cli.commands import cluster, jobs
    from carrel.cli.commands.admin import templates

    return {
        "jobs": jobs.list_jobs,
        "projects": cluster.list_projects,
        "nodes": cluster.list_nodes,
        "faults": cluster.list_faults,
        "templates": templates.list_templates,
    }


def _group_describe() -> Verbs:
    from carrel.cli.commands import jobs, nodes

    return {
        "job": jobs.describe_job,
        "node": nodes.describe,
    }


def _group_node() -> Verbs:
    from carrel.cli.commands import nodes

    return {
        "uncordon": nodes.uncordon,
        "groups": nodes.list_groups,
    }


def _group_delete() -> Verbs:
    from carrel.cli.commands import jobs

    return {
        "job": jobs.delete_job,
    }


def _group_config() -> Verbs:
    from carrel.cli.commands import session

    return {
        "project": session.config_project,
    }


def _group_top() -> Verbs:
    from carrel.cli.commands import cluster

    return {
        "node": cluster.top_node,
        "job": cluster.top_job,
    }


def _group_experiment() -> Verbs:
    from carrel.cli.commands import experiments

    return {
        "list": experiments.list_experiments,
        "trials": experiments.trials,
        "log": experiments.log,
        "best": experiments.best,
        "export": experiments.export,
    }


def _group_workspace() -> Verbs:
    from carrel.cli.commands import workspaces

    return {
        "list": workspaces.list_workspaces,
        "describe": workspaces.describe,
        "create": workspaces.create,
        "start": workspaces.start,
        "stop": workspaces.stop,
        "clone": workspaces.clone,
        "delete": workspaces.delete,
    }


def _group_model() -> Verbs:
    from carrel.cli.storage import models

    return {
        "register": models.register,
        "list": models.list_models,
        "describe": models.describe,
        "delete": models.delete,
        "download": models.download,
    }


def _group_catalogue() -> Verbs:
    from carrel.cli.commands import catalogue

    return {
        "list": catalogue.list_entries,
        "describe": catalogue.describe,
        "serve": catalogue.serve,
    }


COMMANDS: Final[Mapping[str, Callable[[], Verbs]]] = {
    "login": _of_session,
    "logout": _of_session,
    "whoami": _of_session,
    "kubeconfig": _of_session,
    "submit": _of_submit,
    "logs": _of_jobs,
    "bash": _of_terminal,
    "exec": _of_terminal,
    "cp": _of_files,
    "port-forward": _of_files,
    "artifacts": _of_files,
    "checkpoints": _of_files,
    "suspend": _of_jobs,
    "resume": _of_jobs,
    "run-notebook": _of_notebooks,
    "fetch": _of_notebooks,
    "schedule": _of_notebooks,
    "tensorboard": _of_notebooks,
    "endpoints": _of_endpoints,
    "call": _of_endpoints,
    "share": _of_endpoints,
    "queue": _of_cluster,
    "usage": _of_cluster,
    "history": _of_samples,
    "health": _of_health,
    "wait": _of_ending,
    "password": _of_people,
    "rerun": _of_ending,
    "update": _of_ending,
    "prune": _of_ending,
    "version": _of_session,
}


GROUPS: Final[Groups] = {
    "list": ("List jobs, projects or nodes.", _group_list),
    "describe": ("Show one thing in full.", _group_describe),
    "node": ("Look after nodes.", _group_node),
    "delete": ("Remove things.", _group_delete),
    "config": ("Set defaults.", _group_config),
    "top": ("Show how busy things are.", _group_top),
    "experiment": ("Look into searches for hyperparameters.", _group_experiment),
    "workspace": ("Look after your workspaces.", _group_workspace),
    "model": ("Keep versions of models, of the runs that made them.", _group_model),
    "catalogue": ("Serve models of others.", _group_catalogue),
    **ADMIN_GROUPS,
}
