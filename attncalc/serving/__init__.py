"""Whether a model fits on GPUs: the request, the memory budget, suggestions, bounds on speed, and
log checks.
"""
