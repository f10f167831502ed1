"""The same core in virtual time: tests, forecasts, replays and benchmarks."""

from carrel_scheduler.simulation.driver import Simulation
from carrel_scheduler.simulation.jobs import Job

__all__ = ["Job", "Simulation"]
