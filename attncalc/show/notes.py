"""Notes that several reports share: about the model, its shape, the context, and tensor
parallelism.
"""

from collections.abc import Iterator

from ..model import ModelSpec, plural
from ..units import count
from ..workload import Workload
from .layers import has_attention, kv_heads

# The start of a note which warns that the answer may not be meaningful.
WARNING = "warning: "
# The start of a note on a check of --fail-if that failed.
FAILED = "failed: "
# The starts of notes that a reader of mere data must see too.
ALERTS = (WARNING, FAILED)
# Query-key products over fewer elements than this discriminate poorly (Michel et al.,
# arXiv:1905.10650, prune heads; Bhojanapalli et al., arXiv:2002.07028, name the low-rank
# bottleneck).
_NARROW = 32


def is_decisive(note: str) -> bool:
    """Return whether a note may change a decision: a warning, or one about an option that decides.

    The latter starts with the option: '--max-num-seqs 256 is assumed, ...'.
    """
    return note.startswith((*ALERTS, "-"))


def model_notes(model: ModelSpec) -> list[str]:
    """Return the model's own notes, and notes on an MLP or a vocabulary that its file does not
    have.
    """
    notes = list(model.notes)
    if not any(layers.mlp for layers in model.main.layers) and has_attention(model):
        notes.append("The model file has no MLP: totals cover attention only.")
    if model.vocab_size is None:
        notes.append("The model file has no vocabulary: embedding and lm head are not counted.")
    return notes


def shape_notes(model: ModelSpec) -> list[str]:
    """Return notes on narrow heads, and on heads whose widths do not add up to d_model."""
    notes = []
    for stack, layers in model.groups():
        widths = layers.attention.widths()
        heads_width = int(widths.n_heads) * int(widths.d_qk)
        d_model = int(stack.d_model)
        if 0 < widths.d_qk < _NARROW:
            notes.append(
                f"d_head is {widths.d_qk}: below {_NARROW}, the scores of a head have low rank "
                "and quality suffers (arXiv:2002.07028). Fewer, wider heads cost the same."
            )
        facts = layers.attention.facts()
        square = (0, d_model, getattr(layers.attention, "d_input", None))
        if heads_width not in square and "d_head" in facts and "q_lora_rank" not in facts:
            notes.append(
                f"n_heads * d_head is {count(heads_width)}, not d_model {count(d_model)}: "
                "the query and output projections are not square."
            )
    return list(dict.fromkeys(notes))


def context_notes(model: ModelSpec, workload: Workload) -> list[str]:
    """Return the assumptions of the workload, and warnings about a context beyond the model's
    maximum.
    """
    return [*workload.assumed, *(f"{WARNING}{text}" for text in beyond(model, workload))]


def beyond(model: ModelSpec, workload: Workload) -> Iterator[str]:
    """Yield that a context is beyond the model's maximum, as sentences that begin with a small
    letter.
    """
    sides = [("context", model.main, int(workload.context))]
    if model.encoder and workload.source:
        sides.append(("source", model.encoder, int(workload.source)))
    for side, stack, tokens in sides:
        if stack.learned_positions and tokens > stack.learned_positions:
            yield (
                f"{side} {count(tokens)} is beyond the learned position table of "
                f"{count(stack.learned_positions)}: the model cannot run at this length."
            )
        elif stack.max_context and tokens > stack.max_context:
            yield (
                f"{side} {count(tokens)} is beyond the model's maximum of "
                f"{count(stack.max_context)}."
            )


def device_notes(model: ModelSpec) -> list[str]:
    """Return notes on KV heads and latents that tensor parallelism replicates."""
    notes = []
    for _, layers in model.groups():
        heads = int(kv_heads(layers.attention))
        copies = 1
        if heads:
            copies = int(kv_heads(layers.attention.shard(model.tp))) * model.tp // heads
        specs = layers.attention.cache()
        if copies > 1 and heads == 1 and specs:
            label = layers.attention.label
            notes.append(
                f"{label}: each of the {model.tp} devices stores the whole {specs[0].name}."
            )
        elif copies > 1 and specs:
            notes.append(
                f"{plural(heads, 'KV head')} on {model.tp} devices: {copies} devices store each "
                f"head, so all devices together store the cache {copies} times."
            )
    return list(dict.fromkeys(notes))


def kind_notes(model: ModelSpec, *, past: bool, kernels_only: bool = False) -> list[str]:
    """Return the notes of the model's kinds of attention; kernels_only leaves out recurrent
    layers.
    """
    kinds = [kind for _, layers in model.groups() for kind in layers.attentions]
    if kernels_only:
        kinds = [kind for kind in kinds if kind.widths().n_heads]
    return list(dict.fromkeys(note for kind in kinds for note in kind.notes(past)))
