"""What an admin sets for workspaces on a cluster; the rest is KubeSpawner's.

Defaults are those that pass the ``restricted`` pod security standard, with Carrel's own image.
"""

from typing import Any, Final

from traitlets import Bool, Integer, List, Unicode, default
from traitlets.config import LoggingConfigurable

from carrel_spawner.kubernetes.belongings import Storage

HOME: Final = "/home/carrel"
SHARED: Final = f"{HOME}/project"
USER: Final = 1000
SAVING_SECONDS: Final = 30.0


class OnCluster(LoggingConfigurable):
    """Traits and usual values of ``CarrelKubeSpawner``; a part of it."""

    # What ``Configured`` brings.
    demo: bool

    gpu_resource = Unicode(
        "nvidia.com/gpu", help="What the cluster calls a GPU in requests and limits."
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
    def storage(self) -> Storage | None:
        """The project's volume, if it has one."""
        if not self.project_volume:
            return None
        return Storage(
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
