"""A scheduler that starts tasks as fast as it can until it is killed.

``starting_child.py STATE NODE ROUND CHECKPOINTS``: each task appends its id to a file.
It says when it is ready, and of the first tasks that they were started.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from carrel_scheduler.engines.contract import TaskId, TaskSpec
from carrel_scheduler.engines.local.engine import LocalEngine

FIRST = 5


async def main(state: str, node: str, number: str) -> None:
    """Start until killed; one task in three is asked to stop at once."""
    engine = LocalEngine(Path(state), node)
    await engine.list()
    print("ready", flush=True)
    for count in itertools.count():
        script = 'echo "$CARREL_TASK_ID" >> "$CARREL_CHECKPOINT_DIR/runs"; sleep 0.05'
        task = TaskSpec(
            id=TaskId(f"r{number}", count, 0),
            name="train",
            project="vision",
            user="ada",
            node=node,
            command=("bash", "-c", script),
        )
        await engine.start(task)
        if count < FIRST:
            print("started", flush=True)
        if count % 3 == 0:
            await engine.stop(task.id, 0.1)


asyncio.run(main(*sys.argv[1:]))
