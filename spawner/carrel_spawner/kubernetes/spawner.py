"""The Hub's spawner on a cluster: KubeSpawner's pods at the places that Carrel's scheduler gives.

The life of a workspace is that of one machine (``base``). Once the scheduler has a place, the
pod is made with the id of the task that holds it; the scheduler binds it there. Its name is made
from that id, too, so a pod that is there already is the one that was asked for before an answer was
lost or the Hub restarted, and is taken over. What opens a door lies in a secret of the same name,
written before the place is waited for: whoever goes on with the start finds the tokens there.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kubernetes_asyncio.client.rest import ApiException
from kubespawner.spawner import KubeSpawner
from traitlets import Bool, Integer, List, Unicode, default
from typing_extensions import override

from carrel.models import Workload
from carrel_schema import shared_gpus
from carrel_schema.names import PROJECT, label, mig_resource, namespace_of
from carrel_spawner.base import WorkspaceSpawner
from carrel_spawner.connections import probing_session, wait_for_answer
from carrel_spawner.kubernetes import manifests, messages
from carrel_spawner.kubernetes.manifests import PodAdditions, WorkspaceStorage, complete_pod
from carrel_spawner.options import WorkspaceChoice, WorkspaceProfile
from carrel_spawner.refusal import WorkspaceRefused
from carrel_spawner.rendering import join_url
from carrel_spawner.start import StartStage
from carrel_spawner.workspace import PROFILE, Address, HubLaunch

HOME: Final = "/home/carrel"
SHARED: Final = f"{HOME}/project"
USER: Final = 1000
SAVING_SECONDS: Final = 30.0

# KubeSpawner has no types.
_Pods: Any = KubeSpawner


class CarrelKubeSpawner(WorkspaceSpawner, KubeSpawner):  # type: ignore[misc] # it is untyped
    """Workspaces as pods of their project's namespace.

    Defaults are those that pass the ``restricted`` pod security standard, with Carrel's own image.
    """

    awaited = (StartStage.PLACED, StartStage.UP)
    placed: Workload | None = None
    """The workload of this start, once it has a place."""
    _secret: dict[str, Any] | None = None

    gpu_resource = Unicode(
        "nvidia.com/gpu", help="What the cluster calls a GPU in requests and limits."
    ).tag(config=True)
    gpu_image = Unicode(
        "",
        help="Image of what prepares the limiter of GPU memory in workspaces with a share of a "
        "GPU: one with Carrel in it; empty: the workspace's own.",
    ).tag(config=True)
    limits_gpu_memory = Bool(
        default_value=True,
        help="Whether workspaces with a share of a GPU are kept within their part of its memory.",
    ).tag(config=True)
    project_volume = Unicode(
        "project",
        help="Claim of the volume that a project's members share, made where it is missing; "
        "empty: they share none.",
    ).tag(config=True)
    project_volume_capacity = Unicode("100Gi", help="Its size when it is made.").tag(config=True)
    project_volume_class = Unicode("", help="Its storage class; empty: the usual one.").tag(
        config=True
    )
    project_volume_access_modes = List(
        Unicode(), ["ReadWriteMany"], help="How many nodes may use it at once."
    ).tag(config=True)
    project_volume_path = Unicode(SHARED, help="Where workspaces see it.").tag(config=True)
    home_path = Unicode(HOME, help="Where workspaces see their user's own volume.").tag(config=True)
    jobs_run_beside = Bool(
        default_value=False,
        help="Whether jobs see those volumes of a workspace, too, that a single node may use; they "
        "run on its node then.",
    ).tag(config=True)
    news_seconds = Integer(1, help="How often the cluster's events are looked at.").tag(config=True)

    @property
    def storage(self) -> WorkspaceStorage | None:
        """The project's volume, if it has one."""
        if not self.project_volume:
            return None
        return WorkspaceStorage(
            self.project_volume,
            self.project_volume_capacity,
            self.project_volume_class,
            list(self.project_volume_access_modes),
        )

    @default("cmd")
    def _usual_cmd(self) -> list[str]:
        options = ["--set-up", "--demo"] if self.demo else ["--set-up"]
        return ["python", "-m", "carrel_spawner.launch", *options, "--"]

    @default("pod_name_template")
    def _usual_pod_name(self) -> str:
        return "workspace-{user_server}"

    @default("pvc_name_template")
    def _usual_claim_name(self) -> str:
        return "home-{username}"

    @default("storage_pvc_ensure")
    def _usual_ensuring(self) -> bool:
        return True

    @default("storage_capacity")
    def _usual_capacity(self) -> str:
        return "10Gi"

    @default("storage_access_modes")
    def _usual_access_modes(self) -> list[str]:
        return ["ReadWriteOnce"]

    @default("delete_pvc")
    def _usual_keeping(self) -> bool:
        return False

    @default("volumes")
    def _usual_volumes(self) -> list[dict[str, Any]]:
        claims = {"home": "{pvc_name}"}
        if self.project_volume:
            claims["project"] = self.project_volume
        return [
            {"name": name, "persistentVolumeClaim": {"claimName": claimed}}
            for name, claimed in claims.items()
        ]

    @default("volume_mounts")
    def _usual_mounts(self) -> list[dict[str, Any]]:
        mounts = [{"name": "home", "mountPath": self.home_path}]
        if self.project_volume:
            mounts.append({"name": "project", "mountPath": self.project_volume_path})
        return mounts

    @default("grace_seconds")
    def _usual_grace(self) -> float:
        return SAVING_SECONDS

    @default("delete_grace_period")
    def _usual_deletion(self) -> int:
        return int(SAVING_SECONDS)

    @default("uid")
    def _usual_uid(self) -> int:
        return USER

    @default("gid")
    def _usual_gid(self) -> int:
        return USER

    @default("fs_gid")
    def _usual_fs_gid(self) -> int:
        return USER

    @default("pod_security_context")
    def _usual_pod_security(self) -> dict[str, Any]:
        return {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "fsGroupChangePolicy": "OnRootMismatch",
        }

    @default("container_security_context")
    def _usual_container_security(self) -> dict[str, Any]:
        return {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }

    @default("automount_service_account_token")
    def _usual_account_token(self) -> bool:
        return False

    @property
    @override
    def profiles(self) -> Sequence[WorkspaceProfile]:
        """KubeSpawner's ``profile_list``; for a computed one, its default."""
        listed = _Pods._sorted_dict_values(self, self.profile_list)  # noqa: SLF001 - a base's own
        if callable(listed):
            return ()
        known = _Pods._get_initialized_profile_list(self, listed)  # noqa: SLF001 - the same
        known.sort(key=lambda one: not one.get("default"))
        return [
            WorkspaceProfile(one["slug"], one["display_name"], str(one.get("description", "")))
            for one in known
        ]

    @override
    def launch_spec(self, project: str) -> HubLaunch:
        return HubLaunch(self.port)

    @override
    def take_address(self, address: Address) -> None:
        self.namespace = namespace_of(address.project)
        plain: Any = super()
        slug = plain._expand_user_properties(self.pod_name_template)  # noqa: SLF001 - a base's own
        self.pod_name = f"{slug}-{manifests.name_suffix(address)}"
        self.dns_name = self.dns_name_template.format(namespace=self.namespace, name=self.pod_name)
        # The volume of another namespace is another volume, so it is looked for at every start.
        self._pvc_exists = False

    @override
    async def prepare(self) -> None:
        """The secret. Raises ``WorkspaceRefused``."""
        with self._refusals():
            self._secret = manifests.secret_manifest(self.pod_name, self.get_env(), self._labels())
            await self._put_secret(self._secret)

    @override
    async def start_server(self, workload: Workload) -> str:
        """Make the pod, or take over the one that is there. Raises ``WorkspaceRefused``."""
        self.placed = workload
        chosen = {"profile": workload.labels.get(PROFILE, "")}
        self.user_options = {**(self.user_options or {}), **chosen}
        if not self.api_token:
            await self._go_on()
        telling = asyncio.create_task(self._tell_news())
        try:
            with self._refusals():
                await self._take_numbers()
                await self._ensure_project_volume()
                url = str(await _Pods.start(self))
            page_without_sign_in = join_url(url, self.server.base_url, "api")
            await wait_for_answer(probing_session(), page_without_sign_in)
        finally:
            telling.cancel()
            (trouble_telling,) = await asyncio.gather(telling, return_exceptions=True)
            if isinstance(trouble_telling, Exception):
                self.log.warning(
                    "the events of %s ended early: %r", self._log_name, trouble_telling
                )
        return url

    @override
    async def clean_up(self) -> None:
        try:
            await self._remove_secret()
        except ApiException as error:
            self.log.warning(
                "the secret of %s could not be removed: %s", self._log_name, error.reason
            )

    @override
    async def stop(self, now: bool = False) -> None:
        """Have the scheduler stop it, which gives it time to save; then nothing is left of it."""
        begun = self.address is not None
        await super().stop(now)
        if begun:
            await _Pods.stop(self)
            await self._remove_secret()

    @override
    async def get_pod_manifest(self) -> Any:
        """KubeSpawner's manifest with Carrel's additions."""
        pod = await _Pods.get_pod_manifest(self)
        if self.placed is None:
            raise ValueError("a workspace's pod is made at its place, which it has not got")
        profile = self.placed.spec.mig_profile
        made = any(task.mig_slots for task in self.placed.status.tasks)
        return complete_pod(
            pod,
            PodAdditions(
                labels=self._labels(),
                choice=size_of(self.placed),
                gpu_resource=self.gpu_resource,
                grace_seconds=self.grace_seconds,
                secret=self.pod_name,
                image=self.placed.spec.image,
                environment=self._variables(self.placed),
                limiter=self._limiter(),
                made_instance=made,
                instance="" if made or not profile else mig_resource(profile),
            ),
        )

    def _variables(self, workload: Workload) -> dict[str, str]:
        """Variables that its assets brought, none of the Hub's or of GPUs among them."""
        own = {*self.get_env(), *manifests.OF_GPUS}
        asked = workload.spec.environment.items()
        return {name: text for name, text in asked if name not in own}

    def _limiter(self) -> dict[str, Any] | None:
        if not self.limits_gpu_memory:
            return None
        return shared_gpus.limiter(self.gpu_image or self.image, self.image_pull_policy or "")

    @override
    def get_env(self) -> dict[str, Any]:
        """The Hub's variables and ours."""
        environment = super().get_env()
        if self.address is not None:
            environment["CARREL_PROJECT"] = self.address.project
        places = {self.home_path: (self.pvc_name, self.storage_access_modes)}
        if self.project_volume:
            modes = self.project_volume_access_modes
            places[self.project_volume_path] = (self.project_volume, modes)
        environment["CARREL_VOLUMES"] = manifests.volumes_for_jobs(
            places, beside=self.jobs_run_beside
        )
        return environment

    @override
    async def _make_create_pod_request(self, pod: Any, request_timeout: int) -> bool:
        """A pod of this name is this very task's, so it is kept, not killed."""
        made = bool(await _Pods._make_create_resource_request(self, "pod", pod))  # noqa: SLF001
        if made:
            await self._bind_secret()
        return made

    @override
    async def _start_reflector(
        self, kind: str, reflector_class: Any, replace: bool = False, **kwargs: Any
    ) -> Any:
        known = type(self).reflectors.get(self._get_reflector_key(kind))
        again = replace or (known is not None and is_broken(known))
        return await super()._start_reflector(kind, reflector_class, replace=again, **kwargs)

    async def _go_on(self) -> None:
        """Resume a start of an earlier Hub process: its overrides, and the tokens it wrote down."""
        await self.apply_group_overrides()
        with self._refusals():
            if not await self._has_secret():
                sentence = "The Hub restarted before the workspace was begun. Start it again."
                raise WorkspaceRefused(sentence, reason="restart", status_code=503)

    def _labels(self) -> dict[str, str]:
        return {} if self.address is None else manifests.pod_labels(self.address, self.user.name)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raise errors of the API server as sentences."""
        try:
            yield
        except ApiException as error:
            project = self.address.project if self.address else ""
            raise messages.refusal_of(error, project) from error
        except TimeoutError as error:  # KubeSpawner's own: ours ends a start from outside
            raise messages.timed_out(error) from error

    async def _take_numbers(self) -> None:
        """The directory's numbers of the user, if it has some. Raises ``WorkspaceRefused``."""
        own = await self.client.user_identity(self.user.name)
        if own.problem or own.uid == USER:
            problem = own.problem or f"the uid {USER} is that of other people's workspaces"
            raise WorkspaceRefused(
                f"Your workspace runs under the directory's numbers, and {problem}.",
                reason="numbers",
            )
        if own.uid:
            self.uid, self.gid, self.fs_gid = own.uid, own.gid, own.gid
            self.supplemental_gids = list(own.gids)

    async def _ensure_project_volume(self) -> None:
        if self.storage is None or self.address is None:
            return
        labels = {PROJECT: label(self.address.project)}
        manifest = manifests.volume_claim(self.storage, labels)
        try:
            await self.api.create_namespaced_persistent_volume_claim(self.namespace, manifest)
        except ApiException as error:
            if error.status != 409:
                raise

    async def _put_secret(self, manifest: dict[str, Any]) -> None:
        """Write the secret, replacing one of an earlier attempt."""
        try:
            await self.api.create_namespaced_secret(self.namespace, manifest)
        except ApiException as error:
            if error.status != 409:
                raise
            await self._remove_secret()
            await self.api.create_namespaced_secret(self.namespace, manifest)

    async def _bind_secret(self) -> None:
        """Have the secret go with the pod, also when no Hub is there to remove it."""
        if self._secret is None:  # written by a Hub that is no more
            return
        try:
            pod = await self.api.read_namespaced_pod(self.pod_name, self.namespace)
            manifest = manifests.owned_by_pod(self._secret, self.pod_name, pod.metadata.uid)
            await self.api.replace_namespaced_secret(self.pod_name, self.namespace, manifest)
        except ApiException as error:
            self.log.warning(
                "the secret of %s could not be made part of its pod: %s",
                self._log_name,
                error.reason,
            )
        self._secret = None

    async def _has_secret(self) -> bool:
        """Whether it is there; the Hub may make and delete secrets, not read them."""
        try:
            manifest = manifests.secret_manifest(self.pod_name, {}, self._labels())
            await self.api.create_namespaced_secret(self.namespace, manifest, dry_run="All")
        except ApiException as error:
            if error.status != 409:
                raise
            return True
        return False

    async def _remove_secret(self) -> None:
        try:
            await self.api.delete_namespaced_secret(self.pod_name, self.namespace)
        except ApiException as error:
            if error.status != 404:
                raise

    async def _tell_news(self) -> None:
        """Append the pod's events in the cluster to the scheduler's message."""
        told = 0
        while True:
            await asyncio.sleep(self.news_seconds)
            seen = self.events
            for event in seen[told:]:
                found = messages.event_message(event)
                if found is not None:
                    self.progress_log.post(found.percent, found.sentence)
            told = len(seen)


def size_of(workload: Workload) -> WorkspaceChoice:
    """The size that the scheduler granted, which may differ from a later form."""
    spec = workload.spec
    gib = spec.memory_bytes / 1024**3
    return WorkspaceChoice(workload.project, spec.gpus, spec.cpu_millicores / 1000, gib)


def is_broken(reflector: Any) -> bool:
    """Whether nothing will ever come from a reflector again: its list was refused, its watch ended.

    KubeSpawner shares one for each namespace for the Hub's life and neither gives up nor mends such
    a one: a spawner that gets it from then on sees no pod, for ever. The next who asks replaces it.
    """
    loaded = reflector.first_load_future
    if loaded.done() and (loaded.cancelled() or loaded.exception() is not None):
        return True
    watch = reflector.watch_task
    return watch is not None and watch.done()
