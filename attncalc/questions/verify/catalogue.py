"""The presets that `attncalc verify` measures without a MODEL.

Many presets have the same layers in other sizes, so that measuring all would take long and show
little. The list stays the same when a preset is added, so that records of several machines can be
compared.
"""

# Every kind of attention that a preset has and `verify` has a torch layer for is in one of them.
CATALOGUE = (
    "bert-base",
    "bert-large",
    "deepseek-v3",
    "falcon-7b",
    "gemma-2b",
    "gemma3-27b",
    "gemma4-26b-a4b",
    "gpt-oss-120b",
    "gpt-oss-20b",
    "gpt2",
    "gpt3",
    "granite4-h-tiny",
    "jamba-1.5-mini",
    "llama2-70b",
    "llama2-7b",
    "llama3-70b",
    "llama3-8b",
    "llama3.1-405b",
    "llama4-maverick",
    "minimax-m1",
    "mistral-7b-v0.1",
    "mixtral-8x7b",
    "qwen3-8b",
    "qwen3-next-80b-a3b",
    "t5-base",
    "transformer-base",
    "transformer-big",
    "whisper-large-v3",
)
# Those of a CPU, which needs minutes for all: MHA, MQA, GQA with windows, Mamba-2, cross-attention
# and MLA.
QUICK = ("gpt2", "gemma-2b", "gpt-oss-20b", "granite4-h-tiny", "t5-base", "deepseek-v3")
