"""`sweep`: a row for every combination of models, contexts, GPUs and other options."""

from typing import Any

from ..question import Question
from .axes import SweepOptions


def _command() -> Any:
    from .command import sweep

    return sweep


QUESTION = Question(
    "sweep",
    example="attncalc sweep llama3-70b qwen3-32b -c 8K,32K,128K -b 1,16,64 --kv-dtype bf16,fp8",
    command=_command,
    options=SweepOptions,
    epilog="Options take lists (8K,32K) and ranges (8:64:8, 1K:128K:x2). For example: {example}",
)
