"""The figures of `attncalc fit`: those of the budget and the cache, and those that only some
engines have.
"""

from collections.abc import Container
from typing import TypeAlias

from ...engines.base import NO_LIMIT
from ...model import plural
from ...quantity import Quantity, Ratio
from ...serving.answer import Answer
from ...serving.fit import FitResult, Limits
from ...serving.memory_budget import MemoryBudget
from ...serving.weights import Weights
from ...show.figures import FigureRow, FigureRows, Given, Number, ratio_row
from ...show.report import Figure
from ...show.users import user_figures
from ...units import BYTES, NO_UNIT, TOKENS, count
from .tiers import ROWS as TIERS
from .tiers import tier_values

# Values by the names of their figures.
Values: TypeAlias = "dict[str, Number | Given]"

_GIVEN = "as given"
_ESTIMATED = "an estimate: --reserve replaces it"
_NO_GPU = "without a GPU"
_NOT_HELD = "if the engine holds none"
_NO_BLOCKS = "for an engine without blocks"
_NO_LIMIT = "without a limit"
_NO_CACHE = "for a model without a cache"
_WITH_CACHE = "for a model with a cache"
_NO_RAM = "if no size of host memory is known"
_LLAMACPP = "for other engines than llama.cpp"
# llama.cpp's buffers, by the names of their figures.
_BUFFERS = ("compute_buffer", "host_compute_buffer", "model_buffer")
# The figures that are also given of all replicas together.
TOTALS = ("concurrency", "max_batch", "kv_tokens")
# Tokens of a text: the maximum of BERT, to which passages are cut.
_USUAL_TEXT = 512
_ENDS = {"low": "least", "high": "most"}
# What fits with kv_memory_low and kv_memory_high.
_LIMITS = tuple(f"{name}_{end}" for end in _ENDS for name in Limits._fields)
# The figures that take another search, or another request.
_SEARCHED = (
    "min_gpus",
    "max_n_gpu_layers",
    "min_n_cpu_moe",
    "kv_tokens_without_dcp",
    *TIERS,
    *_LIMITS,
)
# What the weights consist of.
WEIGHT_PARTS = FigureRows(
    **{
        name: FigureRow(
            label,
            BYTES,
            f"of the weights: {meaning}",
            _NO_GPU if name == "weights_model" else _NOT_HELD,
        )
        for name, label, meaning in (
            (
                "weights_model",
                "language model",
                "those of the language model, as the checkpoint stores them",
            ),
            ("weights_vision_tower", "vision tower", "the vision tower with its projector"),
            ("weights_audio_tower", "audio tower", "the audio tower with its projector"),
            (
                "weights_draft",
                "drafter",
                "the draft model, or the layers for multi-token prediction",
            ),
            (
                "weights_draft_tables",
                "the drafter's tables",
                "an embedding and a head that SGLang frees too late",
            ),
            ("weights_rope_tables", "rope tables", "tables of rotary positions"),
            ("weights_absorbed_kv_b", "absorbed kv_b", "copies of MLA's kv_b_proj"),
            (
                "weights_absorbed_products",
                "products of MLA's matrices",
                "MLA's matrix products that vLLM 0.7 keeps",
            ),
            (
                "weights_mla_workspace",
                "FlashInfer's MLA workspace",
                "a buffer of FlashInfer for MLA",
            ),
            ("weights_expert_padding", "padding of MXFP4 experts", "padding of MXFP4 experts"),
            (
                "weights_layer_inputs",
                "buffer of per-layer inputs",
                "a buffer of Gemma 3n's and 4's inputs per layer",
            ),
            (
                "weights_streams",
                "buffers of streams and picked tokens",
                "DeepSeek-V4's buffers per step",
            ),
            ("weights_vocab_padding", "padding of the vocabulary", "padding of the vocabulary"),
            (
                "weights_lora",
                "buffers for LoRA adapters",
                "the buffers for the adapters of --enable-lora",
            ),
            (
                "weights_on_host",
                "moved to the host",
                "minus those that --cpu-offload-gb moves to host memory",
            ),
            (
                "weights_allocator",
                "rounding of PyTorch's allocator",
                "what PyTorch's allocator adds to large tensors",
            ),
        )
    }
)
FIGURES = FigureRows(
    gpu_memory=FigureRow("one GPU", BYTES, "memory of one GPU as software sees it", _NO_GPU),
    usable_memory=FigureRow("usable", BYTES, "the share of it that the engine uses", _NO_GPU),
    weights=FigureRow("weights", BYTES, "the weights on one GPU", _NO_GPU, source="its parameters"),
    reserve=FigureRow("runtime", BYTES, "the runtime memory", _NO_GPU),
    kv_memory=FigureRow("KV memory", BYTES, "what is left for the cache", _NO_CACHE),
    kv_memory_low=FigureRow(
        "KV memory at least",
        BYTES,
        "kv_memory if the runtime memory is largest",
        _NO_CACHE,
        source="if runtime is largest",
    ),
    kv_memory_high=FigureRow(
        "KV memory at most",
        BYTES,
        "kv_memory if the runtime memory is smallest",
        _NO_CACHE,
        source="if runtime is smallest",
    ),
    kv_bytes_per_sequence=FigureRow(
        "one request",
        BYTES,
        "the cache of one sequence",
        _NO_CACHE,
        title="KV cache of one request",
    ),
    kv_needed=FigureRow("the batch", BYTES, "the cache of the whole batch", _NO_CACHE),
    kv_bytes_per_block=FigureRow("one block", BYTES, "one block", _NO_BLOCKS),
    kv_blocks=FigureRow("blocks", NO_UNIT, "blocks that fit", _NO_BLOCKS),
    kv_tokens=FigureRow(
        "tokens",
        TOKENS,
        "tokens that fit, as the engine counts them",
        "if the whole cache is in host memory, and for a model without a cache",
        title="Tokens in the cache",
    ),
    kv_tokens_without_dcp=FigureRow(
        "tokens without --dcp",
        TOKENS,
        "tokens that fit with --dcp 1, all else being equal",
        "without --dcp",
    ),
    concurrency=ratio_row(
        "concurrent requests",
        "concurrent requests of this context, as the engine prints it; of a model without a cache, "
        "texts of one step",
        title="Concurrent requests",
    ),
    max_context=FigureRow(
        "longest context",
        TOKENS,
        "the longest context of the batch that fits, at most the model's own",
        _NO_LIMIT,
        title="Longest context",
    ),
    max_batch=FigureRow(
        "maximum requests",
        NO_UNIT,
        "the most sequences of this context that fit",
        _NO_LIMIT,
        title="Largest batch",
    ),
    tokens_per_step=FigureRow(
        "tokens per step",
        TOKENS,
        "tokens of one step of a model without a cache, as max_num_batched_tokens",
        _WITH_CACHE,
    ),
    texts_per_step=FigureRow(
        "texts of 512 tokens per step",
        NO_UNIT,
        "texts of 512 tokens, or of a shorter context, that one step computes",
        _WITH_CACHE,
    ),
    min_gpus=FigureRow(
        "fewest GPUs of this kind",
        NO_UNIT,
        "the fewest GPUs that are enough, of those over which --tp divides each layer, or "
        "llama.cpp whole layers",
        "if no number is",
    ),
    compute_buffer=FigureRow(
        "compute buffer", BYTES, "llama.cpp's compute buffer on a GPU", _LLAMACPP
    ),
    host_compute_buffer=FigureRow(
        "compute buffer in host memory",
        BYTES,
        "llama.cpp's compute buffer in host memory",
        _LLAMACPP,
    ),
    host_memory=FigureRow("host memory", BYTES, "llama.cpp's limit of host memory, --ram", _NO_RAM),
    host_needed=FigureRow(
        "in host memory", BYTES, "what the batch and the weights there take", _NO_RAM
    ),
    model_buffer=FigureRow("model buffer", BYTES, "llama.cpp's model buffer", _LLAMACPP),
    max_n_gpu_layers=FigureRow(
        "most layers on GPUs (-ngl)",
        NO_UNIT,
        "llama.cpp's largest -ngl with which it fits",
        f"{_LLAMACPP}, and if nothing fits",
    ),
    min_n_cpu_moe=FigureRow(
        "fewest layers with experts on the host",
        NO_UNIT,
        "llama.cpp's smallest --n-cpu-moe with which it fits",
        f"{_LLAMACPP}, if nothing fits, and for models without experts",
    ),
    **WEIGHT_PARTS,
    **TIERS,
)
FIGURES |= FigureRows(
    **{
        f"{name}_{end}": row._replace(
            label=f"{row.label} at {word}", meaning=f"{name} with kv_memory_{end}", title=""
        )
        for end, word in _ENDS.items()
        for name, row in ((name, FIGURES[name]) for name in Limits._fields)
    }
)
# Further figures that only some engines have; an engine names them in words of its own.
DETAILS = FigureRows(
    kv_block_size=FigureRow("", TOKENS, "tokens per block"),
    kv_groups=FigureRow("", NO_UNIT, "groups of layers that share blocks"),
    kv_blocks_per_request=FigureRow("", NO_UNIT, "blocks of one request of this context"),
    kv_blocks_of_pools=FigureRow(
        "", NO_UNIT, "blocks of one request that hold compressed attention's pools"
    ),
    kv_blocks_of_windows=FigureRow(
        "", NO_UNIT, "blocks of one request that hold compressed attention's windows"
    ),
    kv_blocks_of_unpooled_tokens=FigureRow(
        "", NO_UNIT, "blocks of one request that hold tokens to be pooled"
    ),
    kv_fixed_bytes_per_sequence=FigureRow(
        "", BYTES, "what one request takes whatever its length: windows and states"
    ),
    kv_bytes_per_token=ratio_row(
        "", "one token in all layers, without windows and states", unit=BYTES
    ),
    kv_bytes_per_token_per_layer=FigureRow("", BYTES, "one token in one layer"),
    cpu_blocks=FigureRow("", NO_UNIT, "blocks in host memory"),
    state_bytes_per_layer=FigureRow("", BYTES, "one layer's state"),
    state_bytes_per_slot=FigureRow("", BYTES, "one slot of recurrent states"),
    state_slots=FigureRow("", NO_UNIT, "slots of recurrent states"),
    state_bytes_per_sequence=FigureRow("", BYTES, "one sequence's recurrent states"),
    kv_cells=FigureRow("", NO_UNIT, "llama.cpp's cells of one sequence"),
    swa_cells=FigureRow("", NO_UNIT, "llama.cpp's cells of its sliding windows"),
    kv_bytes_per_cell=FigureRow("", BYTES, "one cell"),
    swa_bytes_per_cell=FigureRow("", BYTES, "one cell of sliding windows"),
    csa_bytes_per_cell=FigureRow("", BYTES, "one cell of pools of 4"),
    hca_bytes_per_cell=FigureRow("", BYTES, "one cell of pools of 128"),
    indexer_bytes_per_cell=FigureRow("", BYTES, "one cell of an indexer's keys"),
    draft_bytes_per_cell=FigureRow("", BYTES, "one cell of a drafter's cache"),
    full_bytes_per_token=FigureRow("", BYTES, "one token in the layers with full attention"),
    swa_bytes_per_token=FigureRow("", BYTES, "one token in the layers with sliding windows"),
    swa_tokens=FigureRow("", TOKENS, "tokens that fit in the pool of sliding windows"),
    swa_bytes=FigureRow("", BYTES, "SGLang's pool of compressed attention's windows"),
    unpooled_bytes=FigureRow("", BYTES, "tokens to be pooled, of all requests"),
)


def answer_figures(answer: Answer, of: str = "") -> dict[str, Figure]:
    """Return all figures of an engine by name, those of users' requests included; `of` is as in
    `fit_figures`.
    """
    return {
        figure.name: figure
        for figure in (*fit_figures(answer, of), *user_figures(answer.users, of))
    }


def fit_figures(
    answer: Answer, of: str = "", *, searched: Container[str] = _SEARCHED
) -> tuple[Figure, ...]:
    """Return the figures, whose names scripts rely on. A figure that does not apply has no number.

    `of` is their engine, '' for the only one. Those of _SEARCHED that are not `searched` have no
    number.
    """
    result = answer.result
    return FIGURES.filled(
        result.layout.source,
        of,
        **_budget_values(result),
        **_cache_values(result),
        **_step_values(result),
        **_host_values(result),
        **_searched_values(answer, searched),
        **_weight_parts(result.budget.weights, answer.resolved.engine.title),
    )


def _budget_values(result: FitResult) -> Values:
    """Return the memory of one GPU, what is held besides the cache, and what is left for it."""
    budget = result.budget
    gpu = result.resolved.gpu
    source_of_gpu = _GIVEN
    if gpu:
        source_of_gpu = "; ".join(gpu.sources)
    usable = Given(budget.usable, source=_GIVEN)
    if budget.share:
        share = budget.share.option.removeprefix("--")
        usable = usable._replace(label=f"what the engine takes, {share}")
    weights = Given(None)
    if budget.weights:
        weights = Given(budget.weights.total, f"weights in {budget.weights.dtype}")
    is_estimated = result.resolved.request.reserve is None
    reserve = Given(None, source=_ESTIMATED if is_estimated else _GIVEN)
    if budget.reserve:
        reserve = reserve._replace(
            value=budget.reserve.total, label="runtime, estimated" if is_estimated else ""
        )
    memories: Values = dict.fromkeys(("kv_memory", "kv_memory_low", "kv_memory_high"))
    if result.resolved.has_cache:
        source = "what is left" if budget.memory else _GIVEN
        memories = {
            "kv_memory": Given(budget.kv_memory, source=source),
            "kv_memory_low": Quantity(budget.kv_memory_low),
            "kv_memory_high": Quantity(budget.kv_memory_high),
        }
    return {
        "gpu_memory": Given(budget.memory, source=source_of_gpu),
        "usable_memory": usable,
        "weights": weights,
        "reserve": reserve,
        **memories,
    }


def _cache_values(result: FitResult) -> Values:
    """Return what one request and the batch need, and what the memory for the cache holds."""
    workload = result.resolved.workload
    batch = plural(workload.batch, "request")
    context = count(workload.context)
    pool = result.pool
    details = {detail.name: detail.quantity for detail in pool.details}
    of_one: Given | None = None
    needed: Given | None = None
    if result.resolved.has_cache:
        of_one = Given(_one_sequence(result), f"one request of {context} tokens")
        needed = Given(result.needed, f"{batch} of {context} tokens")
    return {
        "kv_bytes_per_sequence": of_one,
        "kv_needed": needed,
        "kv_bytes_per_block": details.get("kv_bytes_per_block"),
        "kv_blocks": pool.blocks,
        "kv_tokens": None if pool.tokens == NO_LIMIT else pool.tokens,
        "concurrency": pool.concurrency,
        "max_context": Given(result.max_context, f"longest context of {batch}"),
        "max_batch": Given(result.max_batch, f"maximum requests of {context} tokens"),
    }


def _step_values(result: FitResult) -> Values:
    """Return what one step of a model without a cache computes."""
    length = text_length(result)
    label = f"texts of {count(length)} tokens per step"
    return {
        "tokens_per_step": result.step_tokens,
        "texts_per_step": Given(result.step_texts(length), label),
    }


def text_length(result: FitResult) -> int:
    """Return the tokens of the texts that are counted: 512, as most passages have, or the context
    if it is shorter.
    """
    return min(_USUAL_TEXT, int(result.resolved.workload.context))


def _host_values(result: FitResult) -> Values:
    """Return llama.cpp's buffers, and what it needs of the host's memory."""
    values: Values = dict.fromkeys(_BUFFERS)
    if result.budget.reserve:
        for detail in result.budget.reserve.runtime.details:
            if detail.name in values:
                values[detail.name] = detail.quantity
    host_memory = None
    if result.host is not None:
        host_memory = Given(Quantity(result.host.limit), source=_GIVEN)
    return {**values, "host_memory": host_memory, "host_needed": _with_formula(result.host_needed)}


def _searched_values(answer: Answer, searched: Container[str]) -> Values:
    """Return the figures of _SEARCHED; those that are not searched for have no number."""
    values: Values = dict.fromkeys(_SEARCHED)
    if "min_gpus" in searched:
        values["min_gpus"] = answer.fewest_gpus
    if "max_n_gpu_layers" in searched:
        values["max_n_gpu_layers"] = _with_formula(answer.least_offload("n_gpu_layers"))
    if "min_n_cpu_moe" in searched:
        values["min_n_cpu_moe"] = _with_formula(answer.least_offload("n_cpu_moe"))
    if "kv_tokens_without_dcp" in searched and answer.without_dcp:
        values["kv_tokens_without_dcp"] = answer.without_dcp.pool.tokens
    if any(name in searched for name in TIERS):
        values.update(tier_values(answer))
    if any(name in searched for name in _LIMITS):
        limits = [_with_formula(value) for at_end in answer.limits for value in at_end]
        values.update(zip(_LIMITS, limits, strict=True))
    return values


def _with_formula(value: int | Ratio | None) -> Number:
    """Return a number that was searched for as a figure's value."""
    if isinstance(value, int):
        return Quantity(value)
    return value


def _weight_parts(weights: Weights | None, engine: str) -> dict[str, Given]:
    """Return the parts of the weights; those that the engine does not hold have no number."""
    by_name: dict[str, Quantity] = {}
    if weights:
        by_name = {name: part for name, _, part in weights.parts if name in WEIGHT_PARTS}
        by_name.setdefault("weights_model", weights.total)
    return {name: Given(by_name.get(name), source=engine) for name in WEIGHT_PARTS}


def _one_sequence(result: FitResult) -> Quantity | Ratio:
    """Return the engine's own figure if it has one, else the bytes that one sequence needs."""
    details = {detail.name: detail.quantity for detail in result.pool.details}
    workload = result.resolved.workload
    one = Quantity(int(result.layout.needed(1, workload.context)))
    return details.get("kv_bytes_per_sequence", one if workload.batch > 1 else result.needed)


def detail_figures(result: FitResult, main: Container[str], of: str = "") -> tuple[Figure, ...]:
    """Return the engine's intermediate figures whose names are not among the main ones."""
    return tuple(
        DETAILS[detail.name].figure(detail.quantity, detail.label, result.layout.source, of)
        for detail in result.pool.details
        if detail.name not in main
    )


def term_figures(budget: MemoryBudget) -> tuple[Figure, ...]:
    """Return the terms of a budget's formulas that have a formula themselves, for --explain."""
    figures = []
    if budget.weights:
        for name, label, term in budget.weights.parts:
            if name not in WEIGHT_PARTS:
                figures.append(Figure(name, label, term, _unit_of_term(name), _GIVEN))
    if budget.reserve:
        runtime = budget.reserve.runtime
        details = {detail.name for detail in runtime.details}
        for part in runtime.parts:
            if part.name not in details:
                figures.append(Figure(part.name, part.label, part.expected, BYTES, part.source))
        for name, label, term in runtime.terms:
            figures.append(Figure(name, label, term, _unit_of_term(name), _ESTIMATED))
    return tuple(figures)


def _unit_of_term(name: str) -> str:
    if "bytes" in name:
        return BYTES
    return NO_UNIT


def totals(result: FitResult) -> dict[str, int | float | None]:
    """Return what fits in all replicas together, by the names of TOTALS."""
    replicas = result.resolved.replicas
    tokens = None
    if result.pool.tokens != NO_LIMIT:
        tokens = int(result.pool.tokens) * replicas
    concurrency = float(result.pool.concurrency) * replicas
    all_together = (concurrency, result.requests_of_all_replicas, tokens)
    return dict(zip(TOTALS, all_together, strict=True))
