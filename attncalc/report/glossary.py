"""Terms of the field, each on one screen: what it means, its formula, and an example to redo by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import AttncalcError, did_you_mean
from ..quantity import Quantity
from ..records import NamedTuple
from ..units import NO_UNIT, truncate
from .figures import FigureRow, FigureRows
from .report import Column, Report, Table


class Term(NamedTuple):
    """A term."""

    title: str  # its name in words
    also: tuple[str, ...]  # other names by which people ask for it
    meaning: str  # what it is, in short sentences
    formula: tuple[str, ...]  # the formula, and what its symbols are; () for none
    example: tuple[str, ...]  # a calculation with tiny numbers; a line 'X = N' holds as written
    command: str  # the command that computes it for a model
    source: str = ""  # the paper


FIGURES = FigureRows(terms_total=FigureRow("terms", NO_UNIT, "the number of terms"))
TERMS = {
    "kv-cache": Term(
        "KV cache",
        ("cache", "kv", "kvcache", "key-value-cache"),
        "A decoder computes a key and a value for each token, layer and KV head. Later tokens read them again, so they "
        "are kept: that is the KV cache. It grows with the batch and the context, and not with the query heads.",
        ("L * B * T * 2 * n_kv_heads * d_head * bytes", "L layers, B sequences, T tokens of each; 2: keys and values"),
        ("Bytes for 4 tokens, 1 layer, 2 KV heads of 8 elements in fp16 (2 bytes):", "1 * 1 * 4 * 2 * 2 * 8 * 2 = 256"),
        "attncalc kv llama2-70b --explain",
        "Pope et al. 2022, arXiv:2211.05102",
    ),
    "mha": Term(
        "Multi-head attention (MHA)",
        ("multi-head", "multi-head-attention", "attention"),
        "Every query head has a key and a value head of its own. The cache has as many KV heads as there are query "
        "heads.",
        ("softmax(Q K^T / sqrt(d_head)) V, for each head", "n_kv_heads = n_heads"),
        ("KV values per token and layer, with 4 heads of 8 elements:", "2 * 4 * 8 = 64"),
        "attncalc compare llama2-7b",
        "Vaswani et al. 2017, arXiv:1706.03762",
    ),
    "gqa": Term(
        "Grouped-query attention (GQA)",
        ("grouped-query", "grouped-query-attention", "kv-heads"),
        "Several query heads share one KV head. The cache shrinks by that ratio, and the FLOPs of the scores stay.",
        ("n_heads / n_kv_heads query heads share a KV head",),
        (
            "KV values per token and layer, with 4 query and 2 KV heads of 8 elements:",
            "2 * 2 * 8 = 32",
            "With MHA:",
            "2 * 4 * 8 = 64",
        ),
        "attncalc compare llama2-70b",
        "Ainslie et al. 2023, arXiv:2305.13245",
    ),
    "mqa": Term(
        "Multi-query attention (MQA)",
        ("multi-query", "multi-query-attention"),
        "All query heads share one KV head: GQA with one group. It has the smallest cache of the three.",
        ("n_kv_heads = 1",),
        ("KV values per token and layer, with 1 KV head of 8 elements:", "2 * 1 * 8 = 16"),
        "attncalc kv llama2-7b --attention mqa",
        "Shazeer 2019, arXiv:1911.02150",
    ),
    "mla": Term(
        "Multi-head latent attention (MLA)",
        ("latent", "multi-head-latent-attention", "deepseek-attention"),
        "The cache has one latent vector and one rotary key per token, for all heads. The keys and values of each head "
        "are computed from the latent. There is no 2: one vector stands for keys and values.",
        ("L * B * T * (kv_lora_rank + d_rope) * bytes",),
        (
            "Values per token and layer, with a latent of 12 and a rotary key of 4:",
            "12 + 4 = 16",
            "With MHA and 4 heads of 8 elements:",
            "2 * 4 * 8 = 64",
        ),
        "attncalc kv deepseek-v3 --explain",
        "DeepSeek-AI 2024, arXiv:2405.04434",
    ),
    "window": Term(
        "Sliding window",
        ("sliding-window", "swa", "local-attention", "local"),
        "A layer with a window sees only the last W tokens, so its cache stops growing at W tokens. Many models mix "
        "such local layers with a few that see the whole context.",
        ("min(T, W) tokens in the cache of a local layer",),
        (
            "Tokens in the caches of two layers after 8 tokens, one with a window of 4:",
            "4 + 8 = 12",
            "Without windows:",
            "8 + 8 = 16",
        ),
        "attncalc kv gemma3-27b",
        "Child et al. 2019, arXiv:1904.10509; Jiang et al. 2023, arXiv:2310.06825",
    ),
    "prefill": Term(
        "Prefill",
        ("prompt-processing", "ttft", "prompt"),
        "The model reads the whole prompt in one pass and fills the cache. Each weight is used for every token of the "
        "prompt, so a long prefill is bound by FLOP/s. Its time is most of the time to the first token (TTFT).",
        ("about 2 * parameters * T FLOP, and the scores, which grow with T * T",),
        ("FLOP of a model of 100 parameters and a prompt of 4 tokens, without scores:", "2 * 100 * 4 = 800"),
        "attncalc flops llama2-70b --phase prefill",
    ),
    "decode": Term(
        "Decode",
        ("decoding", "generation", "tpot", "decode-step"),
        "Each step computes one new token per sequence. It reads all weights and the whole cache for little "
        "arithmetic, so it is bound by memory bandwidth until the batch is large. It takes the time per output token "
        "(TPOT).",
        ("time >= (bytes of weights + bytes of cache) / bandwidth",),
        ("Seconds per token: 1,000 bytes of weights, 200 of cache, 100 bytes/s:", "(1000 + 200) / 100 = 12"),
        "attncalc fit llama3.1-8b --gpu h100 --roofline",
    ),
    "roofline": Term(
        "Roofline",
        ("bound", "memory-bound", "compute-bound", "arithmetic-intensity", "intensity"),
        "A step takes at least the time of its FLOPs at the GPU's peak, and at least that of its bytes at the GPU's "
        "bandwidth. The larger is the bound. FLOP per byte is the arithmetic intensity; where both times are equal is "
        "the ridge point.",
        ("time >= max(FLOP / peak, bytes / bandwidth)", "ridge point = peak / bandwidth"),
        (
            "Ridge point of a GPU with 300 FLOP/s and 3 bytes/s, in FLOP per byte:",
            "300 / 3 = 100",
            "Seconds of a step of 600 FLOP and 30 bytes: 20 FLOP/byte, so memory-bound:",
            "30 / 3 = 10",
        ),
        "attncalc fit llama3.1-8b --gpu h100 --roofline",
        "Williams et al. 2009, doi:10.1145/1498765.1498785",
    ),
    "flash-attention": Term(
        "Flash attention",
        ("flash", "flashattention", "fa", "fused-attention", "sdpa"),
        "A kernel that computes attention block by block and never stores the score matrix. The result and the FLOPs "
        "are the same; the memory grows with T instead of T * T.",
        ("score matrix without it: B * n_heads * T * T * bytes",),
        ("Bytes of the score matrix that it avoids, for 4 tokens and 2 heads in fp16:", "1 * 2 * 4 * 4 * 2 = 64"),
        "attncalc memory llama2-70b --context 8192",
        "Dao et al. 2022, arXiv:2205.14135",
    ),
    "scores": Term(
        "Attention scores",
        ("score-matrix", "qk", "pv", "attention-matrix"),
        "QK: each query times each key it sees gives a score. PV: the weights after the softmax times the values give "
        "the output. The figure `scores` is both. Under a causal mask a token sees itself and those before it.",
        (
            "2 * 2 * n_heads * d_head * pairs",
            "2 FLOP per multiply-add, 2 products (QK and PV)",
            "pairs = T (T + 1) / 2",
        ),
        (
            "Pairs of a query and a key, for 4 tokens under a causal mask:",
            "4 * 5 / 2 = 10",
            "FLOP of the scores of a layer with 2 heads of 8 elements:",
            "2 * 2 * 2 * 8 * 10 = 640",
        ),
        "attncalc flops gpt3 --explain",
        "Vaswani et al. 2017, arXiv:1706.03762",
    ),
    "flop": Term(
        "FLOP",
        ("flops", "gflop", "tflops", "multiply-add", "mac"),
        "One multiplication or one addition of two numbers. A multiply-add is 2 FLOP, so a matrix of n weights costs "
        "2 n FLOP per token. FLOPs are a number of operations; FLOP/s is a speed. A training step costs three times "
        "the forward pass.",
        ("2 * weights * tokens",),
        ("FLOP of a matrix of 3 x 5 weights and 4 tokens:", "2 * 3 * 5 * 4 = 120"),
        "attncalc flops llama2-70b",
    ),
    "tensor-parallel": Term(
        "Tensor parallelism",
        ("tp", "tensor-parallelism", "sharding"),
        "Each of tp GPUs has a part of every matrix, and its share of the query and KV heads. With more GPUs than KV "
        "heads the KV heads are repeated, so the cache per GPU stops shrinking.",
        ("KV heads on a GPU = max(1, n_kv_heads / tp)",),
        (
            "KV heads on each of 4 GPUs, of a model with 8:",
            "8 / 4 = 2",
            "Copies of each KV head on 16 GPUs, each of which has one:",
            "16 * 1 / 8 = 2",
        ),
        "attncalc fit llama3.1-70b --gpu h100 --tp 4",
        "Shoeybi et al. 2019, arXiv:1909.08053",
    ),
    "blocks": Term(
        "Paged cache",
        ("paged-attention", "pagedattention", "pages", "block", "page"),
        "An engine divides the memory of its cache into blocks of a fixed number of tokens, and gives a sequence a "
        "block at a time. Only the last block of a sequence is partly empty.",
        ("blocks of a sequence = T / block size, rounded up",),
        ("Tokens of room that a sequence of 40 takes: 3 blocks of 16:", "3 * 16 = 48"),
        "attncalc fit llama3.1-8b --gpu h100 --full",
        "Kwon et al. 2023, arXiv:2309.06180",
    ),
    "concurrency": Term(
        "Concurrent requests",
        ("concurrent-requests", "max-batch", "users", "max-num-seqs", "throughput"),
        "How many requests of one length fit in the cache at the same time. What limits them is the memory that "
        "weights and runtime leave, or the engine's own limit of sequences. Real requests are shorter than the longest "
        "one: --prompt and --output-len count those of your users.",
        ("tokens in the cache / tokens of a request",),
        ("Requests of 200 tokens in a cache of 1,000:", "1000 / 200 = 5"),
        "attncalc fit llama3.1-8b --gpu h100 --prompt 3K --output-len 500",
    ),
    "quantization": Term(
        "Quantization",
        ("quantized", "quant", "gguf", "fp8", "int4", "awq", "gptq", "q4_k_m"),
        "Weights or cache in fewer bits: 8 or 4 instead of 16. Groups of weights share a scale, which adds a little. "
        "Weights and cache are chosen apart: --weights-dtype and --kv-dtype.",
        ("bytes = elements * (bits + bits of the scales per element) / 8",),
        (
            "Bits of 64 weights in 4 bits, with a scale of 16 bits for each 32:",
            "64 * 4 + 2 * 16 = 288",
            "Bytes:",
            "288 / 8 = 36",
        ),
        "attncalc fit llama3.1-8b --weights-dtype q4_k_m --gpu 12GB",
    ),
    "moe": Term(
        "Mixture of experts (MoE)",
        ("mixture-of-experts", "experts", "sparse", "active-parameters"),
        "Each layer has many MLPs, the experts, and a router that sends a token to a few of them. All experts need "
        "memory; only the active ones cost FLOPs. The KV cache does not change.",
        ("active parameters = shared + experts per token * one expert",),
        (
            "Parameters in memory, with 8 experts of 10 and 5 shared parameters:",
            "8 * 10 + 5 = 85",
            "Active, with 2 experts per token:",
            "2 * 10 + 5 = 25",
        ),
        "attncalc params mixtral-8x7b",
        "Shazeer et al. 2017, arXiv:1701.06538",
    ),
    "state": Term(
        "Recurrent state",
        ("recurrent", "mamba", "ssm", "linear-attention", "linear", "hybrid", "deltanet"),
        "Layers such as Mamba or linear attention keep a state of a fixed size per sequence instead of a cache that "
        "grows. Hybrid models mix them with a few attention layers.",
        ("bytes per sequence = layers * elements of a state * bytes",),
        ("Bytes of 3 layers with states of 100 elements in fp32, at any context:", "3 * 100 * 4 = 1200"),
        "attncalc kv qwen3-next-80b-a3b",
        "Gu and Dao 2023, arXiv:2312.00752; Katharopoulos et al. 2020, arXiv:2006.16236",
    ),
    "units": Term(
        "Units",
        ("gib", "gb", "k", "128k", "bytes", "binary", "prefix"),
        "GiB are 2^30 bytes, and GB are 10^9: memory is shown in GiB. In a number of tokens K is 1,024 and k is 1,000: "
        "128K is 131,072, and 128k is 128,000.",
        (),
        ("128K tokens:", "128 * 1024 = 131072", "80 GB in GiB, rounded down:", "80 * 10**9 // 2**30 = 74"),
        "attncalc kv llama3.1-8b -c 128K",
    ),
}
"""{name: term}."""


def find_terms(words: str) -> list[str]:
    """Return the names of the terms in these words: ['mha', 'mqa'] for 'MHA vs MQA'.

    Raises AttncalcError if a word belongs to none.
    """
    asked = re.sub(r"[\s_]+", "-", words.strip().lower())
    names = {name: name for name in TERMS} | {other: name for name, term in TERMS.items() for other in term.also}
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    if re.fullmatch(rf"({known})(-(?:(vs|versus|and|or)-)?({known}))*", asked):
        return list(dict.fromkeys(names[name] for name in re.findall(rf"(?<![a-z])({known})(?![a-z])", asked)))
    raise AttncalcError(
        f"no explanation of '{truncate(words)}'", f"{did_you_mean(asked, names)}known: {', '.join(TERMS)}"
    )


def term_report(name: str) -> Report:
    term = TERMS[name]
    lines = [["formula"], *([f"  {line}"] for line in term.formula), [""]] if term.formula else []
    example = [["example"], *([f"  {text}"] for text in term.example)]
    table = Table((Column(align="left"),), (*map(tuple, lines), *map(tuple, example)))
    notes = (f"For a model: {term.command}", *([f"Source: {term.source}"] if term.source else []))
    return _report(term.title, (name,), table)._replace(notes=notes, answer=term.meaning)


def terms_report(names: Sequence[str]) -> Report:
    rows = tuple((name, TERMS[name].title) for name in names)
    table = Table((Column(align="left"), Column(align="left")), rows)
    return _report(f"{len(names)} terms  'attncalc explain kv-cache' explains one", names, table)


def _report(heading: str, names: Sequence[str], table: Table) -> Report:
    terms = [{"name": name, **TERMS[name]._asdict()} for name in names]
    joined = [{key: "; ".join(v) if isinstance(v, tuple) else v for key, v in term.items()} for term in terms]
    figures = FIGURES.filled(terms_total=Quantity(len(terms)))
    return Report("explain", (heading,), {}, {}, figures, (), (table,), extra={"terms": terms}, records=tuple(joined))
