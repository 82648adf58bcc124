"""The sizes that llama.cpp has by default."""

MAX_SEQUENCES = 256
"""LLAMA_MAX_SEQ (src/llama-cparams.h)."""
DEFAULT_UBATCH, DEFAULT_BATCH = 512, 2048
"""Defaults of -ub and -b (common/common.h)."""
