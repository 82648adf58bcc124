"""The keys and tensors of a whole GGUF model: its files, the windows of its layers, and what is
outside the blocks.
"""

from typing import Any

import pytest
from asking import refusal
from tables import each
from test_gguf_blocks import BLOCK, EXPERTS, KEYS, OUTER, QKV, D, Tensors, named

from attncalc import ModelSpec
from attncalc.checkpoint import CheckpointWeights
from attncalc.config.build import build_model
from attncalc.config.gguf.header import GgufHeader, GgufTensor
from attncalc.config.gguf.model import gguf_document, stored_weights
from attncalc.ggml import TYPES_BY_NAME

F16, F32, Q8_0 = (TYPES_BY_NAME[name] for name in ("F16", "F32", "Q8_0"))


def header(
    tensors: Tensors,
    keys: dict[str, Any] | None = None,
    architecture: str = "llama",
    **metadata: Any,
) -> GgufHeader:
    given = {
        f"{architecture}.{key}": value
        for key, value in {**KEYS, **(keys or {})}.items()
        if value is not None
    }
    stored = tuple(GgufTensor(named(name), shape, F16, 0) for name, shape in tensors.items())
    general = {name.replace("__", "."): value for name, value in metadata.items()}
    return GgufHeader(
        "m.gguf", 3, {"general.architecture": architecture, **given, **general}, stored, 0
    )


def blocks(layers: int, of_blocks: Tensors = BLOCK) -> Tensors:
    return {f"blk.{i}.{name}": shape for i in range(layers) for name, shape in of_blocks.items()}


def data_of(*headers: GgufHeader) -> dict[str, Any]:
    return gguf_document(headers, "m")[0].data


def message(*headers: GgufHeader) -> str:
    return refusal(data_of, *headers).message


def model_of(architecture: str, keys: dict[str, Any], layers: int) -> ModelSpec:
    tensors = {**OUTER, **blocks(layers)}
    found = header(tensors, {**keys, "block_count": layers}, architecture)
    return build_model(gguf_document([found], "m")[0], "m")


# Windows


@each(
    ("architecture", "keys", "layers", "full", "label"),
    [
        ("gemma2", {}, 4, [1, 3], "window 4,096"),
        ("gemma2", {"sliding_window": 100}, 4, [1, 3], "window 100"),
        ("gemma3", {"sliding_window": 1}, 7, [5], "window 1"),
        ("gemma3", {"sliding_window": 100}, 12, [5, 11], "window 100"),
        ("gemma3", {}, 3, [0, 1, 2], ""),
        ("gemma3", {"sliding_window": 0}, 3, [0, 1, 2], ""),
        ("gemma3", {"sliding_window": 9, "sliding_window_pattern": 0}, 3, [], "window 9"),
        ("gemma3", {"sliding_window": 9, "sliding_window_pattern": 1}, 3, [0, 1, 2], ""),
        ("gemma3", {"sliding_window": 9, "sliding_window_pattern": 3}, 7, [2, 5], "window 9"),
        (
            "gemma3",
            {"sliding_window": 9, "sliding_window_pattern": [1, 0, 0, 1]},
            4,
            [1, 2],
            "window 9",
        ),
        (
            "gemma4",
            {"sliding_window": 9, "sliding_window_pattern": [True, False, True]},
            3,
            [1],
            "window 9",
        ),
        ("gemma4", {"sliding_window": 9, "sliding_window_pattern": 2}, 4, [1, 3], "window 9"),
        ("smallthinker", {}, 9, [0, 4, 8], "window 4,096"),
        ("smallthinker", {"sliding_window": 100}, 5, [0, 4], "window 4,096"),
        ("exaone4", {"sliding_window": 100}, 63, list(range(63)), ""),
        ("exaone4", {}, 64, list(range(3, 64, 4)), "window 4,096"),
        ("exaone4", {"sliding_window": 100}, 64, list(range(3, 64, 4)), "window 100"),
        ("exaone4", {"sliding_window": 100}, 65, list(range(65)), ""),
        ("exaone-moe", {}, 4, [3], "window 128"),
        ("llama4", {}, 5, [3], "chunk 8,192"),
        ("llama4", {"sliding_window": 100}, 4, [3], "chunk 8,192"),
        ("llama4", {"sliding_window": 0}, 2, [0, 1], ""),
        ("lfm2", {"sliding_window": 9}, 3, [], "window 9"),
        ("lfm2", {"sliding_window": 9, "sliding_window_pattern": 3}, 3, [], "window 9"),
        ("llama", {"sliding_window": 9}, 2, [0, 1], ""),
    ],
)
def test_the_architecture_and_the_keys_decide_which_layers_have_a_window(
    architecture: str, keys: dict[str, Any], layers: int, full: list[int], label: str
) -> None:
    """set_swa_pattern in llama.cpp's src/llama-hparams.cpp, and load_arch_hparams in
    src/models/*.cpp.
    """
    model = model_of(
        architecture, {f"attention.{key}": value for key, value in keys.items()}, layers
    )
    labels = [
        str(group.attention.span.label) for group in model.main.layers for _ in range(group.count)
    ]
    assert [i for i, found in enumerate(labels) if found == "full"] == full
    assert {found for found in labels if found != "full"} == ({label} if label else set())


def test_an_architecture_whose_files_have_the_pattern_needs_it() -> None:
    found = header({**OUTER, **blocks(2)}, {"attention.sliding_window": 9}, "gemma4")
    assert message(found) == "m.gguf: the key gemma4.attention.sliding_window_pattern is missing"


@pytest.mark.parametrize(
    ("architecture", "size", "noted"),
    [
        ("llama", 1000, True),
        ("llama", 0, False),
        ("llama", None, False),
        ("exaone4", 1000, True),
        ("gemma2", 5, False),
    ],
)
def test_windows_that_llama_cpp_stores_as_full_attention_are_noted(
    architecture: str, size: int | None, noted: bool
) -> None:
    data = data_of(header({**OUTER, **blocks(2)}, {"attention.sliding_window": size}, architecture))
    note = (
        "The file has sliding windows of 1,000 tokens. llama.cpp stores the whole context for "
        f"{architecture}."
    )
    assert data.get("notes", []) == [note] * noted


@pytest.mark.parametrize(("shared", "owners"), [(None, 6), (0, 6), (1, 5), (4, 2)])
def test_the_last_layers_share_a_cache(shared: int | None, owners: int) -> None:
    model = model_of("gemma4", {"attention.shared_kv_layers": shared}, 6)
    shares = [
        bool(group.attention.shares_kv)  # type: ignore[attr-defined]
        for group in model.main.layers
        for _ in range(group.count)
    ]
    assert shares == [False] * owners + [True] * (6 - owners)


def test_matrices_of_attention_need_heads() -> None:
    assert "its keys give it no heads" in message(
        header(
            {**OUTER, **blocks(2)}, {"attention.head_count": None, "attention.head_count_kv": None}
        )
    )


def test_experts_need_the_number_that_a_token_uses() -> None:
    sparse = {**QKV, **EXPERTS}
    data = data_of(header({**OUTER, **blocks(2, sparse)}, {"expert_used_count": 2}))
    assert (data["n_experts"], data["n_experts_per_token"]) == (6, 2)
    assert "expert" in message(header({**OUTER, **blocks(2, sparse)}))


# Files


def parts(number: int, **split: Any) -> list[GgufHeader]:
    """Return the headers of a model in several files; only the first one has the model's keys."""
    tensors = list({**OUTER, **blocks(2)}.items())
    first = header(
        dict(tensors[::number]), **{f"split__{key}": value for key, value in split.items()}
    )
    others = [
        header(dict(tensors[i::number]), architecture="another")._replace(file=f"m{i}.gguf")
        for i in range(1, number)
    ]
    return [first, *others]


TENSORS = len(OUTER) + 2 * len(BLOCK)


@each(
    ("files", "split", "error"),
    [
        (1, {}, ""),
        (1, {"count": 0}, ""),
        (1, {"count": 1}, ""),
        (1, {"count": 2}, "m.gguf: one of 2 files, whose names do not end in -00001-of-00002.gguf"),
        (
            1,
            {"count": 12},
            "m.gguf: one of 12 files, whose names do not end in -00001-of-00012.gguf",
        ),
        (1, {"count": "2"}, ""),
        (1, {"tensors__count": TENSORS + 1}, ""),
        (2, {}, ""),
        (2, {"count": 1}, ""),
        (2, {"count": 2, "tensors__count": TENSORS}, ""),
        (2, {"count": 3}, "m.gguf: one of 3 files, whose names do not end in -00001-of-00003.gguf"),
        (3, {"count": 2}, "m.gguf: one of 2 files, whose names do not end in -00001-of-00002.gguf"),
        (
            2,
            {"tensors__count": TENSORS - 1},
            f"m.gguf: the files have {TENSORS} tensors, and not {TENSORS - 1}",
        ),
        (
            2,
            {"tensors__count": TENSORS + 1},
            f"m.gguf: the files have {TENSORS} tensors, and not {TENSORS + 1}",
        ),
        (
            3,
            {"tensors__count": TENSORS + 1},
            f"m.gguf: the files have {TENSORS} tensors, and not {TENSORS + 1}",
        ),
        (2, {"tensors__count": "9"}, ""),
    ],
)
def test_the_files_are_all_parts_of_one_model(
    files: int, split: dict[str, Any], error: str
) -> None:
    headers = parts(files, **split)
    if error:
        assert message(*headers) == error
    else:
        assert data_of(*headers)["n_layers"] == 2


def test_a_tensor_in_two_files_is_an_error() -> None:
    first, second = parts(2)
    twice = second._replace(tensors=(*second.tensors, first.tensors[0]))
    assert message(first, twice) == f"m.gguf: the tensor {first.tensors[0].name} is in m1.gguf too"


def test_weights_are_added_by_type_and_have_their_places() -> None:
    """64 x 3 fp16 elements have 384 B; 32 q8_0 elements 34 B; a scalar is a row of one element."""
    one = (GgufTensor("a", (64, 3), F16, 0), GgufTensor("b", (32,), Q8_0, 384))
    two = (
        GgufTensor("c", (), F32, 0),
        GgufTensor("d", (64, 2), F16, 32),
        GgufTensor("e", (97,), F32, 64),
    )
    weights = stored_weights([GgufHeader("1", 3, {}, one, 1000), GgufHeader("2", 3, {}, two, 2000)])
    assert isinstance(weights, CheckpointWeights)
    assert (weights.files, weights.tensors, weights.size, weights.kind) == (
        2,
        5,
        640 + 392 + 34,
        "GGUF",
    )
    assert [(stored.name, stored.elements, stored.size) for stored in weights.by_dtype] == [
        ("F16", 320, 640),
        ("F32", 98, 392),
        ("Q8_0", 32, 34),
    ]
    assert [tuple(tensor) for tensor in weights.contents] == [
        ("a", "F16", 64, 384, 0, 1000),
        ("b", "Q8_0", 32, 34, 0, 1384),
        ("c", "F32", 1, 4, 1, 2000),
        ("d", "F16", 64, 256, 1, 2032),
        ("e", "F32", 97, 388, 1, 2064),
    ]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("adapter", "m.gguf: a LoRA adapter, which goes with a model: name the model's own file"),
        ("imatrix", "m.gguf: statistics for quantization, and no model"),
    ],
)
def test_a_file_that_is_no_model_is_an_error(kind: str, error: str) -> None:
    assert message(header({**OUTER, **blocks(2)}, general__type=kind)) == error
    assert data_of(header({**OUTER, **blocks(2)}, general__type="model"))["n_layers"] == 2


# Layers and what is outside them


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"block_count": 0}, "has 0 layers, and not 1 to 2,000"),
        ({"block_count": 2001}, "has 2,001 layers, and not 1 to 2,000"),
        ({"nextn_predict_layers": 2}, "multi-token prediction only"),
        ({"nextn_predict_layers": 3}, "multi-token prediction only"),
    ],
)
def test_a_model_has_1_to_2000_layers(keys: dict[str, Any], error: str) -> None:
    assert error in message(header({**OUTER, **blocks(2)}, keys))


def test_a_model_of_2000_layers_is_read() -> None:
    """The error is about the third block, whose tensors are missing."""
    assert "layers, and not" not in message(header({**OUTER, **blocks(2)}, {"block_count": 2000}))
    assert data_of(header({**OUTER, **blocks(1)}, {"block_count": 1}))["n_layers"] == 1


def test_several_layers_for_multi_token_prediction_are_counted() -> None:
    data = data_of(header({**OUTER, **blocks(4)}, {"block_count": 4, "nextn_predict_layers": 2}))
    assert (data["n_layers"], list(data["extra_params"])) == (2, ["nextn_2", "nextn_3"])
    assert data["notes"][0].startswith(
        "Multi-token prediction has 2 layers, which llama.cpp loads only"
    )


def test_no_layer_for_multi_token_prediction_is_a_key_too() -> None:
    assert data_of(header({**OUTER, **blocks(2)}, {"nextn_predict_layers": 0}))["n_layers"] == 2


def test_a_block_beyond_the_last_is_an_error() -> None:
    assert message(header({**OUTER, **blocks(3)})) == "m.gguf: has a block 2, but 2 layers"


@pytest.mark.parametrize(
    ("outer", "expected"),
    [
        ({}, {"final_norm": False, "embedding_norm": None}),
        ({"output_norm": (D,)}, {"final_norm": None, "embedding_norm": None}),
        ({"token_embd_norm": (D,)}, {"final_norm": False, "embedding_norm": True}),
    ],
)
def test_the_norms_outside_the_blocks_are_found_by_their_names(
    outer: Tensors, expected: dict[str, bool | None]
) -> None:
    data = data_of(header({"token_embd": (D, 40), **outer, **blocks(2)}))
    assert {key: data.get(key) for key in expected} == expected


def test_the_final_norm_of_lfm2_has_the_name_of_the_embeddings() -> None:
    """convert_hf_to_gguf.py maps LFM2's embedding_norm, which follows the last layer, to
    token_embd_norm.
    """
    for architecture in ("lfm2", "lfm2moe"):
        data = data_of(
            header(
                {"token_embd": (D, 40), "token_embd_norm": (D,), **blocks(2)},
                architecture=architecture,
            )
        )
        assert (data.get("final_norm"), data.get("embedding_norm")) == (None, None)


def test_a_model_with_one_norm_and_its_bias_has_layernorms() -> None:
    plain = blocks(2, {name: shape for name, shape in BLOCK.items() if "norm" not in name})
    only = {"token_embd": (D, 40), "output_norm": (D,), "output_norm.bias": (D,), **plain}
    data = data_of(header(only))
    assert (data["norm"], data.get("extra_params")) == ("layernorm", None)
    beside = {**only, "token_embd_norm": (D,)}
    data = data_of(header(beside))
    assert (data["norm"], data.get("extra_params")) == ("rmsnorm", {"output_norm_bias": [D]})


def test_more_biases_than_norms_are_no_layernorms() -> None:
    """One norm, and two biases of 64 elements in the blocks."""
    plain = {name: shape for name, shape in BLOCK.items() if "norm" not in name}
    biased = blocks(2, {**plain, "attn_norm.bias": (D,)})
    data = data_of(header({"token_embd": (D, 40), "output_norm": (D,), **biased}))
    assert (data["norm"], data["extra_params"]) == ("rmsnorm", {"norm_biases": [2 * D]})


@pytest.mark.parametrize("elements", [D - 1, D + 1])
def test_a_norm_of_another_width_is_an_error(elements: int) -> None:
    found = header({"token_embd": (D, 40), "output_norm": (elements,), **blocks(2)})
    assert message(found) == f"m.gguf: output_norm.weight has {elements} elements"


@pytest.mark.parametrize(("width", "d_embedding"), [(D, None), (D - 8, D - 8), (D + 8, D + 8)])
def test_an_embedding_of_another_width_is_named(width: int, d_embedding: int | None) -> None:
    data = data_of(header({"token_embd": (width, 40), "output_norm": (D,), **blocks(2)}))
    assert data.get("d_embedding") == d_embedding


@pytest.mark.parametrize("vocabulary", [0, 39, 41])
def test_the_embedding_has_a_row_per_token(vocabulary: int) -> None:
    found = header({**OUTER, **blocks(2)}, {"vocab_size": vocabulary})
    assert (
        message(found)
        == f"m.gguf: token_embd.weight has 40 rows, and the vocabulary {vocabulary} tokens"
    )
    assert data_of(header({**OUTER, **blocks(2)}, {"vocab_size": 40}))["vocab_size"] == 40


def test_sizes_outside_the_blocks_are_whole_numbers() -> None:
    outer = {
        **OUTER,
        "token_types": (D, 2),
        "position_embd": (D, 9),
        "per_layer_model_proj": (D, 48),
    }
    data = data_of(header({**outer, **blocks(2)}))
    sizes = [
        data["token_types"],
        data["learned_positions"],
        *data["outside_matrices"]["layers_projection"],
    ]
    assert sizes == [2, 9, D, 48]
    assert {type(size) for size in sizes} == {int}


def test_a_model_has_the_name_in_its_file_or_that_of_the_file() -> None:
    assert data_of(header({**OUTER, **blocks(2)}, general__name="A model"))["title"] == "A model"
    assert data_of(header({**OUTER, **blocks(2)}))["title"] == "m"


def test_encoders_and_models_without_a_causal_mask_have_no_head() -> None:
    for found in (
        header({**OUTER, **blocks(2)}, architecture="llama-embed"),
        header({**OUTER, **blocks(2)}, architecture="gemma-embedding"),
        header({**OUTER, **blocks(2)}, architecture="modern-bert"),
        header({**OUTER, **blocks(2)}, {"attention.causal": False}),
    ):
        data = data_of(found)
        assert (data["mask"], data["head"]) == ("bidirectional", "none")
    assert "mask" not in data_of(header({**OUTER, **blocks(2)}, {"attention.causal": True}))
