"""Sweeps: every cell of several axes, such as models, contexts and GPUs, as a row of figures."""
