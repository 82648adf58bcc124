"""`kv`: the KV cache in total, per sequence and per token."""

from ..question import Question
from .options import KVCacheOptions, read_kv
from .report import kv_report

QUESTION = Question(
    "kv",
    options=KVCacheOptions,
    read=read_kv,
    report=kv_report,
    example="attncalc kv llama2-70b --batch 8 --context 4096",
    columns={
        "kv_cache": "KV cache",
        "kv_cache_per_sequence": "per\nsequence",
        "kv_cache_per_token": "per token,\nat this\ncontext",
        "kv_cache_if_mha": "if MHA",
    },
)
