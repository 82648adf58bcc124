"""`params`: parameters, of attention by matrix."""

from ..options import ShardedModelOptions
from ..question import Question
from .report import params_report

QUESTION = Question(
    "params",
    options=ShardedModelOptions,
    read=lambda model, options: (model,),
    report=params_report,
    example="attncalc params gpt3",
)
