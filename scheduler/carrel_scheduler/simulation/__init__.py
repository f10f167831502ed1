"""The same core in virtual time: tests, forecasts, replays and benchmarks."""

from carrel_scheduler.simulation.measures import Measures
from carrel_scheduler.simulation.run import Simulation
from carrel_scheduler.simulation.work import Work

__all__ = ["Measures", "Simulation", "Work"]
