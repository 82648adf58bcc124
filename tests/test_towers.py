"""Vision and audio towers: their parameters, compared with transformers' own classes."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from attncalc import ModelSpec, load, params
from attncalc.config.build import build_model
from attncalc.config.huggingface import convert_config
from attncalc.engines import find_engine
from attncalc.model import Tower
from attncalc.serving.weights import weights

TEXT: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008},
    "llama4": {"model_type": "llama4_text", "hidden_size": 4096},
    "gemma3": {"model_type": "gemma3_text", "hidden_size": 2560, "num_attention_heads": 8},
    "gemma4": {
        "model_type": "gemma4_text",
        "hidden_size": 2304,
        "layer_types": ["full_attention"] * 2,
    },
    "qwen2_vl": {
        "model_type": "qwen2_vl_text",
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
    "qwen2_5_vl": {"model_type": "qwen2_5_vl_text", "hidden_size": 3584, "num_attention_heads": 28},
    "qwen3_vl": {"model_type": "qwen3_vl_text", "hidden_size": 4096},
    "glm4v": {"model_type": "glm4v_text", "hidden_size": 4096},
    "mllama": {"model_type": "mllama_text_model", "hidden_size": 4096},
    "lfm2": {"model_type": "lfm2", "hidden_size": 2048, "layer_types": ["conv", "full_attention"]},
    "qwen2": {"model_type": "qwen2", "hidden_size": 4096},
    "qwen3_5": {"model_type": "qwen3_5_text", "hidden_size": 1024},
    "gemma3n": {"model_type": "gemma3n_text", "hidden_size": 2048, "num_kv_shared_layers": 0},
}
TEXT = {name: {"num_hidden_layers": 2, **config} for name, config in TEXT.items()}
TEXT["qwen2_vl"]["num_key_value_heads"] = TEXT["qwen2_5_vl"]["num_key_value_heads"] = 4
SIGLIP = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
}
SIGLIP |= {"image_size": 896, "patch_size": 14}

CASES: dict[str, tuple[str, str, dict[str, Any], str, str, str, str]] = {
    # whole model, text, the tower's config, its field, module of transformers, config class, model
    # class
    "siglip": (
        "gemma3",
        "gemma3",
        {"model_type": "siglip_vision_model", **SIGLIP, "vision_use_head": False},
        "vision_config",
        "siglip",
        "SiglipVisionConfig",
        "SiglipVisionModel",
    ),
    "clip": (
        "llava",
        "llama",
        {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14},
        "vision_config",
        "clip",
        "CLIPVisionConfig",
        "CLIPVisionModel",
    ),
    "pixtral": (
        "mistral3",
        "llama",
        {"model_type": "pixtral", "image_size": 1540, "patch_size": 14},
        "vision_config",
        "pixtral",
        "PixtralVisionConfig",
        "PixtralVisionModel",
    ),
    "llama4": (
        "llama4",
        "llama4",
        {
            "model_type": "llama4_vision_model",
            "hidden_size": 1408,
            "vision_output_dim": 4096,
            "image_size": 336,
        },
        "vision_config",
        "llama4",
        "Llama4VisionConfig",
        "Llama4VisionModel",
    ),
    "qwen2_vl": (
        "qwen2_vl",
        "qwen2_vl",
        {"model_type": "qwen2_vl", "depth": 4},
        "vision_config",
        "qwen2_vl",
        "Qwen2VLVisionConfig",
        "Qwen2VisionTransformerPretrainedModel",
    ),
    "qwen2_5_vl": (
        "qwen2_5_vl",
        "qwen2_5_vl",
        {"model_type": "qwen2_5_vl", "depth": 4, "hidden_size": 1280},
        "vision_config",
        "qwen2_5_vl",
        "Qwen2_5_VLVisionConfig",
        "Qwen2_5_VisionTransformerPretrainedModel",
    ),
    "qwen3_vl": (
        "qwen3_vl",
        "qwen3_vl",
        {"model_type": "qwen3_vl", "depth": 25},
        "vision_config",
        "qwen3_vl",
        "Qwen3VLVisionConfig",
        "Qwen3VLVisionModel",
    ),
    "gemma4": (
        "gemma4",
        "gemma4",
        {"model_type": "gemma4_vision", "num_hidden_layers": 3},
        "vision_config",
        "gemma4",
        "Gemma4VisionConfig",
        "Gemma4VisionModel",
    ),
    "gemma4 audio": (
        "gemma4",
        "gemma4",
        {"model_type": "gemma4_audio", "num_hidden_layers": 3},
        "audio_config",
        "gemma4",
        "Gemma4AudioConfig",
        "Gemma4AudioModel",
    ),
    "glm4v": (
        "glm4v",
        "glm4v",
        {"model_type": "glm4v_vision", "depth": 3},
        "vision_config",
        "glm4v",
        "Glm4vVisionConfig",
        "Glm4vVisionModel",
    ),
    "internvl": (
        "internvl",
        "llama",
        {"model_type": "internvl_vision", "num_hidden_layers": 3, "image_size": [448, 448]},
        "vision_config",
        "internvl",
        "InternVLVisionConfig",
        "InternVLVisionModel",
    ),
    "internvl with biases and norms of q and k": (
        "internvl",
        "llama",
        {
            "model_type": "internvl_vision",
            "num_hidden_layers": 3,
            "attention_bias": True,
            "use_qk_norm": True,
        },
        "vision_config",
        "internvl",
        "InternVLVisionConfig",
        "InternVLVisionModel",
    ),
    "mllama": (
        "mllama",
        "mllama",
        {"model_type": "mllama_vision_model", "num_hidden_layers": 3, "image_size": 560},
        "vision_config",
        "mllama",
        "MllamaVisionConfig",
        "MllamaVisionModel",
    ),
    "lfm2_vl": (
        "lfm2_vl",
        "lfm2",
        {"model_type": "siglip2_vision_model", "num_hidden_layers": 3, "vision_use_head": False},
        "vision_config",
        "siglip2",
        "Siglip2VisionConfig",
        "Siglip2VisionModel",
    ),
    "qwen2_audio": (
        "qwen2_audio",
        "qwen2",
        {"model_type": "qwen2_audio_encoder", "encoder_layers": 3},
        "audio_config",
        "qwen2_audio",
        "Qwen2AudioEncoderConfig",
        "Qwen2AudioEncoder",
    ),
    "voxtral": (
        "voxtral",
        "llama",
        {"model_type": "voxtral_encoder", "num_hidden_layers": 3},
        "audio_config",
        "voxtral",
        "VoxtralEncoderConfig",
        "VoxtralEncoder",
    ),
    "minicpmv4_6": (
        "minicpmv4_6",
        "qwen3_5",
        {"model_type": "minicpmv4_6_vision", "num_hidden_layers": 3},
        "vision_config",
        "minicpmv4_6",
        "MiniCPMV4_6VisionConfig",
        "MiniCPMV4_6VisionModel",
    ),
    "minicpmv4_7": (
        "minicpmv4_7",
        "qwen3_5",
        {"model_type": "minicpmv4_7_vision", "num_hidden_layers": 3},
        "vision_config",
        "minicpmv4_7",
        "MiniCPMV4_7VisionConfig",
        "MiniCPMV4_7VisionModel",
    ),
    "gemma3n audio": (
        "gemma3n",
        "gemma3n",
        {"model_type": "gemma3n_audio", "conf_num_hidden_layers": 3, "hidden_size": 1024},
        "audio_config",
        "gemma3n",
        "Gemma3nAudioConfig",
        "Gemma3nAudioEncoder",
    ),
    "idefics3": (
        "idefics3",
        "llama",
        {"model_type": "idefics3_vision", "image_size": 364, "patch_size": 14},
        "vision_config",
        "idefics3",
        "Idefics3VisionConfig",
        "Idefics3VisionTransformer",
    ),
}
# What vLLM holds beyond transformers' class of the tower alone: the projector, less layers that it
# leaves out.
PROJECTORS = {
    # a matrix 1152 x 2560 and a norm of 1152
    "siglip": 1152 * 2560 + 1152,
    # 768 -> 4096 -> 4096 with biases; without the last of 12 layers (7,087,872 parameters) and the
    # norm after it
    "clip": 768 * 4096
    + 4096**2
    + 2 * 4096
    - (4 * 768**2 + 2 * 768 * 3072 + 9 * 768 + 3072)
    - 2 * 768,
    # four patches 4096 -> 1024, a norm, 1024 -> 4096 -> 4096
    "pixtral": 4 * 1024**2 + 1024 + 1024 * 4096 + 4096**2,
    "llama4": 4096 * 4096,
    "gemma4": 768 * 2304,
    "gemma4 audio": 1536 * 2304,
    # a norm of four patches, 4 x 1024 -> 4096 -> 4096 with biases
    "internvl": 8 * 1024 + 4 * 1024 * 4096 + 4096**2 + 2 * 4096,
    "internvl with biases and norms of q and k": 8 * 1024 + 4 * 1024 * 4096 + 4096**2 + 2 * 4096,
    "mllama": 7680 * 4096 + 4096,
    # a norm of four patches, 4 x 768 -> 2560 -> 2048 with biases
    "lfm2_vl": 8 * 768 + 4 * 768 * 2560 + 2560 + 2560 * 2048 + 2048,
    "qwen2_audio": 1280 * 4096 + 4096,
    # four frames of 1280 -> 4096 -> 4096
    "voxtral": 4 * 1280 * 4096 + 4096**2,
    # a norm of four patches, 4 x 768 -> 4 x 768 -> 1024 with biases
    "minicpmv4_6": 8 * 768 + (4 * 768) ** 2 + 4 * 768 + 4 * 768 * 1024 + 1024,
    "minicpmv4_7": 8 * 768 + (4 * 768) ** 2 + 4 * 768 + 4 * 768 * 1024 + 1024,
    # an embedding of 128 tokens, its norm and that of the tower's outputs, 1024 -> 2048
    "gemma3n audio": 128 * 1024 + 2 * 1024 + 1024 * 2048,
    # four patches of 768 -> 4096
    "idefics3": 4 * 1152 * 4096,
}


def model_of(outer: str, text: str, tower: dict[str, Any], field: str, **others: Any) -> ModelSpec:
    config = {
        "model_type": outer,
        "text_config": TEXT[text],
        field: tower,
        "torch_dtype": "bfloat16",
        **others,
    }
    return build_model(convert_config(config, "config"), "config")


def tower_of(outer: str, text: str, tower: dict[str, Any], field: str, **others: Any) -> Tower:
    name = field.removesuffix("_config")
    return next(
        found
        for found in model_of(outer, text, tower, field, **others).towers
        if found.name == name
    )


@pytest.mark.parametrize("name", CASES)
def test_towers_have_the_parameters_of_transformers_classes(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    outer, text, config, field, module, config_class, model_class = CASES[name]
    configs = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
    models = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    fields = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        built = getattr(models, model_class)(getattr(configs, config_class)(**fields))
    measured = sum(parameter.numel() for parameter in built.parameters())
    assert tower_of(outer, text, config, field).params == measured + PROJECTORS.get(name, 0)


@pytest.mark.parametrize("name", CASES)
def test_towers_that_are_divided_have_the_heads_of_transformers_classes(name: str) -> None:
    pytest.importorskip("transformers")
    outer, text, config, field, module, config_class, _ = CASES[name]
    configs = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
    built = getattr(configs, config_class)(
        **{key: value for key, value in config.items() if key != "model_type"}
    )
    names = ("num_attention_heads", "num_heads", "attention_heads")
    heads = next((getattr(built, each) for each in names if hasattr(built, each)), None)
    tower = tower_of(outer, text, config, field)
    if tower.split == 0 or outer == "gemma3n":  # of Gemma 3n's towers only the embedder is divided
        assert tower.attention is None
    else:
        assert tower.attention is not None
        assert tower.attention.heads == heads


# The vision_config of InternVL2-26B.
INTERN_VIT_6B = {
    "model_type": "intern_vit_6b",
    "hidden_size": 3200,
    "intermediate_size": 12800,
    "num_hidden_layers": 45,
    "num_attention_heads": 25,
    "qk_normalization": True,
    "qkv_bias": False,
    "norm_type": "rms_norm",
}


@pytest.mark.parametrize(
    ("tp", "divides"), [(1, True), (2, False), (4, False), (5, True), (8, False), (25, True)]
)
def test_heads_of_intern_vit_that_are_not_divided_leave_its_attention_whole(
    tp: int, divides: bool
) -> None:
    """_init_attn of vLLM's intern_vit.py then takes InternSdpaAttention, which each device has
    whole.
    """
    tower = tower_of("internvl", "llama", INTERN_VIT_6B, "vision_config")
    attention = 45 * 4 * 3200**2
    assert tower.attention == (25, attention)
    assert tower.split == attention + 45 * (2 * 3200 * 12800 + 12800)
    assert tower.has_whole_heads(tp) is divides
    undivided = 0 if divides else attention
    assert tower.split_by(tp) == (tower.split - undivided, tower.params - tower.split + undivided)


@pytest.mark.parametrize(("tp", "heads"), [(1, 25), (2, 26), (4, 28), (5, 25), (8, 32)])
def test_sglang_pads_the_heads_of_intern_vit(tp: int, heads: int) -> None:
    """update_vit_attn_dummy_heads_config in sglang/srt/layers/attention/vision_utils.py."""
    tower = tower_of("internvl", "llama", INTERN_VIT_6B, "vision_config")
    divided, whole = tower.split_by(tp, pads_heads=True)
    assert whole == tower.params - tower.split
    assert divided == 45 * 4 * 3200 * heads * 128 + 45 * (2 * 3200 * 12800 + 12800)


def test_the_engines_hold_a_tower_with_25_heads_differently() -> None:
    """4 GPUs: vLLM has the attention of 25 heads on each, SGLang 7 of 28; attncalc's own count has
    no engine.
    """
    config = {
        "model_type": "internvl",
        "text_config": TEXT["llama"],
        "vision_config": INTERN_VIT_6B,
    }
    model = build_model(convert_config({**config, "torch_dtype": "bfloat16"}, "config"), "config")
    head = 45 * 4 * 3200 * 128 * 2

    def tower(engine: str) -> int:
        (found,) = (
            part
            for part in weights(model.shard(4), engine=find_engine(engine)).extra
            if part.name == "weights_vision_tower"
        )
        return int(found.size)

    assert tower("vllm") - tower("sglang") == (25 - 7) * head


@pytest.mark.parametrize("heads", [0, -5, "many", 10**13, 2.5])
def test_a_tower_without_a_number_of_heads_is_counted_without_them(heads: Any) -> None:
    config = {"model_type": "siglip_vision_model", **SIGLIP, "num_attention_heads": heads}
    tower = tower_of("gemma3", "gemma3", config, "vision_config")
    assert tower.attention is None
    assert tower.split_by(7) == tower_of(*CASES["siglip"][:4]).split_by(8)


def test_a_text_model_has_no_tower() -> None:
    spec = build_model(convert_config(TEXT["llama"], "config"), "config")
    assert spec.towers == ()


@pytest.mark.parametrize(
    "tower",
    [
        {"model_type": "an_unknown_tower"},
        {"model_type": "siglip_vision_model", "hidden_size": "wide"},
        {"model_type": "siglip_vision_model", "patch_size": 0},
        {"model_type": "siglip_vision_model", "hidden_size": 10**9},
        {"model_type": "siglip_vision_model", "hidden_size": -5},
        # a list times a number is a long list
        {"model_type": "siglip_vision_model", "num_hidden_layers": [1]},
        {"model_type": "siglip_vision_model", "num_hidden_layers": "1"},
        {"model_type": "siglip_vision_model", "num_hidden_layers": 10**4000},
    ],
)
def test_a_tower_that_is_not_understood_is_noted(tower: dict[str, Any]) -> None:
    spec = model_of("gemma3", "gemma3", tower, "vision_config")
    assert spec.towers == ()
    assert "The vision tower is not counted." in spec.notes


def test_llama4_without_vision_config_has_the_tower_of_all_releases() -> None:
    # 850,960,896 parameters in transformers' class, and a projector 4096 x 4096
    config = {"model_type": "llama4", "text_config": TEXT["llama4"], "torch_dtype": "bfloat16"}
    (tower,) = build_model(convert_config(config, "config"), "config").towers
    assert tower.params == 850_960_896 + 4096 * 4096


def test_gemma4_without_tower_configs_has_those_of_its_size() -> None:
    """E2B and E4B have transformers' default towers, the larger models one of 27 layers and none
    for sound.
    """

    def towers(width: int) -> dict[str, int]:
        text = {**TEXT["gemma4"], "hidden_size": width}
        config = {"model_type": "gemma4", "text_config": text, "torch_dtype": "bfloat16"}
        return {
            tower.name: tower.params
            for tower in build_model(convert_config(config, "config"), "config").towers
        }

    given = {
        name: tower_of(*CASES[case][:4]).params
        for name, case in (("vision", "gemma4"), ("audio", "gemma4 audio"))
    }
    narrow, wide = towers(TEXT["gemma4"]["hidden_size"]), towers(5376)
    assert set(narrow) == {"vision", "audio"}
    assert narrow["vision"] > given["vision"] // 2
    assert set(wide) == {"vision"}
    assert wide["vision"] > 2 * narrow["vision"]


def test_qwen3_5_without_vision_config_has_the_class_s_tower() -> None:
    outer = {"model_type": "qwen3_5", "text_config": TEXT["qwen3_5"], "torch_dtype": "bfloat16"}
    left_out = build_model(convert_config(outer, "config"), "config").towers
    given = {"model_type": "qwen3_5", "out_hidden_size": TEXT["qwen3_5"]["hidden_size"]}
    assert (
        left_out
        == build_model(convert_config({**outer, "vision_config": given}, "config"), "config").towers
        != ()
    )


def test_gemma3n_has_a_network_of_timm_and_an_embedder() -> None:
    """timm 1.0's mobilenetv5_300m_enc has 294,126,912 parameters; E4B with it 7,849,978,192 as
    released.

    The release has keys and values, 2,097,408 parameters with a norm, in 15 layers that do not read
    them.
    """
    parts = {
        "vision_config": {"model_type": "gemma3n_vision"},
        "audio_config": {"model_type": "gemma3n_audio"},
    }
    config = {
        "model_type": "gemma3n",
        "text_config": {"model_type": "gemma3n_text"},
        "torch_dtype": "bfloat16",
        **parts,
    }
    spec = build_model(convert_config(config, "config"), "config")
    whole = int(params(spec).total) + sum(tower.params for tower in spec.towers)
    assert whole + 15 * (2 * 2048 * 512 + 256) == 7_849_978_192


def test_quantized_mistrals_divide_their_tower() -> None:
    """vLLM reads Mistral's own format if it is there; its tower is not divided. Quantized copies do
    not have it.
    """
    scheme = {
        "quant_method": "compressed-tensors",
        "config_groups": {"a": {"weights": {"num_bits": 8, "strategy": "channel"}}},
    }
    plain = tower_of(*CASES["pixtral"][:4])
    quantized = tower_of(*CASES["pixtral"][:4], quantization_config=scheme)
    assert (plain.split, plain.params) == (0, quantized.params)
    assert quantized.split > 0.9 * quantized.params


def test_lightonocr_has_the_tower_and_the_projector_of_mistral_3() -> None:
    """A log of LightOnOCR-2-1B has 1.88 GiB of weights, 0.77 more than those of its language
    model.
    """
    ocr = tower_of("lighton_ocr", *CASES["pixtral"][1:4])
    assert ocr == tower_of(*CASES["pixtral"][:4])


def test_formulas_of_towers_are_in_wheels() -> None:
    """A wheel has a JSON copy, so that PyYAML is not needed."""
    text = (Path(__file__).parent.parent / "hatch_build.py").read_text()
    assert json.dumps("attncalc/config/huggingface/tower_formulas") in text


# Presets with a tower, and their released config.json in tests/data.
RELEASED = {
    "gemma3-12b": "google--gemma-3-12b-it",
    "mistral-small-24b": "mistralai--mistral-small-3.1-24b-instruct-2503",
    "gemma4-26b-a4b": "google__gemma-4-26B-A4B",
    "llama4-maverick": "meta-llama__Llama-4-Maverick-17B-128E-Instruct",
    "qwen3-vl-8b": "Qwen__Qwen3-VL-8B-Instruct",
    "qwen3.5-397b-a17b": "Qwen__Qwen3.5-397B-A17B",
    "qwen3.6-27b": "nvidia__Qwen3.6-27B-NVFP4",
    "qwen3.6-35b-a3b": "nvidia__Qwen3.6-35B-A3B-NVFP4",
}


@pytest.mark.parametrize("preset", RELEASED)
def test_a_preset_has_the_towers_of_its_config(preset: str) -> None:
    data = Path(__file__).parent / "data"
    configs = {
        entry["name"]: entry["config"]
        for entry in json.loads((data / "real-configs.json").read_text("utf-8"))
    }
    name = RELEASED[preset]
    config = configs.get(name) or json.loads(
        (data / "startups" / "models" / f"{name}.json").read_text("utf-8")
    )
    model = build_model(convert_config(config, "config.json", title=preset), preset)
    assert load(preset).towers == model.towers != ()
