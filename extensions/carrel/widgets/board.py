"""The view of a TensorBoard: a link, and its own page below where browsers show it there.

The page comes from the TensorBoard's own origin, never from JupyterLab's. Browsers send its cookie
in a frame where both are hosts of one site, which names below ``localhost`` are not.
"""

import os

import traitlets

from carrel.client import Client
from carrel.client.resources.endpoints import path_of, prefix_of
from carrel.models import Workload
from carrel.web_isolation import SEPARATE_ORIGINS
from carrel.widgets import bundle
from carrel.widgets.job import JobView


class TensorBoardView(JobView):
    """State, reason and buttons, with the TensorBoard itself once it answers.

    Attributes:
        address: the path at which the gateway leads to it.
        separate_origins: whether it has an origin of its own, without which its page is refused.
    """

    _esm = bundle.module(*bundle.WORK, "board.js")

    address = traitlets.Unicode("").tag(sync=True)
    separate_origins = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(self, client: Client, workload: Workload) -> None:
        super().__init__(client, workload)
        self.address = path_of(prefix_of(client.settings.url), workload.project, workload.name)
        self.separate_origins = os.environ.get(SEPARATE_ORIGINS) == "1"
