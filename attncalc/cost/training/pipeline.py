"""How trainers cut a model's layers into the stages of a pipeline."""

from ...errors import AttncalcError
from ...records import NamedTuple


class StageLayers(NamedTuple):
    """The layers of each stage of a pipeline."""

    sizes: tuple[int, ...]  # layers of each stage, in the order of the layers
    how: str = ""  # who cuts them so, in words; '' for equal stages


def stage_layers(layers: int, parts: int, tip: str, *, is_fsdp: bool) -> StageLayers:
    """Return the layers of `parts` stages. `tip` is that of the error.

    With FSDP they are torchtitan's (generate_llm_fqn_per_model_part in
    torchtitan/distributed/pipeline_parallel.py): the embedding counts as a layer of the first
    stage, norm and head as one of the last, and the first stages get one more.

    Others are Megatron's (megatron/core/transformer/transformer_block.py, get_num_layers_to_build),
    whose stages are equal unless options say otherwise. If equal stages are not possible, its usual
    options are assumed: 126 layers in 8 stages are 15, 6 x 16, 15, as Llama 3.1 405B is trained;
    61 in 16 are 15 x 4, 1, as in Megatron-Bridge's recipe of DeepSeek-V3.

    Raises AttncalcError if a stage would have no layer.
    """
    found = _of_torchtitan(layers, parts) if is_fsdp else _of_megatron(layers, parts)
    if min(found.sizes) < 1:
        raise AttncalcError(f"{parts} stages of {layers} layers: a stage would have no layer", tip)
    return found


def most_stages(layers: int, *, is_fsdp: bool) -> int:
    """Return the most stages that all have a layer: with FSDP the first and the last need two
    places.
    """
    if is_fsdp:
        return (layers + 2) // 2
    return layers


def _of_torchtitan(layers: int, parts: int) -> StageLayers:
    how = (
        "torchtitan counts the embedding as a layer of the first stage, the head as one of the last"
    )
    return StageLayers(_beside_ends(layers, parts), how)


def _of_megatron(layers: int, parts: int) -> StageLayers:
    if layers % parts == 0:
        return StageLayers((layers // parts,) * parts)
    if (layers + 2) % parts == 0:
        how = (
            "so Megatron cuts with --account-for-embedding-in-pipeline-split and "
            "--account-for-loss-in-pipeline-split"
        )
        return StageLayers(_beside_ends(layers, parts), how)
    most = -(-layers // parts)
    last = layers - most * (parts - 1)
    if last > 0:
        how = (
            "the last has fewer, as in Megatron-Bridge's recipes (--pipeline-model-parallel-layout)"
        )
        return StageLayers((most,) * (parts - 1) + (last,), how)
    how = "this is assumed: Megatron needs a --pipeline-model-parallel-layout for it"
    return StageLayers(tuple(_one_more_first(layers, parts)), how)


def _beside_ends(layers: int, parts: int) -> tuple[int, ...]:
    """Return stages in which the embedding has the place of a layer of the first one, and the head
    that of one of the last.
    """
    sizes = _one_more_first(layers + 2, parts)
    sizes[0] -= 1
    sizes[-1] -= 1
    return tuple(sizes)


def _one_more_first(layers: int, parts: int) -> list[int]:
    """Return equal parts, of which the first ones have one more: 10 in 4 are 3, 3, 2, 2."""
    per, more = divmod(layers, parts)
    return [per + 1] * more + [per] * (parts - more)
