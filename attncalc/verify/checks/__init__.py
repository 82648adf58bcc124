"""What is compared: counts that must be equal, peak memory, the kernels' numerics, and a layer's behaviour."""
