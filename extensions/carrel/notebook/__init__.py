"""What a notebook does with Carrel: send a cell away, hold the job, look at it."""

from carrel.client.submit import submit
from carrel.notebook.job import Job

__all__ = ["Job", "submit"]
