"""MPI with mpi4py: each rank adds up its part of a series, all parts become pi.

carrel submit pi --workers 2 --launcher mpi --working-dir "$PWD" -- mpirun -n 2 python mpi_sum.py
"""

import os
import time

from mpi4py import MPI

import carrel

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0"))  # stands for more work
SHARED = os.environ.get("CARREL_CHECKPOINT_DIR", "checkpoints")
TERMS = 10_000

everybody = MPI.COMM_WORLD
rank, ranks = everybody.Get_rank(), everybody.Get_size()
state = None
if rank == 0:
    state = carrel.checkpoint.restore(default={"step": 0, "pi": 0.0}, directory=SHARED)
state = everybody.bcast(state)
start = state["step"]
for step in range(start, STEPS):
    first = step * TERMS
    mine = range(first + rank, first + TERMS, ranks)
    part = sum(4 * (-1) ** n / (2 * n + 1) for n in mine)
    state = {"step": step + 1, "pi": state["pi"] + everybody.allreduce(part)}
    time.sleep(PAUSE)
    if rank == 0:
        carrel.report(step=state["step"], total=STEPS, pi=state["pi"])
        if state["step"] % 10 == 0:
            carrel.checkpoint.save(state, step=state["step"], directory=SHARED)
where = os.environ.get("CARREL_MEMBER", "here")
if rank == 0:
    print(MPI.Get_library_version().partition("\n")[0])
line = f"rank {rank} of {ranks} on {where}: pi is {state['pi']:.6f} after step {start}\n"
print(line, end="", flush=True)  # whole: mpirun puts the pieces of all ranks one after the other
