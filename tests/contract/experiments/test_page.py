"""docs/experiments.md does what it says, from search to best."""

import re
from pathlib import Path

import pytest

from contract.experiments.running import VISION, run_python, running

pytestmark = pytest.mark.timeout(1500)

PAGE = Path(__file__).parents[3] / "docs" / "experiments.md"
LISTING = re.compile(r"^`(\w+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


async def test_digits_from_search_to_best(tmp_path: Path) -> None:
    scripts = dict(LISTING.findall(PAGE.read_text()))
    assert list(scripts) == ["digits.py", "search.py", "look.py", "longer.py"]
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    async with running(tmp_path, gpus=3) as lab:
        await lab.project(VISION, gpus=3)
        await run_python(lab, tmp_path, "search.py")
        done = await lab.until_at_rest("digits")
        counts = done.status.experiment
        assert counts is not None
        assert done.status.phase == "succeeded"
        assert (counts.completed + counts.pruned, counts.failed) == (12, 0)
        assert (counts.best_value or 0.0) > 0.9
        said = await run_python(lab, tmp_path, "look.py")
        assert said.startswith(f"12 trials, the best {counts.best_trial} {{'alpha': ")
        said = await run_python(lab, tmp_path, "longer.py")
        assert said == f"digits-long {counts.best_parameters['alpha']}\n"
        await lab.until(lambda one: one.status.phase == "succeeded", "digits-long")
        curve = (await lab.client.metrics(VISION, "digits-long"))["accuracy"]
        assert (curve[-1].step, curve[-1].value > 0.9) == (99, True)
