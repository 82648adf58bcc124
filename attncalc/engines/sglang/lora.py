"""SGLang's buffers for LoRA adapters: LoRAMemoryPool in srt/lora/mem_pool.py of 0.5.23."""

from collections.abc import Iterator

from ...errors import AttncalcError
from ...model import Layers, ModelSpec
from ...quantity import Quantity, quantity, symbol, total
from ..engine import HeldWeights
from .options import LORA_MODULES, SglangArgs

# The default of --max-loras-per-batch.
_ADAPTERS = 8
# Target modules as SGLang fuses them, and the matrices of each.
_MATRICES = {
    "qkv_proj": ("W_q", "W_k", "W_v", "W_qkv"),
    "fused_qkv_a_proj_with_mqa": ("W_q_a", "W_kv_a"),
    "q_b_proj": ("W_q_b",),
    "kv_b_proj": ("W_kv_b",),
    "o_proj": ("W_o",),
    "gate_up_proj": ("W_gate", "W_up"),
    "down_proj": ("W_down",),
}
_EMBEDDINGS = ("embed_tokens", "lm_head")


def lora_buffers(model: ModelSpec, args: SglangArgs, held: HeldWeights) -> Quantity:
    """Return the A and B of every target module, for as many adapters as a batch may have: rank x
    (inputs + outputs).

    Each of q, k, v, gate, up and each expert has a pair. Every layer has those of the experts, also
    a dense one. Tensor parallelism divides only the side of a matrix that it divides. The pairs of
    embedding and head are not divided but for the head's outputs; if both are targets, each is
    allocated twice (init_embedding_buffer).

    Raises AttncalcError if rank or targets are missing, or for layers whose modules are not known
    here.
    """
    if not args.enable_lora:
        if args.lora_target_modules or args.max_loras_per_batch:
            raise AttncalcError(
                "adapters of LoRA need --enable-lora",
                "add it, or leave the options of adapters out",
            )
        return Quantity(0)
    targets = _targets(args)
    layers = [group for _, group in model.plain().groups()]
    widths: list[int] = []
    experts = 0
    for group in layers:
        width, of_experts = _widths(group, int(model.main.d_model), targets)
        experts = max(experts, of_experts)
        widths.append(
            symbol("L", group.count, "layers")
            * symbol("widths", width, "inputs and outputs of a layer")
        )
    if experts:
        number = symbol("L_all", sum(group.count for group in layers), "all layers")
        widths.append(
            number * symbol("widths_of_experts", experts, "inputs and outputs of a layer's experts")
        )
    if model.vocab_size:
        widths += _of_embeddings(model, targets)
    adapters = symbol(
        "max_loras_per_batch", args.max_loras_per_batch or _ADAPTERS, "adapters of a batch"
    )
    rank = symbol("max_lora_rank", args.max_lora_rank or 0, "rank of the buffers")
    return quantity(adapters * rank * total(widths) * held.element_bytes)


def _targets(args: SglangArgs) -> set[str]:
    """Return the target modules under SGLang's fused names. Raises AttncalcError if an option is
    missing.
    """
    if not args.max_lora_rank or not args.lora_target_modules:
        missing = "--lora-target-modules" if args.max_lora_rank else "--max-lora-rank"
        raise AttncalcError(
            f"--enable-lora needs {missing}: SGLang takes it from the adapters, which attncalc "
            "does not read",
            "add --max-lora-rank 16 --lora-target-modules all, for example",
        )
    if args.pp > 1:
        raise AttncalcError(
            "SGLang: --enable-lora is not supported with --pp", "leave one of them out"
        )
    names = args.lora_target_modules.split()
    if names == ["all"]:
        return set(LORA_MODULES.values())
    return {LORA_MODULES[name] for name in names}


def _widths(layers: Layers, d_model: int, targets: set[str]) -> tuple[int, int]:
    """Return the inputs and outputs of one layer's target modules: without its experts, and of
    these.

    Raises AttncalcError for an attention whose modules are not known here.
    """
    targeted = {name for module in targets & _MATRICES.keys() for name in _MATRICES[module]}
    known = {name for names in _MATRICES.values() for name in names}
    attention = layers.attention
    names = {matrix.name for matrix in attention.matrices(d_model, d_model) if matrix.applied_to}
    is_plain = "W_q" not in names if attention.label == "MLA" else "W_gate" not in names
    if not attention.widths().n_heads or not names <= known or not is_plain:
        raise AttncalcError(
            f"SGLang's LoRA buffers are not known for {attention.label} of this kind",
            "leave --enable-lora out",
        )
    width = experts = 0
    for role, copies, matrix in layers.matrices_by_role(d_model, d_model):
        if matrix.name in targeted and role == "experts":
            experts += copies * int(matrix.rows + matrix.cols)
        elif matrix.name in targeted:
            width += copies * int(matrix.rows + matrix.cols)
    return width, experts


def _of_embeddings(model: ModelSpec, targets: set[str]) -> Iterator[int]:
    both = 2 if targets >= set(_EMBEDDINGS) else 1
    vocab = int(model.vocab_size or 0)
    d_model = int(model.main.d_model)
    sizes = {
        "embed_tokens": vocab + d_model,
        "lm_head": d_model + int(model.plain().vocab_size or 0),
    }
    for name in _EMBEDDINGS:
        if name in targets:
            yield both * symbol(f"widths_of_{name}", sizes[name], f"inputs and outputs of {name}")
