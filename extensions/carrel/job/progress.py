"""``carrel.progress.tqdm``: tqdm as ever, whose bar is also seen from the notebook and the console.

It reports at most once a second: how many are done, of how many, and how fast.
"""

import time
from typing import Any, Final

from tqdm.std import tqdm as _tqdm
from typing_extensions import override

from carrel.job.report import reporter

INTERVAL_SECONDS: Final = 1.0


class tqdm(_tqdm):  # type: ignore[type-arg]  # noqa: N801 - takes the place of tqdm's own
    """Drop-in for ``tqdm.tqdm``; the outermost bar is the job's progress."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._reported_at = 0.0
        super().__init__(*args, **options)

    @override
    def update(self, n: float | None = 1) -> bool | None:
        """Count, show, and report when a second has passed."""
        shown = super().update(n)
        self._report()
        return shown

    @override
    def close(self) -> None:
        """Report the end, then close the bar."""
        if not getattr(self, "_closed_once", False):
            self._closed_once = True
            self._report(last=True)
        super().close()

    def _report(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if getattr(self, "pos", 0) != 0:  # a bar inside another one
            return
        if not last and now - self._reported_at < INTERVAL_SECONDS:
            return
        self._reported_at = now
        facts = self.format_dict
        body: dict[str, Any] = {"done": float(facts["n"]), "unit": str(facts["unit"]).strip()}
        if facts["total"] is not None:
            body["total"] = float(facts["total"])
        elapsed = facts["elapsed"]
        rate = facts["rate"] or (facts["n"] / elapsed if elapsed else None)
        if rate is not None:
            body["rate"] = float(rate)
        reporter().put(body)


def trange(*args: Any, **options: Any) -> Any:
    """``tqdm(range(...))``."""
    return tqdm(range(*args), **options)
