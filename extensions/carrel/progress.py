"""Progress bars that the platform sees, for jobs: see ``carrel.job.progress``."""

from carrel.job.progress import tqdm, trange

__all__ = ["tqdm", "trange"]
