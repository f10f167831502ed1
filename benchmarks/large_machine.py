"""The scheduler service on a machine that is said to have room for hundreds of workspaces.

Only the two figures of the machine's size are made up; everything else is the product's.
"""

from carrel_scheduler.node import machine
from carrel_scheduler.service.main import main as serve

CPU_MILLI = 10_000_000
MEMORY_MIB = 64 * 1024 * 1024

if __name__ == "__main__":
    machine.cpu_milli = lambda *_: CPU_MILLI
    machine.memory_mib = lambda *_: MEMORY_MIB
    serve()
