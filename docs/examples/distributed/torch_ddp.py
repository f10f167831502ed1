"""PyTorch DistributedDataParallel under torchrun: on GPUs by NCCL, without by gloo.

carrel submit ddp --workers 2 --gpus 1 --working-dir "$PWD" -- torchrun torch_ddp.py
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import carrel

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0"))  # stands for a larger model
SHARED = os.environ.get("CARREL_CHECKPOINT_DIR", "checkpoints")

cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
rank, workers = dist.get_rank(), dist.get_world_size()
device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
torch.manual_seed(rank)
inputs = torch.randn(256, 8, device=device)
targets = inputs @ torch.arange(8.0, device=device)

model = torch.nn.Linear(8, 1).to(device)
start = 0
before = carrel.checkpoint.restore(directory=SHARED)
if before is not None:
    saved = torch.load(before, map_location=device)
    start = saved["step"]
    model.load_state_dict(saved["model"])
shared_model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(shared_model.parameters(), lr=0.05)
for step in range(start + 1, STEPS + 1):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(shared_model(inputs).squeeze(1), targets)
    loss.backward()
    optimizer.step()
    time.sleep(PAUSE)
    if rank == 0:
        carrel.report(step=step, total=STEPS, loss=loss.item())
        if step % 10 == 0:
            state = {"step": step, "model": model.state_dict()}
            carrel.checkpoint.save(
                lambda path, state=state: torch.save(state, path), step=step, directory=SHARED
            )
print(f"worker {rank} of {workers}: loss {loss.item():.6f} after steps {start + 1} to {STEPS}")
dist.destroy_process_group()
