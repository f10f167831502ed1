"""A rank of an MPI program: adds up what all ranks say."""

import socket

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
# One piece with its newline: ``mpirun`` puts the pieces of all ranks one after the other.
print(f"rank {world.rank} of {world.size} on {socket.gethostname()}: {total}\n", end="", flush=True)
