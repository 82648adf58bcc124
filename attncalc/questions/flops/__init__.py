"""`flops`: FLOPs of a prefill, a decode step or a training step."""

from ..question import Question
from .options import FlopsOptions, read_flops
from .report import flops_report

QUESTION = Question(
    "flops",
    options=FlopsOptions,
    read=read_flops,
    report=flops_report,
    example="attncalc flops llama2-70b --phase decode --context 32K",
    screen={
        "full": "Also show one layer beside those of Table 1 of Vaswani et al. 2017, and with "
        "--explain the formulas of all figures."
    },
    columns={
        "flops_total": "total",
        "flops_attention_projections": "projections",
        "flops_attention_scores": "scores",
        "flops_mlp": "MLP",
        "flops_head": "head",
    },
)
