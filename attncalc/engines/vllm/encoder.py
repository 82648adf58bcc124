"""What images and sounds take while vLLM measures its memory: the dummy items of the profile, and
their encoder.

Before the language model's pass, the profile encodes as many of the largest items as a step may
have. Their input and the encoder's output are held during that pass (profile_run in
v1/worker/gpu_model_runner.py). So the encoder's own tensors count only if they are larger than
those of the language model.
"""

import dataclasses
from collections.abc import Sequence

from ...model import Tower, TowerItem
from ...quantity import ceil_div, maximum, quantity, symbol
from ...units import GIB
from ..base import Limits
from ..runtime import RuntimeFacts, RuntimePart, Term
from .options import VllmArgs

_SOURCE = "multimodal/encoder_budget.py, the encoders' files in model_executor/models"
# _MULTIMODAL_MODEL_MAX_NUM_BATCHED_TOKENS (config.py) of the engine before V1.
_FEWEST_TOKENS_V0 = 5120
# Tensors as wide as the tower that are held at its peak: its first input, a layer's input, its norm
# and its output.
_HELD_WIDTHS = 4
_ROTATED = ("qwen2_5_vl", "qwen3_vl")
# Widths of Qwen2_5_VisionAttention in 0.11.1: q, k and v fused 3, q and k as a copy 2, in fp32
# before and after the rotation 8, and in 16 bits 2. A log of 0.11.0, with copies of all three, has
# no more.
_ROTATED_WIDTHS = 15
# Values of the pixels of one token with most encoders: patches of 14 x 14 in three colours, merged
# in fours.
_PIXELS = 28 * 28 * 3
_LARGEST_ENCODER = 4 * GIB
# Patches of Qwen3-VL's largest video, and the places of its 12,288 tokens with timestamps, 12.5 for
# each.
#
# The encoder's output is written to a tensor with a row per place (get_max_video_tokens in
# models/qwen3_vl.py).
_POSITIONS = 12_288 * 4
_PLACES = 12_288 * 25 // 2


def encoder(
    facts: RuntimeFacts[VllmArgs], passes: Sequence[RuntimePart]
) -> tuple[RuntimePart, tuple[Term, ...]] | None:
    """Return what the profile's items take, and the terms of its formula; None without an encoder,
    or an item.

    The language model's own pass, of which `passes` are the parts, begins after the encoder has
    freed its tensors.
    """
    if not facts.first or not facts.whole.towers or facts.args.skip_mm_profiling:
        return None
    width = facts.element_bytes
    tower = max(facts.whole.towers, key=lambda tower: tower.item.tokens if tower.item else 0)
    item = tower.item
    if item is None:
        return _unknown(facts, passes), ()
    # whose video is profiled, for its places
    is_qwen = (facts.whole.model_type or "").startswith("qwen3_vl")
    has_places = is_qwen and facts.args.version.scatters_videos and facts.args.limit("video") != 0
    if has_places:
        item = item._replace(tokens=_PLACES, positions=_POSITIONS)
    items = _items(facts, item)
    if not items:
        return None
    devices = 1
    if tower.split and tower.has_whole_heads(facts.args.tp):
        devices = facts.args.tp
    size = symbol("items", items, "items of the largest size that are encoded at once")
    positions = size * symbol("positions", item.positions, "patches or frames of one item")
    tokens = size * symbol("tokens", item.tokens, "tokens of one item")
    values = symbol("values", item.values, "values of one patch or frame")
    d_output = symbol("d_output", item.d_output, "width of the output")
    held = quantity((positions * values + tokens * d_output) * width)
    d_inside = item.d_inside
    is_rotated = (facts.whole.model_type or "").startswith(_ROTATED)
    if is_rotated and facts.args.version.rotates_images_in_fp32:
        d_inside = max(d_inside, _ROTATED_WIDTHS * item.d_model)
    inside = ceil_div(symbol("d_inside", d_inside, "widest tensors inside a layer"), devices)
    outside = _HELD_WIDTHS * symbol("d_tower", item.d_model, "width of the tower")
    encoding = quantity(positions * (values + outside + inside) * width)
    own = sum(int(part.expected) for part in passes)
    beyond = encoding - symbol("language_model", own, "bytes of the language model's pass")
    items_of = "largest video and its" if has_places else "images and their"
    if held >= beyond:
        label = f"{items_of} encoder's output"
    else:
        label = "encoder, beyond the language model"
    expected = held
    if beyond > held:
        expected = quantity(maximum(held, beyond))
    low = int(expected)
    high = max(low, int(encoding) * 13 // 10 - own)
    if not has_places:
        low = min(low, max(int(held) // 4, int(encoding) * 3 // 4 - own))
        high = max(high, 2 * int(held))
    source = f"vLLM {facts.args.version.name}, {_SOURCE}"
    part = RuntimePart("encoder", label, low, expected, high, source)
    return part, (("encoder_bytes", "tensors of the encoder", encoding),)


def reads(args: VllmArgs, tower: Tower) -> bool:
    """Return whether prompts may have items of that tower: some kind is not limited to 0
    (get_limit_per_prompt).
    """
    if tower.name != "vision":
        return args.limit(tower.name) != 0
    has_videos = tower.item is None or tower.item.repeats > 1
    return args.limit("image") != 0 or (has_videos and args.limit("video") != 0)


def divides_tower(tp: int, tower: Tower) -> bool:
    """Return whether tensor parallelism divides the heads and the MLPs of the tower evenly, as far
    as is known.

    At a layer that it cannot divide vLLM stops ("12 is not divisible by 8",
    github.com/vllm-project/vllm/issues/24004), or has the whole tower on each GPU. Heads that a
    tower of InternVL then has on each GPU are no obstacle.
    """
    if not tower.split:
        return True
    heads = tower.has_whole_heads(tp) or bool(tower.attention and tower.attention.whole)
    return heads and (tower.item is None or tower.item.d_inside % tp == 0)


def _items(facts: RuntimeFacts[VllmArgs], item: TowerItem) -> int:
    """Return how many items of that size are encoded at once; a video may count as several images.

    A step's budget is max_num_batched_tokens, or one item if it is larger
    (compute_mm_encoder_budget).
    """
    version = facts.args.version
    if version.v0:
        return facts.limits.max_num_batched_tokens // _tokens_v0(item) * _images_v0(item)
    room = facts.context - (item.tokens if version.videos_leave_room_for_image else 0)
    has_videos = item.repeats > 1 and facts.args.limit("video") != 0
    repeats = min(item.repeats, max(1, room // item.tokens)) if has_videos else 1
    tokens = repeats * item.tokens
    of_budget = max(facts.limits.max_num_batched_tokens, tokens) // tokens
    of_prompt = max(1, facts.context // tokens)
    limit = facts.args.limit("video" if has_videos else "image")
    of_sequences = facts.limits.max_num_seqs * (min(of_prompt, limit) if limit else of_prompt)
    return repeats * min(of_budget, of_sequences)


def with_limits_of_profile(facts: RuntimeFacts[VllmArgs]) -> RuntimeFacts[VllmArgs]:
    """Return the facts with the tokens and sequences that the profile has.

    Before V1, a model with images has as many sequences as fit with one item of each kind, and at
    least 5,120 tokens (profile_run in worker/model_runner.py). If no item fits, one sequence of
    text is run.
    """
    items = [tower.item for tower in facts.whole.towers if tower.item]
    if not facts.args.version.v0 or not items:
        return facts
    tokens = facts.limits.max_num_batched_tokens
    if facts.args.max_num_batched_tokens is None:
        tokens = max(tokens, _FEWEST_TOKENS_V0)
    with_items = tokens // max(_tokens_v0(item) for item in items)
    sequences = max(1, min(facts.limits.max_num_seqs, with_items))
    return dataclasses.replace(facts, limits=Limits(tokens, sequences))


def _tokens_v0(item: TowerItem) -> int:
    """Return the tokens of one item of each kind, as one sequence has them: an image, and a video
    as large.
    """
    return item.tokens * _images_v0(item)


def _images_v0(item: TowerItem) -> int:
    if item.repeats > 1:
        return 2
    return 1


def _unknown(facts: RuntimeFacts[VllmArgs], passes: Sequence[RuntimePart]) -> RuntimePart:
    """Return the memory of items of which nothing is known: a step full of images of 28 x 28 pixels
    per token.

    No log has an encoder that takes more than 4 GiB.
    """
    tokens = symbol("N", facts.limits.max_num_batched_tokens, "max_num_batched_tokens")
    d_model = symbol("d_model", facts.whole.main.d_model, "width of the model")
    values = d_model + symbol("pixels", _PIXELS, "values of a token's pixels")
    size = quantity(tokens * values * facts.element_bytes)
    high = max(2 * int(size), _LARGEST_ENCODER - sum(int(part.expected) for part in passes))
    source = f"vLLM {facts.args.version.name}, {_SOURCE}"
    return RuntimePart(
        "encoder", "images and their encoder's output", int(size) // 4, size, high, source
    )
