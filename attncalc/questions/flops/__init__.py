"""`flops`: FLOPs of a prefill, a decode step or a training step."""
