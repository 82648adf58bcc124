"""Terms of the field, each on one screen: what it means, its formula, and an example to redo by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import BadValueError, did_you_mean
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
        "are computed from the latent. There is no 2: one vector stands for keys and values. DeepSeek-V3 has 512 + 64.",
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
        ("score-matrix", "qk", "pv", "attention-matrix", "quadratic", "attention-quadratic", "squared", "n-squared"),
        "QK: each query times each key it sees gives a score, so attention is quadratic in the context: it grows with "
        "T * T. PV: the weights after the softmax times the values give the output. The figure `scores` is both. Under "
        "a causal mask a token sees itself and those before it.",
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
    "complexity": Term(
        "Complexity per layer (Table 1 of Vaswani et al.)",
        ("table-1", "vaswani", "vaswani-table", "vaswani-table-1", "path-length", "big-o", "complexities"),
        "How the work of one layer grows with n tokens of width d. Self-attention needs one step for all tokens, and "
        "information passes between any two of them in one; a recurrent layer needs n steps for both.",
        (
            "self-attention: n * n * d",
            "recurrent: n * d * d",
            "convolutional, of width k: k * n * d * d",
            "self-attention restricted to r tokens: r * n * d",
        ),
        ("For 4 tokens of width 8: self-attention, and recurrent:", "4 * 4 * 8 = 128", "4 * 8 * 8 = 256"),
        "attncalc flops transformer-base --full",
        "Vaswani et al. 2017, arXiv:1706.03762, Table 1",
    ),
    "rope": Term(
        "Rotary position embedding (RoPE)",
        ("rotary", "positions", "position", "positional-encoding", "position-embedding", "position-encoding"),
        "Pairs of elements of each query and key are rotated by an angle that grows with the position. It has no "
        "parameters and no matrix product, so it adds nothing to parameters and FLOPs. MLA caches one rotary key for "
        "all heads. Learned positions, as in GPT-2, are parameters.",
        ("learned positions: positions * d_model parameters",),
        ("Parameters of 4 learned positions of width 8:", "4 * 8 = 32"),
        "attncalc params gpt2 --explain",
        "Su et al. 2021, arXiv:2104.09864",
    ),
    "embedding": Term(
        "Embedding and head",
        ("embeddings", "token-embedding", "vocabulary", "vocab", "lm-head", "logits"),
        "The embedding has a vector for each token of the vocabulary. Looking one up is no product and costs no FLOPs. "
        "The head multiplies the last layer's output by a matrix of that size: the logits. Tied embeddings share one.",
        ("parameters of each: V * d_model", "FLOP of the head: 2 * V * d_model per token"),
        ("Parameters of one, and FLOP per token, with 10 tokens and a width of 8:", "10 * 8 = 80", "2 * 10 * 8 = 160"),
        "attncalc params gpt2 --explain",
        "Vaswani et al. 2017, arXiv:1706.03762, 3.4",
    ),
    "context": Term(
        "Context and batch",
        ("batch", "batch-size", "sequence-length", "seq-len", "context-length", "tokens", "token"),
        "The context is the number of tokens of one sequence: prompt and output. The batch is the number of sequences "
        "that run together. The cache grows with both. A larger batch reads the weights once for more tokens.",
        ("tokens in the cache = B * T", "of a step: S new tokens attend to T tokens; prefill S = T, decode S = 1"),
        ("Tokens in the cache of 2 sequences of 4 tokens:", "2 * 4 = 8"),
        "attncalc kv llama3.1-8b --batch 8 --context 4096",
    ),
    "softmax": Term(
        "Softmax",
        ("softmax-attention", "weights-of-attention"),
        "It turns the scores of a query into weights that add up to 1. It costs a few FLOP per score, against "
        "4 * d_head of the two products, so attncalc does not count it. It needs a whole row of scores, or the running "
        "maximum and sum of flash attention.",
        ("weight of key i = exp(s_i - max s) / sum of exp(s_j - max s)",),
        ("Weights of two equal scores, and their sum:", "1 / 2 = 0.5", "0.5 + 0.5 = 1"),
        "attncalc explain scores",
        "Vaswani et al. 2017, arXiv:1706.03762",
    ),
    "flop": Term(
        "FLOP",
        ("flops", "gflop", "tflops", "multiply-add", "mac", "2"),
        "One multiplication or one addition of two numbers. A multiply-add is 2 FLOP, so a matrix of n weights costs "
        "2 n FLOP per token. (The 2 of a KV cache is keys and values.) FLOPs are a number of operations; FLOP/s is a "
        "speed. A training step costs three times the forward pass.",
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
        ("concurrent-requests", "max-batch", "users", "max-num-seqs", "throughput", "preemption"),
        "How many requests of one length fit in the cache at the same time. What limits them is the memory that "
        "weights and runtime leave, or the engine's own limit of sequences. Real requests are shorter than the longest "
        "one: --prompt and --output-len count those of your users. With more, vLLM preempts: it drops the cache of the "
        "last request and computes it again later. A smaller --max-num-seqs, a narrower --kv-dtype or more memory "
        "avoid it.",
        ("tokens in the cache / tokens of a request",),
        ("Requests of 200 tokens in a cache of 1,000:", "1000 / 200 = 5"),
        "attncalc fit llama3.1-8b --gpu h100 --prompt 3K --output-len 500",
    ),
    "quantization": Term(
        "Quantization",
        ("quantized", "quant", "gguf", "fp8", "bf16", "fp16", "fp32", "int4", "awq", "gptq", "q4_k_m"),
        "An element has 4 bytes in fp32, 2 in bf16 and fp16, and 1 in fp8. Quantized weights have 8 or 4 bits, and "
        "groups of them share a scale. Weights and cache are chosen apart: --weights-dtype and --kv-dtype.",
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
        ("bytes per sequence = layers * elements of a state * bytes", "linear attention: n_heads * d_k * d_v elements"),
        ("Bytes of 3 layers with 2 heads of 4 x 8 in fp32, at any context:", "3 * 2 * 4 * 8 * 4 = 768"),
        "attncalc kv qwen3-next-80b-a3b",
        "Gu and Dao 2023, arXiv:2312.00752; Katharopoulos et al. 2020, arXiv:2006.16236",
    ),
    "offload": Term(
        "Layers on the host",
        ("offloading", "partial-offload", "gpu-layers", "ngl", "num-gpu", "cpu-offload"),
        "llama.cpp and Ollama keep layers that do not fit on the GPU in host memory. Each token reads them at the "
        "host's bandwidth, which is 5 to 20 times lower, so a few layers on the host decide the speed.",
        ("time of a token >= GPU bytes / its bandwidth + host bytes / its bandwidth",),
        ("Seconds: 900 bytes on a GPU of 100 bytes/s, 100 on a host of 10 bytes/s:", "900 / 100 + 100 / 10 = 19"),
        "attncalc fit llama3.1-70b --weights-dtype q4_k_m --gpu 24GB --ram 64GB",
    ),
    "training-memory": Term(
        "Memory of training",
        ("training", "train", "fine-tuning", "finetuning", "optimizer", "optimizer-states", "adamw", "adam"),
        "Training keeps weights, a gradient per weight, the optimizer's states, and what the forward pass saves for "
        "the backward pass. AdamW has two moments per weight; in mixed precision there is a copy in fp32.",
        ("weights + gradients + optimizer states + activations",),
        ("Bytes per parameter in bf16, with a copy and moments in fp32:", "2 + 2 + 4 + 4 + 4 = 16"),
        "attncalc train llama3.1-8b --gpu h100",
        "Rajbhandari et al. 2020, arXiv:1910.02054",
    ),
    "zero": Term(
        "ZeRO and FSDP",
        ("fsdp", "deepspeed", "zero-1", "zero-2", "zero-3", "ddp", "sharded-data-parallel", "full-shard"),
        "Data parallelism (DDP) has all states on every GPU. ZeRO divides them: stage 1 the optimizer states, stage 2 "
        "the gradients too, stage 3 the weights too. FSDP's full sharding is stage 3. Activations are not divided.",
        ("bytes per GPU = 16 * parameters / GPUs at stage 3",),
        (
            "100 parameters with AdamW on 4 GPUs, stage 0, 1 and 3:",
            "100 * (2 + 2 + 12) = 1600",
            "100 * (2 + 2 + 12 / 4) = 700",
            "100 * (2 + 2 + 12) / 4 = 400",
        ),
        "attncalc train llama3.1-8b --gpu 8xh100 --zero 3",
        "Rajbhandari et al. 2020, arXiv:1910.02054; Zhao et al. 2023, arXiv:2304.11277",
    ),
    "activations": Term(
        "Activations and recomputation",
        ("activation", "gradient-checkpointing", "activation-checkpointing", "recompute", "recomputation"),
        "The forward pass saves what the backward pass reads: inputs of matrices, of norms and of attention. It grows "
        "with batch times sequence. Recomputation (gradient checkpointing) saves only the input of each layer and runs "
        "the layer again: the memory of one layer instead of all, for a third more FLOPs.",
        ("with recomputation: L * B * T * d_model * bytes, and one layer's activations",),
        ("Bytes of the inputs of 3 layers, for 4 tokens of 8 elements in bf16:", "3 * 1 * 4 * 8 * 2 = 192"),
        "attncalc train llama3.1-8b --gpu h100 --recompute full",
        "Chen et al. 2016, arXiv:1604.06174; Korthikanti et al. 2022, arXiv:2205.05198",
    ),
    "lora": Term(
        "LoRA and QLoRA",
        ("qlora", "adapter", "adapters", "peft", "nf4", "low-rank"),
        "LoRA freezes the weights and trains two narrow matrices beside each of some matrices. Only these have "
        "gradients and optimizer states; activations stay almost as large. QLoRA stores the frozen weights in 4 bits.",
        ("trained parameters of a matrix = r * (inputs + outputs)",),
        ("Trained parameters beside a matrix of 8 x 8, with r = 2, instead of 64:", "2 * (8 + 8) = 32"),
        "attncalc train llama3.1-8b --gpu 24GB --lora r=16 --weights-dtype nf4 --recompute full",
        "Hu et al. 2021, arXiv:2106.09685; Dettmers et al. 2023, arXiv:2305.14314",
    ),
    "mfu": Term(
        "Model FLOPs utilization (MFU)",
        ("model-flops-utilization", "hfu", "training-time", "gpu-hours"),
        "The FLOPs that the model needs, per second, divided by the GPUs' peak. Recomputed FLOPs do not count. Good "
        "runs on many GPUs reach 0.3 to 0.5. It turns FLOPs into days.",
        ("days = 6 * parameters * tokens / (MFU * peak * GPUs) / 86,400", "and the scores, which 6 N D leaves out"),
        ("Seconds for 100 parameters and 50 tokens at half of a peak of 600 FLOP/s:", "6 * 100 * 50 / (600 / 2) = 100"),
        "attncalc train llama3.1-8b --gpu 8xh100 --zero 3 --tokens 1B --mfu 0.4",
        "Chowdhery et al. 2022, arXiv:2204.02311",
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
_ASKING = re.findall(
    r"\w+", "vs versus and or why what how is are does do the a an between from difference differ explain work so big"
)
"""Words of a question beside its terms."""


def find_terms(words: str) -> list[str]:
    """Return the names of the terms in a question: ['mha', 'mqa'] for 'MHA vs MQA' or 'how does MHA differ from MQA'.

    Raises AttncalcError if there is no term, or another word that is none.
    """
    asked = re.sub(r"[\s_]+", "-", words.strip().lower().rstrip("?"))
    names = {name: name for name in TERMS} | {other: name for name, term in TERMS.items() for other in term.also}
    known = "|".join(re.escape(name) for name in sorted((*names, *_ASKING), key=len, reverse=True))
    found: list[str] = []
    if re.fullmatch(rf"({known})(-({known}))*", asked):
        found = [names[name] for name in re.findall(rf"(?<![a-z])({known})(?![a-z])", asked) if name in names]
    if not found:
        raise BadValueError(
            f"no explanation of '{truncate(words)}'", f"{did_you_mean(asked, names)}known: {', '.join(TERMS)}"
        )
    return list(dict.fromkeys(found))


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
