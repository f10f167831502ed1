"""GPUs of a cluster that several pods share: pods that hold them, and which pods use them."""
