"""Facts and use of the machine's GPUs, real or simulated."""
