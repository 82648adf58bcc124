"""GGUF files: headers as the `gguf` package writes them, models of every architecture, and files
that are not valid.
"""

import math
import os
import struct
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import gguf
import pytest
from asking import REPOSITORY, Ask, refusal, results
from gguf_files import (
    CONTEXT,
    D_HEAD,
    D_V,
    HEADS,
    KV_HEADS,
    LATENT,
    LAYERS,
    NOPE,
    ROPE,
    VOCAB,
    Bytes,
    Shapes,
    SmallModel,
    write_gguf,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, load
from attncalc.config import to_model_file
from attncalc.config.data_files import words
from attncalc.config.folder import LocalFile
from attncalc.config.gguf.architectures import ARCHITECTURES, UNSUPPORTED
from attncalc.config.gguf.files import local_gguf
from attncalc.config.gguf.header import FIRST_READ, LIMIT, ArrayLength, read_header
from attncalc.config.gguf.keys import KNOWN_KEYS
from attncalc.config.gguf.model import read_document
from attncalc.cost.cache import layer_cache_specs
from attncalc.cost.params import params
from attncalc.ggml import GGML_TYPES, TYPES_BY_NAME
from attncalc.model import ModelSpec

sys.path.append(str(REPOSITORY / "tools"))
gguf_keys = import_module("gguf_keys")

Type = gguf.GGMLQuantizationType
OF_THE_PACKAGE = [name for name in ARCHITECTURES if name in gguf.MODEL_ARCH_NAMES.values()]
LLAMA_KEYS: dict[str, Any] = {
    "block_count": 2,
    "context_length": 64,
    "embedding_length": 256,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}
LLAMA_SHAPES: Shapes = {
    "token_embd.weight": (256, 40),
    "output_norm.weight": (256,),
    **{
        f"blk.{i}.{name}.weight": shape
        for i in range(2)
        for name, shape in (
            ("attn_norm", (256,)),
            ("attn_q", (256, 256)),
            ("attn_k", (256, 128)),
            ("attn_v", (256, 128)),
            ("attn_output", (256, 256)),
            ("ffn_norm", (256,)),
            ("ffn_gate", (256, 512)),
            ("ffn_up", (256, 512)),
            ("ffn_down", (512, 256)),
        )
    },
}


def small_llama(
    path: Path, keys: dict[str, Any] | None = None, shapes: dict[str, Any] | None = None
) -> Path:
    """Write a file of 2 layers. A shape of None leaves the tensor out."""
    changed = {
        name: shape
        for name, shape in {**LLAMA_SHAPES, **(shapes or {})}.items()
        if shape is not None
    }
    return write_gguf(path, "llama", {**LLAMA_KEYS, **(keys or {})}, changed)


def packed(version: int = 3, tensors: int = 0, keys: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def test_a_key_that_llama_cpp_does_not_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AttncalcError, match=r"the key llama\.n_loops is not one of llama.cpp's"):
        load(small_llama(tmp_path / "a.gguf", {"n_loops": 2}))
    # no key of RoPE changes a figure
    load(small_llama(tmp_path / "b.gguf", {"rope.some_new_factor": 2}))


def test_the_keys_of_the_gguf_package_are_known() -> None:
    classes = [gguf.Keys, *(value for value in vars(gguf.Keys).values() if isinstance(value, type))]
    names = {
        name
        for known in classes
        for name in vars(known).values()
        if str(name).startswith("{arch}.")
    }
    names = {name.removeprefix("{arch}.").replace("{dense}", "dense_2") for name in names}
    assert len(names) > 100
    assert {name for name in names if not name.startswith("rope.")} <= words(KNOWN_KEYS)


def test_known_keys_are_read_from_llama_arch_cpp_and_from_the_library() -> None:
    source = b'{ LLM_KV_KDA_HEAD_DIM, "%s.kda.head_dim" },\n{ LLM_KV_PLE_LAYERS, "%s.ple.layers" },'
    library = b"\0%s.kda.head_dim\0%s.ple.layers\0%s..\0%s.Block\0no %s.key\0"
    assert gguf_keys.keys_of(source) == gguf_keys.keys_of(library) == {"kda.head_dim", "ple.layers"}
    text = gguf_keys.text_of({"ple.layers", "kda.head_dim", "rope.freq_base"}, "b11739")
    assert text.splitlines()[-1] == "kda.head_dim ple.layers"


def test_keys_that_llama_cpp_added_until_b11739_are_known() -> None:
    added = {"expert_latent_length", "attention.indexer.types", "attention.indexer.block_size"}
    added |= {"hyper_connection.magnitude", "kda.safe_gate", "ple.layers", "decision.block_count"}
    assert added <= words(KNOWN_KEYS)


# The format


# Q8_1, of which no file has tensors, is 40 bytes in the package and 36 in ggml-common.h; Q2_0 is
# newer.
NOT_OF_THE_PACKAGE = {"Q8_1", "Q2_0"}


def test_types_have_the_blocks_of_the_gguf_package() -> None:
    theirs = {(int(number), number.name, *sizes) for number, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {tuple(known) for known in GGML_TYPES.values()}
    assert {name for _, name, *_ in ours ^ theirs} == NOT_OF_THE_PACKAGE


@each("name", sorted(TYPES_BY_NAME.keys() - NOT_OF_THE_PACKAGE))
def test_tensors_have_the_bytes_of_the_file(tmp_path: Path, name: str) -> None:
    types = dict.fromkeys("ab", getattr(Type, name))
    path = write_gguf(tmp_path / "m.gguf", "llama", {}, {"a": (512, 3), "b": (768,)}, types)
    header = read_header(LocalFile(path))
    assert [
        (t.name, t.type.name, t.elements, t.size, t.offset + header.data_start)
        for t in header.tensors
    ] == [
        (t.name, t.tensor_type.name, t.n_elements, t.n_bytes, t.data_offset)
        for t in gguf.GGUFReader(path).tensors
    ]


def test_keys_are_those_of_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a", 255)
    writer.add_int8("b", -1)
    writer.add_uint16("c", 65535)
    writer.add_int16("d", -2)
    writer.add_int32("e", -3)
    writer.add_uint64("f", 2**40)
    writer.add_int64("g", -(2**40))
    writer.add_float64("h", 0.25)
    writer.add_float32("i", 0.5)
    writer.add_bool("j", True)
    writer.add_string("k", "a\nb")
    writer.add_array("l", [1, -2])
    writer.add_array("m", [True, False])
    writer.add_array("n", ["x", "", "z"])
    writer.add_array("o", list(range(10_001)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    metadata = read_header(LocalFile(path)).metadata
    assert metadata == {
        "general.architecture": "llama",
        "a": 255,
        "b": -1,
        "c": 65535,
        "d": -2,
        "e": -3,
        "f": 2**40,
        "g": -(2**40),
        "h": 0.25,
        "i": 0.5,
        "j": True,
        "k": "a\nb",
        "l": [1, -2],
        "m": [True, False],
        "n": ArrayLength(3),
        "o": ArrayLength(10_001),
    }


def test_a_header_is_read_in_growing_ranges_and_no_byte_twice(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", "llama", LLAMA_KEYS, LLAMA_SHAPES, tokens=400_000, data=False
    )
    source = Bytes(path.read_bytes())
    assert source.content[:4] == b"GGUF"
    assert len(source.content) > 4 * FIRST_READ
    header = read_header(source)
    assert header.metadata["tokenizer.ggml.tokens"] == ArrayLength(400_000)
    assert [start for start, _ in source.reads] == [0, *(end for _, end in source.reads[:-1])]
    assert source.reads[:3] == [
        (0, FIRST_READ),
        (FIRST_READ, 2 * FIRST_READ),
        (2 * FIRST_READ, 4 * FIRST_READ),
    ]
    assert source.reads[-1][1] < 2 * len(source.content)


def test_a_short_first_range_is_enough_for_a_short_header(tmp_path: Path) -> None:
    source = Bytes(small_llama(tmp_path / "m.gguf").read_bytes())
    read_header(source)
    assert source.reads == [(0, FIRST_READ)]


HOSTILE = {
    "empty": (b"", "the file ends in its header"),
    "cut off": (packed(keys=1), "the file ends in its header"),
    "long text": (
        packed(keys=1, rest=text(b"k") + struct.pack("<IQ", 8, 2**60)),
        "more than 33,554,432 bytes",
    ),
    "a long text in an array": (
        packed(keys=1, rest=text(b"k") + struct.pack("<IIQQ", 9, 8, 2, 2**64 - 1)),
        "more than 33,554,432 bytes",
    ),
    "many numbers": (
        packed(keys=1, rest=text(b"k") + struct.pack("<IIQ", 9, 4, 2**60)),
        "more than 33,554,432",
    ),
}


@each("content", HOSTILE.values(), ids=HOSTILE)
@each("is_known", [True, False], ids=["with a known size", "with an unknown size"])
def test_a_file_that_is_not_valid_is_one_error(content: tuple[bytes, str], is_known: bool) -> None:
    source = Bytes(content[0], len(content[0]) if is_known else None)
    error = refusal(read_header, source)
    expected = content[1]
    if is_known and "more than 33" in expected:  # longer than the file already
        expected = "the file ends in its header"
    assert expected in error.message
    assert error.message.startswith("memory.gguf: ")
    assert error.tip
    assert sum(end - start for start, end in source.reads) <= LIMIT


def test_an_endless_remote_header_stops_at_the_limit() -> None:
    class Endless:
        name = "endless.gguf"
        size: int | None = None

        def read(self, start: int, end: int) -> bytes:
            head = packed(keys=1, rest=text(b"k") + struct.pack("<IIQ", 9, 8, 2_000_000))
            return (
                (head + struct.pack("<Q", 1000) * 2**17)[: end - start]
                if not start
                else b"\x08" * (end - start)
            )

    with pytest.raises(AttncalcError, match="more than 33,554,432 bytes"):
        read_header(Endless())


def outcome(source: Bytes) -> str:
    """Return the error of a file, or the title of its model."""
    try:
        return str(read_document([source], "m")[0].data["title"])
    except AttncalcError as error:
        return error.message


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_change_of_a_header_is_read_or_one_error(
    data: st.DataObject, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    small_llama(path)
    content = bytearray(path.read_bytes())[:2000]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    assert "\n" not in outcome(Bytes(bytes(content[: max(cut, 100)])))


# Models


def kv_elements(model: ModelSpec) -> int:
    """Return the elements of K, V and latents of one token in all layers with a cache."""
    return sum(
        spec.layers * int(cached.rows) * int(cached.width)
        for spec in layer_cache_specs(model.plain())
        for cached in spec.cached
        if cached.per == "token"
    )


@each("name", OF_THE_PACKAGE)
def test_every_architecture_is_read_to_the_element(tmp_path: Path, name: str) -> None:
    small = SmallModel(name)
    shapes = small.shapes()
    model = load(write_gguf(tmp_path / "m.gguf", name, small.keys(), shapes, tokens=VOCAB))
    elements = sum(math.prod(shape) for shape in shapes.values())
    assert model.stored
    assert int(params(model).total) == model.stored.parameters == elements
    assert model.stored.size == 2 * elements
    assert model.max_context == CONTEXT
    # K and V have 2 heads of 16 each: 64 elements per layer and token; a latent has 24 + 6, and an
    # indexer's key 20
    attention = [i for i in range(LAYERS) if small.has_attention(i) and not small._without_mixer(i)]
    per_layer = (
        LATENT + ROPE + (20 if "indexer" in str(shapes) else 0)
        if small.latent
        else 2 * KV_HEADS * D_HEAD
    )
    if not model.main.has_cache:
        per_layer = 0
    assert kv_elements(model) == (0 if per_layer == 0 else len(attention) * per_layer)


@each("name", OF_THE_PACKAGE)
def test_the_yaml_of_every_architecture_is_the_same_model(tmp_path: Path, name: str) -> None:
    small = SmallModel(name)
    file = write_gguf(tmp_path / "m.gguf", name, small.keys(), small.shapes(), tokens=VOCAB)
    (tmp_path / "m.yaml").write_text(to_model_file(file))
    model, again = load(file), load(tmp_path / "m.yaml")
    assert params(again) == params(model)
    assert layer_cache_specs(again.plain()) == layer_cache_specs(model.plain())


def test_the_package_has_no_architecture_that_is_neither_read_nor_refused_with_a_reason() -> None:
    others = {
        "clip",
        "mlp",
        "ldp",
        "ldpv2",
        "resampler",
        "adapter",
        "qwen2vl_merger",
        "gptj",
        "maincoder",
    }
    assert set(gguf.MODEL_ARCH_NAMES.values()) - set(ARCHITECTURES) - set(UNSUPPORTED) <= others


def windows_of(path: Path) -> list[str]:
    """Return the span of each layer's attention."""
    model = load(path)
    return [
        str(group.attention.span.label) for group in model.main.layers for _ in range(group.count)
    ]


@each(
    ("name", "keys", "layers", "full"),
    [
        # Every second layer of gpt-oss and Gemma 2 is full, the sixth of Gemma 3, the fifth of
        # Gemma 3n: the last of each period (set_swa_pattern).
        ("gpt-oss", {"attention.sliding_window": 64}, 6, [1, 3, 5]),
        ("gemma2", {}, 4, [1, 3]),
        ("gemma3", {"attention.sliding_window": 64}, 12, [5, 11]),
        ("gemma3", {}, 12, list(range(12))),
        ("gemma3n", {"attention.sliding_window": 64}, 10, [4, 9]),
        ("cohere2", {"attention.sliding_window": 64}, 8, [3, 7]),
        ("smallthinker", {"attention.sliding_window": 64}, 8, [0, 4]),
        ("smallthinker", {"attention.sliding_window": 0}, 4, [0, 1, 2, 3]),
        (
            "olmo2",
            {"attention.sliding_window": 64, "attention.sliding_window_pattern": 2},
            4,
            [1, 3],
        ),
        (
            "olmo2",
            {
                "attention.sliding_window": 64,
                "attention.sliding_window_pattern": [True, False, False],
            },
            3,
            [1, 2],
        ),
        ("llama4", {}, 8, [3, 7]),
        ("llama4", {"attention.sliding_window": 0}, 4, [0, 1, 2, 3]),
        ("exaone4", {"attention.sliding_window": 64}, 4, [0, 1, 2, 3]),
        # llama.cpp stores the windows of Phi-3 and Mistral as full attention
        ("phi3", {"attention.sliding_window": 64}, 3, [0, 1, 2]),
        ("llama", {"attention.sliding_window": 64}, 3, [0, 1, 2]),
    ],
)
def test_windows_are_those_of_llama_cpp(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    keys: dict[str, Any],
    layers: int,
    full: list[int],
) -> None:
    monkeypatch.setattr("gguf_files.LAYERS", layers)
    small = SmallModel(name)
    base = {key: value for key, value in small.keys().items() if "sliding" not in key}
    path = write_gguf(tmp_path / "m.gguf", name, {**base, **keys}, small.shapes())
    spans = windows_of(path)
    assert [i for i, span in enumerate(spans) if span == "full"] == full
    size = {"gemma2": "4,096", "smallthinker": "4,096", "llama4": "8,192"}.get(name, "64")
    assert all(size in span for i, span in enumerate(spans) if i not in full)


def test_each_layer_has_its_own_number_of_kv_heads(tmp_path: Path) -> None:
    # OpenELM: 2 and 4 KV heads of 64: (2 + 4) x 2 x 64 elements per token
    keys = {"attention.head_count": [4, 8], "attention.head_count_kv": [2, 4]}
    shapes: Shapes = {}
    for i, (heads, kv) in enumerate(((4, 2), (8, 4))):
        shapes |= {
            f"blk.{i}.attn_q.weight": (256, 64 * heads),
            f"blk.{i}.attn_output.weight": (64 * heads, 256),
        }
        shapes |= {f"blk.{i}.attn_{letter}.weight": (256, 64 * kv) for letter in "kv"}
    model = load(small_llama(tmp_path / "m.gguf", keys, shapes))
    assert kv_elements(model) == 6 * 2 * 64


def test_a_tied_head_and_a_head_of_its_own_are_told_apart_by_the_tensors(tmp_path: Path) -> None:
    tied = load(small_llama(tmp_path / "a.gguf"))
    own = load(small_llama(tmp_path / "b.gguf", shapes={"output.weight": (256, 40)}))
    assert tied.head is not None
    assert tied.head.tied
    assert int(params(own).total) - int(params(tied).total) == 256 * 40


def test_layers_for_multi_token_prediction_have_parameters_and_no_cache(tmp_path: Path) -> None:
    block = {
        name.replace("blk.1.", "blk.2."): shape
        for name, shape in LLAMA_SHAPES.items()
        if "blk.1." in name
    }
    extra: Shapes = {**block, "blk.2.nextn.eh_proj.weight": (512, 256)}
    model = load(
        small_llama(tmp_path / "m.gguf", {"block_count": 3, "nextn_predict_layers": 1}, extra)
    )
    assert model.main.n_layers == 2
    assert int(params(model).total) == sum(
        math.prod(shape) for shape in (*LLAMA_SHAPES.values(), *extra.values())
    )
    assert any("Multi-token prediction has 1 layer," in note for note in model.notes)


def test_falcon_h1_has_attention_and_mamba_in_each_block(tmp_path: Path) -> None:
    small = SmallModel("falcon-h1")
    model = load(write_gguf(tmp_path / "m.gguf", "falcon-h1", small.keys(), small.shapes()))
    assert [group.attention.label for group in model.main.layers][:2] == ["GQA", "Mamba-2"]
    assert model.main.n_layers == 2 * LAYERS


def test_gemma_3n_shares_the_cache_of_its_20th_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gguf_files.LAYERS", 30)
    small = SmallModel("gemma3n")
    model = load(write_gguf(tmp_path / "m.gguf", "gemma3n", small.keys(), small.shapes()))
    # 20 layers of 2 x 2 x 16 elements; the other 10 have none, though the file has their matrices
    assert kv_elements(model) == 20 * 2 * KV_HEADS * D_HEAD


# Released models: the shapes of their files, as llama.cpp's convert_hf_to_gguf.py writes them


def released(
    name: str, keys: dict[str, Any], outer: Shapes, layers: list[Shapes]
) -> tuple[str, dict[str, Any], Shapes]:
    shapes = {
        f"{tensor}.weight" if "." not in tensor else tensor: shape
        for tensor, shape in outer.items()
    }
    for i, layer in enumerate(layers):
        for tensor, shape in layer.items():
            shapes[f"blk.{i}.{tensor}" if "." in tensor else f"blk.{i}.{tensor}.weight"] = shape
    return name, {"block_count": len(layers), **keys}, shapes


def dense(d: int, q: int, kv: int, d_ff: int, **others: tuple[int, ...]) -> Shapes:
    return {
        "attn_norm": (d,),
        "ffn_norm": (d,),
        "attn_q": (d, q),
        "attn_k": (d, kv),
        "attn_v": (d, kv),
        "attn_output": (q, d),
        "ffn_gate": (d, d_ff),
        "ffn_up": (d, d_ff),
        "ffn_down": (d_ff, d),
        **others,
    }


def outer(d: int, vocabulary: int, *, tied: bool = False) -> Shapes:
    shapes: Shapes = {"token_embd": (d, vocabulary), "output_norm": (d,)}
    return shapes if tied else {**shapes, "output": (d, vocabulary)}


def keys_of(d: int, context: int, heads: int, kv_heads: int, **others: Any) -> dict[str, Any]:
    return {
        "embedding_length": d,
        "context_length": context,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        **{key.replace("__", "."): value for key, value in others.items()},
    }


LATENT_SHAPES: Shapes = {
    "attn_norm": (7168,),
    "ffn_norm": (7168,),
    "attn_q_a": (7168, 1536),
    "attn_q_a_norm": (1536,),
    "attn_q_b": (1536, 128 * 192),
    "attn_kv_a_mqa": (7168, 576),
    "attn_kv_a_norm": (512,),
    "attn_k_b": (128, 512, 128),
    "attn_v_b": (512, 128, 128),
    "attn_output": (128 * 128, 7168),
}
# {preset: (architecture, keys, shapes)}.
RELEASED = {
    "llama3-8b": released(
        "llama",
        keys_of(4096, 8192, 32, 8),
        outer(4096, 128256),
        32 * [dense(4096, 4096, 1024, 14336)],
    ),
    "qwen3-8b": released(
        "qwen3",
        keys_of(4096, 40960, 32, 8, attention__key_length=128, attention__value_length=128),
        outer(4096, 151936),
        36 * [dense(4096, 4096, 1024, 12288, attn_q_norm=(128,), attn_k_norm=(128,))],
    ),
    "gemma3-27b": released(
        "gemma3",
        keys_of(5376, 131072, 32, 16, attention__sliding_window=1024, attention__key_length=128),
        outer(5376, 262208, tied=True),
        62
        * [
            dense(
                5376,
                4096,
                2048,
                21504,
                attn_q_norm=(128,),
                attn_k_norm=(128,),
                post_attention_norm=(5376,),
                post_ffw_norm=(5376,),
            )
        ],
    ),
    "gpt-oss-20b": released(
        "gpt-oss",
        keys_of(
            2880, 131072, 64, 8, attention__sliding_window=128, expert_count=32, expert_used_count=4
        ),
        outer(2880, 201088),
        24
        * [
            {
                "attn_norm": (2880,),
                "post_attention_norm": (2880,),
                "attn_q": (2880, 4096),
                "attn_k": (2880, 512),
                "attn_v": (2880, 512),
                "attn_output": (4096, 2880),
                "attn_sinks": (64,),
                "attn_q.bias": (4096,),
                "attn_k.bias": (512,),
                "attn_v.bias": (512,),
                "attn_output.bias": (2880,),
                **{f"ffn_{name}_exps": (2880, 2880, 32) for name in ("gate", "up", "down")},
                **{f"ffn_{name}_exps.bias": (2880, 32) for name in ("gate", "up", "down")},
                "ffn_gate_inp": (2880, 32),
                "ffn_gate_inp.bias": (32,),
            }
        ],
    ),
    "mixtral-8x7b": released(
        "llama",
        keys_of(4096, 32768, 32, 8, expert_count=8, expert_used_count=2),
        outer(4096, 32000),
        32
        * [
            {
                **{
                    name: shape
                    for name, shape in dense(4096, 4096, 1024, 1).items()
                    if not name.startswith("ffn_")
                },
                "ffn_norm": (4096,),
                "ffn_gate_inp": (4096, 8),
                "ffn_down_exps": (14336, 4096, 8),
                **{f"ffn_{name}_exps": (4096, 14336, 8) for name in ("gate", "up")},
            }
        ],
    ),
    "deepseek-v3": released(
        "deepseek2",
        keys_of(
            7168, 163840, 128, 1, expert_count=256, expert_used_count=8, attention__kv_lora_rank=512
        ),
        outer(7168, 129280),
        3
        * [
            {
                **LATENT_SHAPES,
                "ffn_gate": (7168, 18432),
                "ffn_up": (7168, 18432),
                "ffn_down": (18432, 7168),
            }
        ]
        + 58
        * [
            {
                **LATENT_SHAPES,
                **{f"ffn_{name}_exps": (7168, 2048, 256) for name in ("gate", "up")},
                **{f"ffn_{name}_shexp": (7168, 2048) for name in ("gate", "up")},
                "ffn_down_exps": (2048, 7168, 256),
                "ffn_down_shexp": (2048, 7168),
                "ffn_gate_inp": (7168, 256),
                "exp_probs_b.bias": (256,),
            }
        ],
    ),
    "falcon-7b": released(
        "falcon",
        keys_of(4544, 2048, 71, 1),
        {**outer(4544, 65024, tied=True), "output_norm.bias": (4544,)},
        32
        * [
            {
                "attn_norm": (4544,),
                "attn_norm.bias": (4544,),
                "attn_qkv": (4544, 4672),
                "attn_output": (4544, 4544),
                "ffn_up": (4544, 18176),
                "ffn_down": (18176, 4544),
            }
        ],
    ),
    "gpt2": released(
        "gpt2",
        {"embedding_length": 768, "context_length": 1024, "attention.head_count": 12},
        {**outer(768, 50257, tied=True), "output_norm.bias": (768,), "position_embd": (768, 1024)},
        12
        * [
            {
                **{
                    f"{name}_norm{part}": (768,)
                    for name in ("attn", "ffn")
                    for part in ("", ".bias")
                },
                "attn_qkv": (768, 2304),
                "attn_qkv.bias": (2304,),
                "attn_output": (768, 768),
                "attn_output.bias": (768,),
                "ffn_up": (768, 3072),
                "ffn_up.bias": (3072,),
                "ffn_down": (3072, 768),
                "ffn_down.bias": (768,),
            }
        ],
    ),
}


@pytest.mark.usefixtures("headers_only")
@pytest.mark.parametrize("preset", RELEASED)
def test_a_released_model_has_the_figures_of_its_preset(
    ask: Ask, tmp_path: Path, preset: str
) -> None:
    architecture, keys, shapes = RELEASED[preset]
    path = str(write_gguf(tmp_path / "m.gguf", architecture, keys, shapes, data=False))
    for command, options in (
        ("params", ()),
        ("kv", ("--dtype", "fp16")),
        ("flops", ()),
        ("memory", ()),
    ):
        of_file = results(ask(command, path, *options, "--json"))
        of_preset = results(ask(command, preset, *options, "--json"))
        # 256 biases of the router in 58 layers: tensors of the file, and buffers of transformers'
        # class
        biases = 58 * 256 if preset == "deepseek-v3" else 0
        for name in ("params_total", "kv_cache", "flops_total", "params_active"):
            added = biases if name.startswith("params") and name in of_file else 0
            assert of_file.get(name, 0) == of_preset.get(name, 0) + added, name


def deepseek_v4(**others: Any) -> tuple[str, dict[str, Any], Shapes]:
    """Return DeepSeek-V4-Flash as llama.cpp's deepseek4.cpp has it: 2 layers without pools, then
    pools of 4 and 128.
    """
    width, rank, hidden = 64 * 512, 1024, 4096
    layer: Shapes = {
        "attn_norm": (hidden,),
        "ffn_norm": (hidden,),
        "attn_q_a": (hidden, rank),
        "attn_q_a_norm": (rank,),
        "attn_q_b": (rank, width),
        "attn_kv": (hidden, 512),
        "attn_kv_a_norm": (512,),
        "attn_sinks": (64,),
        "attn_output_a": (width // 8, 8 * 1024),
        "attn_output_b": (8 * 1024, hidden),
        **{f"hc_{part}_fn": (4 * hidden, 24) for part in ("attn", "ffn")},
        **{f"hc_{part}_base": (24,) for part in ("attn", "ffn")},
        **{f"hc_{part}_scale": (3,) for part in ("attn", "ffn")},
        "ffn_gate_inp": (hidden, 256),
        **{f"ffn_{name}_exps": (hidden, 2048, 256) for name in ("gate", "up")},
        **{f"ffn_{name}_shexp": (hidden, 2048) for name in ("gate", "up")},
        "ffn_down_exps": (2048, hidden, 256),
        "ffn_down_shexp": (2048, hidden),
    }

    def pooling(name: str, size: int, width: int, norm: int) -> Shapes:
        matrices: Shapes = {f"{name}_compressor_{part}": (hidden, width) for part in ("kv", "gate")}
        return {
            **matrices,
            f"{name}_compressor_ape": (width, size),
            f"{name}_compressor_norm": (norm,),
        }

    indexer: Shapes = {
        "indexer.proj.weight": (hidden, 64),
        "indexer.attn_q_b.weight": (rank, 64 * 128),
    }
    pools: dict[int, Shapes] = {
        0: {},
        4: {**pooling("attn", 4, 1024, 512), **pooling("indexer", 4, 256, 128), **indexer},
        128: pooling("attn", 128, 512, 512),
    }
    router: list[Shapes] = [{"ffn_gate_tid2eid": (6, 129280)}, {"exp_probs_b.bias": (256,)}]
    ratios = [0, 0, *([4, 128] * 21)[:41]]
    keys = keys_of(
        hidden, 1048576, 64, 1, attention__sliding_window=128, attention__indexer__top_k=512
    )
    keys |= {"attention.output_group_count": 8, "expert_count": 256, "expert_used_count": 6}
    keys |= {"attention.compress_ratios": [*ratios, 0], "nextn_predict_layers": 1, **others}
    mixer: Shapes = {
        "output_hc_fn": (4 * hidden, 4),
        "output_hc_base": (4,),
        "output_hc_scale": (1,),
    }
    layers: list[Shapes] = [
        {**layer, **pools[ratio], **router[i >= 3]} for i, ratio in enumerate(ratios)
    ]
    return released("deepseek4", keys, {**outer(hidden, 129280), **mixer}, layers)


@pytest.mark.usefixtures("headers_only")
def test_deepseek_v4_has_the_figures_of_its_preset_and_its_tables_of_experts(
    ask: Ask, tmp_path: Path
) -> None:
    path, preset = (
        str(write_gguf(tmp_path / "m.gguf", *deepseek_v4(), data=False)),
        "deepseek-v4-flash",
    )
    for command, options, name in (
        ("kv", ("--dtype", "fp16"), "kv_cache"),
        ("flops", (), "flops_total"),
    ):
        assert (
            results(ask(command, path, *options, "--json"))[name]
            == (results(ask(command, preset, *options, "--json"))[name])
        )
    # 3 layers have 6 experts for each of 129,280 tokens, and 40 a correction of the scores of 256
    of_file, of_preset = (
        results(ask("params", name, "--json"))["params_total"] for name in (path, preset)
    )
    assert of_file - of_preset == 3 * 6 * 129280 + 40 * 256


@pytest.mark.usefixtures("headers_only")
def test_pools_that_contradict_their_key_are_an_error(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", *deepseek_v4(**{"attention.compress_ratios": [0] * 44}), data=False
    )
    with pytest.raises(AttncalcError, match="block 2 has pools of 4 tokens, but the key"):
        load(path)


# Files that contradict themselves


CONTRADICTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no architecture's key": ({"block_count": None}, {}, "the key llama.block_count is missing"),
    "a negative number": ({"block_count": -1.0}, {}, "llama.block_count is -1.0"),
    "heads": (
        {"attention.head_count": 3},
        {},
        "attn_output.weight of width 256, which 3 heads do not divide",
    ),
    "KV heads": (
        {"attention.head_count_kv": 3},
        {},
        "attn_k.weight of width 128, which 3 heads do not divide",
    ),
    "heads per layer": ({"attention.head_count": [4]}, {}, "has 1 values for 2 layers"),
    "width": (
        {"embedding_length": 128},
        {},
        "attn_output.weight of 256 x 256, and not of any x 128",
    ),
    "no output projection": (
        {},
        {"blk.0.attn_output.weight": None},
        "block 0 has no tensor attn_output.weight",
    ),
    "V": (
        {},
        {"blk.0.attn_v.weight": (256, 256)},
        "attn_v.weight of 256 x 256, and not of 256 x 128",
    ),
    "MLP": ({}, {"blk.1.ffn_gate.weight": (256, 500)}, "block 1 has ffn_gate.weight of 256 x 500"),
    "an unknown tensor": (
        {},
        {"blk.0.memory.weight": (4,)},
        "the tensor memory.weight, which is not known for llama",
    ),
    "an unknown tensor outside": (
        {},
        {"router.weight": (4,)},
        "the tensor router.weight is not known for llama",
    ),
}


@each("case", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_keys_and_tensors_that_contradict_are_an_error(
    tmp_path: Path, case: tuple[dict[str, Any], dict[str, Any], str]
) -> None:
    keys, shapes, message = case
    merged = {key: value for key, value in {**LLAMA_KEYS, **keys}.items() if value is not None}
    tensors = {
        name: shape for name, shape in {**LLAMA_SHAPES, **shapes}.items() if shape is not None
    }
    path = write_gguf(tmp_path / "m.gguf", "llama", merged, tensors)
    error = refusal(load, path)
    assert message in error.message
    assert "m.gguf" in error.message
    assert error.tip


@each("name", [*UNSUPPORTED, "brandnew"])
def test_an_architecture_that_is_not_modelled_is_named_with_its_size(
    tmp_path: Path, name: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", name, {}, {"a": (1024, 1024)})
    error = refusal(load, path)
    assert f"the architecture {name} is not supported" in error.message
    assert (
        "(its tensors have 2,048 KiB)" in error.message
        or "(its tensors have 2 MiB)" in error.message
    )


def test_a_file_from_before_latents_were_stored_caches_k_and_v_of_every_head(
    tmp_path: Path,
) -> None:
    """Its keys tell: it has no key_length_mla, and key_length is that of a head."""
    small = SmallModel("deepseek2")
    shapes = {
        name: shape
        for name, shape in small.shapes().items()
        if "attn_k_b" not in name and "attn_v_b" not in name
    }
    for layer in range(LAYERS):
        shapes[f"blk.{layer}.attn_kv_b.weight"] = (LATENT, HEADS * (NOPE + D_V))
    keys = small.keys() | {"attention.key_length": NOPE + ROPE, "attention.value_length": D_V}
    del keys["attention.key_length_mla"]
    model = load(write_gguf(tmp_path / "m.gguf", "deepseek2", keys, shapes))
    cached = {
        (spec.role, spec.rows, spec.width)
        for layers in model.main.layers
        for spec in layers.attention.cache()
    }
    assert cached == {("k", HEADS, NOPE + ROPE), ("v", HEADS, D_V)}
    assert model.stored is not None
    assert int(params(model).total) == sum(map(math.prod, shapes.values()))


# Files and folders


def split(folder: Path, files: int = 3) -> list[Path]:
    """Write a model in several files, of which the first has the keys."""
    names = list(LLAMA_SHAPES)
    paths = []
    for i in range(files):
        part = {name: LLAMA_SHAPES[name] for name in names[i::files]}
        keys = {
            **(LLAMA_KEYS if i == 0 else {}),
            "split.no": i,
            "split.count": files,
            "split.tensors.count": len(names),
        }
        paths.append(write_gguf(folder / f"m-{i + 1:05}-of-{files:05}.gguf", "llama", keys, part))
    return paths


def test_shards_are_one_model(tmp_path: Path) -> None:
    paths = split(tmp_path)
    (tmp_path / "whole").mkdir()
    whole = load(small_llama(tmp_path / "whole" / "m.gguf"))
    for path in paths:
        model = load(path)
        assert model.name == "m"
        assert int(params(model).total) == int(params(whole).total)
        assert model.stored
        assert model.stored.files == 3


def test_a_folder_with_one_model_is_that_model(tmp_path: Path) -> None:
    small_llama(tmp_path / "m-Q8_0.gguf")
    for name in ("mmproj-F16.gguf", "m.mmproj-Q8_0.gguf", "mtp-m-Q8_0.gguf", "ggml-vocab-m.gguf"):
        write_gguf(tmp_path / name, "clip", {}, {"a": (32,)})
    assert load(tmp_path).name == "m-Q8_0"


def test_a_file_without_the_suffix_is_read_too(tmp_path: Path) -> None:
    path = small_llama(tmp_path / "m.gguf").rename(tmp_path / "sha256-0123")
    assert load(path).main.n_layers == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_left_to_other_readers(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    assert local_gguf(str(tmp_path / "m.gguf")) is None


# Commands


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    """A file whose matrices are in Q4_K and Q6_K, and norms in F32, as llama-quantize stores
    them.
    """
    types = {name: Type.F32 if "norm" in name else Type.Q4_K for name in LLAMA_SHAPES}
    types |= {"token_embd.weight": Type.Q6_K, "blk.0.ffn_down.weight": Type.Q6_K}
    return write_gguf(tmp_path / "tiny-Q4_K_M.gguf", "llama", LLAMA_KEYS, LLAMA_SHAPES, types)


def bytes_of(path: Path) -> int:
    """Return the bytes of all tensors, by the gguf package."""
    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)


@pytest.mark.parametrize("command", ["kv", "params", "flops", "memory"])
def test_commands_read_a_file(ask: Ask, quantized: Path, command: str) -> None:
    answer = ask(command, str(quantized))
    assert (answer.code, answer.err) == (0, "")


def test_weights_are_those_of_the_file(ask: Ask, quantized: Path) -> None:
    size = bytes_of(quantized)
    for command in ("kv", "params"):
        assert results(ask(command, str(quantized), "--json"))["weights_stored"] == size
    found = results(ask("params", str(quantized), "--json"))
    # Q4_K has 144 bytes per 256 elements, Q6_K 210
    matrices = 2 * (256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512) - 256 * 512
    assert found["weights_stored_q4_k"] == matrices // 256 * 144
    assert found["weights_stored_q6_k"] == (256 * 512 + 256 * 40) // 256 * 210
    assert found["weights_stored_f32"] == 5 * 256 * 4


def test_an_error_is_one_line(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(packed(keys=1, rest=struct.pack("<Q", 2**60)))
    error = ask("kv", str(path)).error
    assert error.splitlines()[0].startswith("error: ")
    assert "Traceback" not in error


def test_a_gguf_file_on_standard_input_is_refused(ask: Ask) -> None:
    assert "GGUF" in ask("kv", "-", stdin="GGUF\x03").error
