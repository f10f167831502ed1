"""The synchronous client: each method runs that of the asynchronous one in the background loop.

Works in scripts, in threads and inside notebooks. Interrupting a call leaves the client usable.
``blocking`` and ``iterating`` make the methods, with the signatures and docstrings of their
originals. Streams are plain iterators; leaving the ``for`` loop early closes the connection.
"""

import functools
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import closing
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from carrel.client.aio import AsyncClient
from carrel.client.loop import BackgroundLoop, shared
from carrel.client.resources.endpoints import AsyncEndpoint
from carrel.client.resources.map import (
    DEFAULT_WORKERS,
    ItemT,
    ResultT,
    bar,
    bodies_of,
    in_order,
    order_of,
)
from carrel.client.resources.warm_map import CallOutcome
from carrel.client.transport import JitteredBackoff
from carrel.models import Forecast, Project, ProjectImpact, Workload

P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The method for plain code: it runs in ``self.loop``, on ``self.aio``."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop: BackgroundLoop = self.loop
        return loop.run(method(self.aio, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Generator[T, None, None]]:
    """``blocking`` for a method that yields."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        loop: BackgroundLoop = self.loop
        return loop.iterate(method(self.aio, *args, **kwargs))

    return call


class Endpoint:
    """``AsyncEndpoint`` for plain code."""

    def __init__(self, endpoint: AsyncEndpoint, loop: BackgroundLoop) -> None:
        self.aio, self.loop = endpoint, loop
        self.url = endpoint.url

    get = blocking(AsyncEndpoint.get)
    post = blocking(AsyncEndpoint.post)
    request = blocking(AsyncEndpoint.request)
    stream = iterating(AsyncEndpoint.stream)


class Client:
    """A client without ``await``; see ``AsyncClient`` for arguments and errors.

    Closes its connections when it is no longer used, or at the end of the process.

    Attributes:
        aio: the asynchronous client behind it; use it only inside ``loop``.
        loop: the event loop, in a thread of its own, where it lives.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        pauses: JitteredBackoff | None = None,
        few_requests: bool = False,
    ) -> None:
        self.aio = AsyncClient(
            url, token, timeout=timeout, pauses=pauses, few_requests=few_requests
        )
        self.settings = self.aio.settings
        self.loop: BackgroundLoop = shared()
        self._finalizer = weakref.finalize(self, _close, self.loop, self.aio)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._finalizer.detach()
        self.loop.run(self.aio.close())

    # Overloads do not pass through ``blocking``, so these are written out.
    @overload
    def create_workload(
        self,
        body: Mapping[str, Any],
        *,
        dry_run: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> Workload: ...
    @overload
    def create_workload(
        self,
        body: Mapping[str, Any],
        *,
        dry_run: Literal[True],
        idempotency_key: str | None = None,
    ) -> Forecast: ...
    @functools.wraps(AsyncClient.create_workload)
    def create_workload(self, *args: Any, **kwargs: Any) -> Workload | Forecast:
        """See ``AsyncClient.create_workload``."""
        answer: Workload | Forecast = self.loop.run(self.aio.create_workload(*args, **kwargs))
        return answer

    @overload
    def update_project(
        self, project: str, changes: Mapping[str, Any], *, dry_run: Literal[False] = False
    ) -> Project: ...
    @overload
    def update_project(
        self, project: str, changes: Mapping[str, Any], *, dry_run: Literal[True]
    ) -> ProjectImpact: ...
    @functools.wraps(AsyncClient.update_project)
    def update_project(self, *args: Any, **kwargs: Any) -> Project | ProjectImpact:
        """See ``AsyncClient.update_project``."""
        answer: Project | ProjectImpact = self.loop.run(self.aio.update_project(*args, **kwargs))
        return answer

    @overload
    def rerun(
        self,
        project: str,
        name: str,
        changes: Mapping[str, Any] | None = None,
        *,
        dry_run: Literal[False] = False,
    ) -> Workload: ...
    @overload
    def rerun(
        self,
        project: str,
        name: str,
        changes: Mapping[str, Any] | None = None,
        *,
        dry_run: Literal[True],
    ) -> Forecast: ...
    @functools.wraps(AsyncClient.rerun)
    def rerun(self, *args: Any, **kwargs: Any) -> Workload | Forecast:
        """See ``AsyncClient.rerun``."""
        answer: Workload | Forecast = self.loop.run(self.aio.rerun(*args, **kwargs))
        return answer

    submit_many = blocking(AsyncClient.submit_many)
    get_workload = blocking(AsyncClient.get_workload)
    list_workloads = blocking(AsyncClient.list_workloads)
    workload_page = blocking(AsyncClient.workload_page)
    delete_workload = blocking(AsyncClient.delete_workload)
    update = blocking(AsyncClient.update)
    children = blocking(AsyncClient.children)
    dependents = blocking(AsyncClient.dependents)
    suspend = blocking(AsyncClient.suspend)
    resume = blocking(AsyncClient.resume)
    extend = blocking(AsyncClient.extend)
    claim = blocking(AsyncClient.claim)
    report = blocking(AsyncClient.report)
    logs = iterating(AsyncClient.logs)
    history = blocking(AsyncClient.history)
    remedies = blocking(AsyncClient.remedies)
    metrics = blocking(AsyncClient.metrics)
    events = iterating(AsyncClient.events)
    exec = blocking(AsyncClient.exec)
    run_command = blocking(AsyncClient.run_command)
    wait = blocking(AsyncClient.wait)
    as_completed = iterating(AsyncClient.as_completed)
    result = blocking(AsyncClient.result)

    whoami = blocking(AsyncClient.whoami)
    cluster_access = blocking(AsyncClient.cluster_access)
    list_projects = blocking(AsyncClient.list_projects)
    get_project = blocking(AsyncClient.get_project)
    create_project = blocking(AsyncClient.create_project)
    delete_project = blocking(AsyncClient.delete_project)
    members = blocking(AsyncClient.members)
    add_member = blocking(AsyncClient.add_member)
    remove_member = blocking(AsyncClient.remove_member)
    update_projects = blocking(AsyncClient.update_projects)
    preview_projects = blocking(AsyncClient.preview_projects)
    list_departments = blocking(AsyncClient.list_departments)
    quota_findings = blocking(AsyncClient.quota_findings)
    preview_department = blocking(AsyncClient.preview_department)
    put_department = blocking(AsyncClient.put_department)
    delete_department = blocking(AsyncClient.delete_department)
    openapi = blocking(AsyncClient.openapi)
    audit_entries = blocking(AsyncClient.audit_entries)
    all_audit_entries = iterating(AsyncClient.all_audit_entries)
    verify_audit_log = blocking(AsyncClient.verify_audit_log)
    retention = blocking(AsyncClient.retention)
    put_retention = blocking(AsyncClient.put_retention)
    audit_settings = blocking(AsyncClient.audit_settings)
    put_audit_settings = blocking(AsyncClient.put_audit_settings)
    add_audit_events = blocking(AsyncClient.add_audit_events)
    list_policies = blocking(AsyncClient.list_policies)
    get_policy = blocking(AsyncClient.get_policy)
    put_policy = blocking(AsyncClient.put_policy)
    delete_policy = blocking(AsyncClient.delete_policy)
    effective_policy = blocking(AsyncClient.effective_policy)
    catalogue = blocking(AsyncClient.catalogue)
    list_templates = blocking(AsyncClient.list_templates)
    get_template = blocking(AsyncClient.get_template)
    put_template = blocking(AsyncClient.put_template)
    delete_template = blocking(AsyncClient.delete_template)
    usage_report = blocking(AsyncClient.usage_report)
    usage_series = blocking(AsyncClient.usage_series)
    usage_table = blocking(AsyncClient.usage_table)
    prices = blocking(AsyncClient.prices)
    put_prices = blocking(AsyncClient.put_prices)
    list_service_accounts = blocking(AsyncClient.list_service_accounts)
    put_service_account = blocking(AsyncClient.put_service_account)
    delete_service_account = blocking(AsyncClient.delete_service_account)
    create_service_token = blocking(AsyncClient.create_service_token)
    revoke_service_token = blocking(AsyncClient.revoke_service_token)
    health = blocking(AsyncClient.health)
    put_directory_sync = blocking(AsyncClient.put_directory_sync)
    list_alerts = blocking(AsyncClient.list_alerts)
    list_alert_rules = blocking(AsyncClient.list_alert_rules)
    put_alert_rule = blocking(AsyncClient.put_alert_rule)
    reset_alert_rule = blocking(AsyncClient.reset_alert_rule)
    list_silences = blocking(AsyncClient.list_silences)
    create_silence = blocking(AsyncClient.create_silence)
    delete_silence = blocking(AsyncClient.delete_silence)
    list_channels = blocking(AsyncClient.list_channels)
    put_channel = blocking(AsyncClient.put_channel)
    test_channel = blocking(AsyncClient.test_channel)
    delete_channel = blocking(AsyncClient.delete_channel)
    own_notifications = blocking(AsyncClient.own_notifications)
    put_own_notifications = blocking(AsyncClient.put_own_notifications)
    delete_own_notifications = blocking(AsyncClient.delete_own_notifications)
    test_own_notifications = blocking(AsyncClient.test_own_notifications)
    list_budgets = blocking(AsyncClient.list_budgets)
    put_budget = blocking(AsyncClient.put_budget)
    delete_budget = blocking(AsyncClient.delete_budget)
    list_node_groups = blocking(AsyncClient.list_node_groups)
    create_node_group = blocking(AsyncClient.create_node_group)
    replace_node_group = blocking(AsyncClient.replace_node_group)
    delete_node_group = blocking(AsyncClient.delete_node_group)
    samples = blocking(AsyncClient.samples)
    list_users = blocking(AsyncClient.list_users)
    user = blocking(AsyncClient.user)
    invite_user = blocking(AsyncClient.invite_user)
    update_user = blocking(AsyncClient.update_user)
    act_on_user = blocking(AsyncClient.act_on_user)
    delete_user = blocking(AsyncClient.delete_user)
    user_identity = blocking(AsyncClient.user_identity)
    user_projects = blocking(AsyncClient.user_projects)
    put_user_identity = blocking(AsyncClient.put_user_identity)
    change_password = blocking(AsyncClient.change_password)
    list_directory_groups = blocking(AsyncClient.list_directory_groups)
    map_directory_group = blocking(AsyncClient.map_directory_group)
    unmap_directory_group = blocking(AsyncClient.unmap_directory_group)
    list_assets = blocking(AsyncClient.list_assets)
    get_asset = blocking(AsyncClient.get_asset)
    put_asset = blocking(AsyncClient.put_asset)
    delete_asset = blocking(AsyncClient.delete_asset)
    list_roles = blocking(AsyncClient.list_roles)
    list_access_rules = blocking(AsyncClient.list_access_rules)
    grant_role = blocking(AsyncClient.grant_role)
    revoke_role = blocking(AsyncClient.revoke_role)
    check_permission = blocking(AsyncClient.check_permission)
    list_secrets = blocking(AsyncClient.list_secrets)
    put_secret = blocking(AsyncClient.put_secret)
    delete_secret = blocking(AsyncClient.delete_secret)
    nodes = blocking(AsyncClient.nodes)
    node = blocking(AsyncClient.node)
    faults = blocking(AsyncClient.faults)
    uncordon = blocking(AsyncClient.uncordon)
    queue = blocking(AsyncClient.queue)
    usage = blocking(AsyncClient.usage)
    gpu_use = blocking(AsyncClient.gpu_use)
    activity = blocking(AsyncClient.activity)

    trials = blocking(AsyncClient.trials)
    draft_best = blocking(AsyncClient.draft_best)
    run_best = blocking(AsyncClient.run_best)
    trial_log = blocking(AsyncClient.trial_log)
    study_log = blocking(AsyncClient.study_log)
    share = blocking(AsyncClient.share)
    upload_code = blocking(AsyncClient.upload_code)
    send_folder = blocking(AsyncClient.send_folder)
    send_folder_list = blocking(AsyncClient.send_folder_list)
    send_chunk = blocking(AsyncClient.send_chunk)
    artifacts = blocking(AsyncClient.artifacts)
    checkpoints = blocking(AsyncClient.checkpoints)
    keep_checkpoint = blocking(AsyncClient.keep_checkpoint)
    kept_checkpoints = blocking(AsyncClient.kept_checkpoints)
    delete_kept_checkpoint = blocking(AsyncClient.delete_kept_checkpoint)
    fetch = blocking(AsyncClient.fetch)
    put = blocking(AsyncClient.put)
    forward = blocking(AsyncClient.forward)
    models = blocking(AsyncClient.models)
    model = blocking(AsyncClient.model)
    register_model = blocking(AsyncClient.register_model)
    delete_model = blocking(AsyncClient.delete_model)
    download_model = blocking(AsyncClient.download_model)
    outcomes = iterating(AsyncClient.outcomes)
    warm_outcomes = iterating(AsyncClient.warm_outcomes)

    def endpoint(self, project: str, name: str, route: str = "") -> Endpoint:
        """The endpoint of that name; no request is sent yet."""
        return Endpoint(self.aio.endpoint(project, name, route), self.loop)

    def map(
        self,
        function: Callable[[ItemT], ResultT],
        items: Iterable[ItemT],
        *,
        project: str | None = None,
        name: str | None = None,
        gpus: float = 0,
        progress: bool = True,
        return_exceptions: bool = False,
        keep: bool = False,
        warm: bool = True,
        workers: int = DEFAULT_WORKERS,
        **fields: Any,
    ) -> list[ResultT]:
        """Call a function for each item, in workers that stay; see ``AsyncClient.map``."""
        calls = list(items)
        if warm:
            asked = order_of(self.aio, function, calls, project, name, gpus, workers, fields)
            found = self.warm_outcomes(self.loop.run(asked), keep=keep)
        else:
            single = bodies_of(self.aio, function, calls, project, name, gpus, fields)
            found = self.outcomes(self.loop.run(single), keep=keep)
        outcomes: list[CallOutcome] = []
        with bar(len(calls), show=progress) as shown, closing(found):
            for outcome in found:
                outcomes.append(outcome)
                shown.update()
        return in_order(outcomes, return_exceptions=return_exceptions)


def _close(loop: BackgroundLoop, client: AsyncClient) -> None:
    loop.start(client.close())
