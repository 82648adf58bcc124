"""Encoders with scores of their own, compared with transformers' classes: DeBERTa, XLNet,
Longformer and LongT5.

Each class is built small and run on a CPU, where torch counts its FLOPs.
"""

from typing import Any

import pytest
from configs import spec_of
from tables import each

from attncalc import Workload, flops, params
from attncalc.errors import AttncalcError

torch = pytest.importorskip("torch")

HEADS, D_HEAD, LAYERS = 4, 12, 2
D = HEADS * D_HEAD
DEBERTA: dict[str, Any] = {
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
    "type_vocab_size": 0,
    "vocab_size": 100,
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_biased_input": False,
}
V1 = {"model_type": "deberta", "architectures": ["DebertaModel"], **DEBERTA}
V2 = {"model_type": "deberta-v2", "architectures": ["DebertaV2Model"], **DEBERTA}
XLNET = {
    "model_type": "xlnet",
    "architectures": ["XLNetModel"],
    "d_model": D,
    "n_layer": LAYERS,
    "n_head": HEADS,
}
XLNET |= {"d_inner": 96, "vocab_size": 100}
LONGFORMER: dict[str, Any] = {
    "model_type": "longformer",
    "architectures": ["LongformerModel"],
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 96,
    "attention_window": 8,
    "max_position_embeddings": 80,
    "type_vocab_size": 1,
    "vocab_size": 100,
}
LONGT5: dict[str, Any] = {
    "model_type": "longt5",
    "architectures": ["LongT5ForConditionalGeneration"],
    "d_model": D,
    "d_kv": D_HEAD,
    "d_ff": 96,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "local_radius": 7,
    "global_block_size": 4,
    "vocab_size": 100,
}


def class_of(config: dict[str, Any]) -> Any:
    fields = {
        key: value for key, value in config.items() if key not in ("model_type", "architectures")
    }
    transformers = pytest.importorskip("transformers")  # here, as importing it takes a second
    hf_config = transformers.AutoConfig.for_model(config["model_type"], **fields)
    return getattr(transformers, config["architectures"][0])(hf_config).eval().requires_grad_(False)


def counted(model: Any, **inputs: Any) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs)
    return int(counter.get_total_flops())


def tokens(batch: int, length: int) -> Any:
    return torch.randint(5, 90, (batch, length))


CLASSES = {
    "DeBERTa": V1,
    "DeBERTa with positions for queries alone": {**V1, "pos_att_type": "c2p"},
    "DeBERTa with few positions": {**V1, "max_relative_positions": 8},
    "DeBERTa without relative positions": {
        **V1,
        "relative_attention": False,
        "position_biased_input": True,
    },
    "DeBERTa to classify": {**V1, "architectures": ["DebertaForSequenceClassification"]},
    "DeBERTa to fill masks": {**V1, "architectures": ["DebertaForMaskedLM"]},
    "DeBERTa v2": V2,
    "DeBERTa v2 with keys of positions alone": {**V2, "pos_att_type": "c2p", "type_vocab_size": 2},
    "DeBERTa v2 with a convolution": {**V2, "conv_kernel_size": 3, "norm_rel_ebd": "layer_norm"},
    "DeBERTa v3": {
        **V2,
        "position_buckets": 16,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
    },
    "DeBERTa v3 to classify": {
        **V2,
        "position_buckets": 16,
        "share_att_key": True,
        "architectures": ["DebertaV2ForSequenceClassification"],
    },
    "XLNet": XLNET,
    "XLNet with a head": {**XLNET, "architectures": ["XLNetLMHeadModel"]},
    "XLNet to classify": {**XLNET, "architectures": ["XLNetForSequenceClassification"]},
}


@each("name", CLASSES)
def test_parameters_and_flops_are_those_of_the_class(name: str) -> None:
    config = CLASSES[name]
    model, spec = class_of(config), spec_of(config)
    assert params(spec).total == sum(parameter.numel() for parameter in model.parameters())
    for batch, length in ((1, 20), (3, 40)):
        expected = counted(model, input_ids=tokens(batch, length))
        assert flops(spec, Workload.prefill(batch, length)).total_dense == expected


def test_deberta_v3_projects_its_table_once_for_a_whole_batch() -> None:
    one, four = (
        flops(spec_of(CLASSES["DeBERTa v3"]), Workload.prefill(batch, 10)) for batch in (1, 4)
    )
    # W_q and W_k of 48 x 48 project 2 * 16 rows in each of 2 layers
    table = LAYERS * 2 * (2 * 16) * 2 * D * D
    assert four.projections - table == 4 * (one.projections - table)
    # each of 10 queries is scored with 10 keys, and their weights with V; and with 32 rows, as are
    # the keys
    assert one.scores == LAYERS * HEADS * 2 * D_HEAD * (2 * 10 * 10 + 2 * 10 * 32)


def test_published_deberta_v3_base_has_its_parameters() -> None:
    """DeBERTaV3 (arXiv:2111.09543), table 2: 86 million in the backbone, 98 in the embedding."""
    config = {
        **V2,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "vocab_size": 128_100,
        "position_buckets": 256,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
    }
    total = int(params(spec_of(config)).total)
    assert round((total - 128_100 * 768) / 1e6) in (85, 86)
    assert round(128_100 * 768 / 1e6) == 98


@pytest.mark.parametrize(
    "architecture",
    ["LongformerModel", "LongformerForMaskedLM", "LongformerForSequenceClassification"],
)
def test_longformer_counts_its_window_and_its_global_token(architecture: str) -> None:
    config = {**LONGFORMER, "architectures": [architecture]}
    model, spec = class_of(config), spec_of(config)
    assert params(spec).total == sum(parameter.numel() for parameter in model.parameters())
    batch, length, side = 2, 64, 4
    # The class multiplies chunks of 2 * side queries and keys, and then side rows of weights with 3
    # * side values.
    blocks = 2 * batch * LAYERS * D * ((length // side - 1) * (2 * side) ** 2 + length * 3 * side)
    spent = flops(spec, Workload.prefill(batch, length))
    # `side` keys on each side and the query itself; the first and the last queries see fewer
    pairs = length * (2 * side + 1) - side * (side + 1)
    window = 4 * batch * LAYERS * D * pairs
    theirs = counted(model, input_ids=tokens(batch, length))
    assert theirs - blocks == spent.total - window
    # the first token is seen by all and sees all, with its own projections
    has_global = architecture.endswith("Classification")
    assert spent.scores - window == (4 * batch * LAYERS * D * 2 * length if has_global else 0)


def test_longformer_may_have_another_window_in_each_layer() -> None:
    spec = spec_of({**LONGFORMER, "attention_window": [8, 16]})
    assert [int(layers.attention.span.reach or 0) for layers in spec.main.layers] == [5, 9]
    with pytest.raises(AttncalcError, match="attention_window"):
        spec_of({**LONGFORMER, "attention_window": [8, 16, 32]})


@pytest.mark.parametrize("kind", ["local", "transient-global"])
def test_longt5_counts_its_window_and_its_summaries(kind: str) -> None:
    config = {**LONGT5, "encoder_attention_type": kind}
    model, spec = class_of(config), spec_of(config)
    assert params(spec).total == sum(parameter.numel() for parameter in model.parameters())
    batch, source, target, block = 2, 48, 10, 8
    summaries = source // 4 if kind == "transient-global" else 0
    # The class multiplies blocks of 8 queries with 3 blocks of keys and the summaries, and adds the
    # tokens of each summary up by a product with a matrix of zeros and ones.
    blocks = 4 * batch * LAYERS * D * source * (3 * block + summaries)
    sums = 2 * batch * LAYERS * D * source * summaries
    inputs = {"input_ids": tokens(batch, source), "decoder_input_ids": tokens(batch, target)}
    spent = flops(spec, Workload.prefill(batch, target, source=source))
    (encoder,) = (group for group in spent.groups if "encoder" in group.group)
    assert counted(model, **inputs) - blocks - sums == spent.total_dense - encoder.scores_dense
    # 7 keys on each side, the query itself, and the summaries
    pairs = source * (2 * 7 + 1) - 7 * 8 + source * summaries
    assert encoder.scores == 4 * batch * LAYERS * D * pairs


@pytest.mark.parametrize("head", ["ForConditionalGeneration", "Model", "ForQuestionAnswering"])
def test_led_has_longformers_encoder_and_barts_decoder(head: str) -> None:
    config = {"model_type": "led", "architectures": [f"LED{head}"], "d_model": D, "vocab_size": 100}
    config |= {f"{side}_layers": LAYERS for side in ("encoder", "decoder")}
    config |= {f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")}
    config |= {f"{side}_ffn_dim": 96 for side in ("encoder", "decoder")}
    config |= {
        "attention_window": 8,
        "max_encoder_position_embeddings": 80,
        "max_decoder_position_embeddings": 40,
    }
    model, spec = class_of(config), spec_of(config)
    assert params(spec).total == sum(parameter.numel() for parameter in model.parameters())
    batch, source, target, side = 2, 64, 10, 4
    blocks = 2 * batch * LAYERS * D * ((source // side - 1) * (2 * side) ** 2 + source * 3 * side)
    inputs = {"input_ids": tokens(batch, source), "decoder_input_ids": tokens(batch, target)}
    spent = flops(spec, Workload.prefill(batch, target, source=source))
    (encoder,) = (group for group in spent.groups if "encoder" in group.group)
    if head == "ForConditionalGeneration":
        assert counted(model, **inputs) - blocks == spent.total_dense - encoder.scores_dense
    pairs = source * (2 * side + 1) - side * (side + 1)
    assert encoder.scores == 4 * batch * LAYERS * D * pairs
