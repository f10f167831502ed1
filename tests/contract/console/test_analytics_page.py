"""The page Analytics."""

import json

from contract.console.site import START, Site, Visitor


async def test_figures_plots_and_table(site: Site) -> None:
    site.scheduler.samples.update(
        times=[START - 600, START - 300], values={"gpus": [8.0, 8.0], "running": [0.0, 0.0]}
    )
    async with Visitor(site, "ada") as ada:
        page = await ada.get("analytics?subject=project/vision&days=7")
        assert "How project/vision was used in the last 7 days." in page.words
        assert "Ready GPUs" in page.words
        assert "Furthest below their quota" in page.words
        curves = json.loads((await ada.get("analytics-curves")).text)
        [run] = curves["runs"]
        assert run["label"] == "there are"
        assert len(run["curves"]["GPUs, hours until now"]) == 2
        assert (await ada.get("analytics?days=8")).status == 400
