"""The Hub's configuration: what settings.yaml says, see carrel_hub.kubernetes.config."""

from carrel_hub.kubernetes.config import load

load(get_config())  # noqa: F821 - JupyterHub's
