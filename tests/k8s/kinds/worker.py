"""A member of a gang: meets the others by name, and stays until it is told to finish."""

import os
import pathlib
import socket
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", where[1]))
    others = [server.accept()[0] for _ in range(size - 1)]
else:
    while True:
        try:
            first = socket.create_connection(where, 5)
            break
        except OSError:
            time.sleep(0.1)
print("met as", rank, "of", size, flush=True)
while not (pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"]) / "finish").exists():
    time.sleep(0.05)
