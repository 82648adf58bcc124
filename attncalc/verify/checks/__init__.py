"""The checks: exact counts, peak memory, the kernels' numerics, and a layer's behaviour."""
