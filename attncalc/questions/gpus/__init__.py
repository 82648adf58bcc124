"""`gpus`: the known GPUs."""
