"""`train`: whether a training run fits on its GPUs, and what a step costs."""
