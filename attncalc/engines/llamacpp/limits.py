"""The sizes that llama.cpp has by default."""

MAX_SEQUENCES = 256
"""LLAMA_MAX_SEQ (src/llama-cparams.h)."""
MAX_GPUS = 16
"""llama_max_devices (src/llama.cpp) and GGML_CUDA_MAX_DEVICES (ggml/include/ggml-cuda.h)."""
DEFAULT_UBATCH, DEFAULT_BATCH = 512, 2048
"""Defaults of -ub and -b (common/common.h)."""
MIN_OFFLOADED_ROWS = 32
"""Tokens from which a GPU multiplies by a matrix that is on the host (ggml_backend_cuda_device_offload_op)."""
