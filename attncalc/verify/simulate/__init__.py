"""The layers of `verify` on a CUDA device that does not exist: torch's shapes and lifetimes,
without memory.
"""
