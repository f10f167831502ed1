"""Assets: environments, compute resources and data sources that submissions name."""

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import override

from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.governance.assets import AssetOut

TITLES: Final[Mapping[str, str]] = {
    "environment": "Environments",
    "compute": "Compute resources",
    "data-source": "Data sources",
}
ABOUT: Final[Mapping[str, str]] = {
    "environment": "What runs: an image, a command, variables.",
    "compute": "How much each task gets: GPUs, processors, memory.",
    "data-source": "What work finds: a folder, a volume claim, a Git repository, a bucket.",
}


class AssetsPage(SignedInPage):
    """The page of all assets that the reader's work may use, by type."""

    @override
    async def get(self) -> None:
        """Show them."""
        found = await self.client.list_assets()
        await self.show_managed(
            "admin/assets.html",
            section="assets",
            by_type={kind: [one for one in found if one.type == kind] for kind in TITLES},
            titles=TITLES,
            about=ABOUT,
            says=says,
            note=self.get_query_argument("note", ""),
        )


def says(asset: AssetOut) -> list[tuple[str, Any]]:
    """The fields that an asset sets, as (field, value)."""
    if asset.data is None:
        return sorted(asset.fields.items())
    data = asset.data
    found: list[tuple[str, Any]] = [(data.kind, data.source)]
    more = ("destination", "revision", "secret", "endpoint", "region")
    found += [(name, getattr(data, name)) for name in more if getattr(data, name)]
    return found if data.read_only else [*found, ("read_only", False)]
