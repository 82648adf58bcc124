"""`memory`: activation memory of attention."""

from ..question import Question
from .options import ActivationsOptions, read_memory
from .report import memory_report

QUESTION = Question(
    "memory",
    options=ActivationsOptions,
    read=read_memory,
    report=memory_report,
    example="attncalc memory llama2-70b --context 8192 --dtype bf16",
    columns={
        "score_matrix": "score\nmatrix",
        "peak_math": "math",
        "peak_flash": "flash",
        "peak_efficient": "efficient",
    },
)
