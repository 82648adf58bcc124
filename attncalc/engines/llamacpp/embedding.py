"""What llama.cpp does with a model without a cache: an embedder or a reranker that is an encoder.

Its attention is not causal, so that a text is computed in one micro-batch: "non-causal attention
requires n_ubatch >= n_tokens" (src/llama-context.cpp), and the server takes no text that is longer.
There is no memory but the compute buffer and the weights.
"""

from collections.abc import Sequence

from ...errors import NotSupportedError
from ...units import count
from ..pipeline import LayerCacheSpec
from ..without_cache import StepLayout
from .options import MAX_SEQUENCES, LlamacppArgs
from .placement import placement_of

# model_types that convert_hf_to_gguf.py converts to architectures without a cache; None is a file.
_MODEL_TYPES = frozenset(
    {
        *("bert", "roberta", "xlm-roberta", "distilbert", "nomic_bert", "jina_bert", "modernbert"),
        *("eurobert", "neobert", "gemma3_text", "llama_bidirec"),
    }
)


def step_layout(specs: Sequence[LayerCacheSpec], args: LlamacppArgs) -> StepLayout:
    """Return the texts of one pass. Raises AttncalcError if llama.cpp does not load the model, or
    its buffers on these devices are not known here.
    """
    if args.model_type is not None and args.model_type not in _MODEL_TYPES:
        raise NotSupportedError(
            f"llama.cpp has no architecture for '{args.model_type}', which has no cache",
            "'attncalc memory' computes its activation memory",
        )
    layers = sum(spec.layers for spec in specs)
    if args.gpus > 1 or placement_of(layers, args).is_partial or args.release.fork:
        raise NotSupportedError(
            "the buffers of a model without a cache are known for llama.cpp on one GPU with all "
            "layers, and on a CPU",
            "use --gpus 1, and leave --n-gpu-layers out",
        )
    tokens = () if args.ubatch is None else (f"n_ubatch {count(args.ubatch)}",)
    return StepLayout(
        max_num_seqs=MAX_SEQUENCES,
        max_tokens=args.ubatch,
        source="llama.cpp, src/llama-context.cpp, src/llama-graph.cpp",
        version=args.release.name,
        facts=(args.release.fact, f"n_seq_max {args.slots}", *tokens),
        slots=args.slots,
    )
