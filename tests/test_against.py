"""`attncalc verify --against transformers`: its classes agree with the figures, and a wrong figure
fails its check.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from asking import Answer, Ask
from breaks import Break, Patch, replaced, scores, wider, wider_cache
from tables import each

import attncalc.questions.verify.command
from attncalc import Grouped, Latent
from attncalc.attention import Sliding
from attncalc.attention.mamba import Mamba
from attncalc.config import load

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
GEMMA = {
    **LLAMA,
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "sliding_window": 24,
}
GEMMA |= {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
DEEPSEEK = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_key_value_heads": 4,
    "head_dim": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 20,
    "first_k_dense_replace": 1,
}
MIXTRAL = {
    **LLAMA,
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
JAMBA = {
    **MIXTRAL,
    "model_type": "jamba",
    "architectures": ["JambaForCausalLM"],
    "num_experts": 4,
    "attn_layer_period": 3,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 4,
}
del JAMBA["num_local_experts"], JAMBA["head_dim"]
MAMBA2 = {
    "model_type": "mamba2",
    "architectures": ["Mamba2ForCausalLM"],
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_heads": 8,
    "head_dim": 8,
    "expand": 2,
    "state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}
BERT = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 40,
    "torch_dtype": "float32",
}
BART = {
    "model_type": "bart",
    "architectures": ["BartForConditionalGeneration"],
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}
T5 = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "vocab_size": 100,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": True,
    "tie_word_embeddings": False,
}
MLLAMA: dict[str, Any] = {
    "model_type": "mllama",
    "architectures": ["MllamaForConditionalGeneration"],
    "text_config": {
        "model_type": "mllama_text_model",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "cross_attention_layers": [1],
        "vocab_size": 100,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "vision_config": {
        "model_type": "mllama_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
    },
    "torch_dtype": "bfloat16",
}
MLLAMA["vision_config"] |= {
    "num_hidden_layers": 2,
    "num_global_layers": 1,
    "attention_heads": 4,
    "image_size": 28,
}
MLLAMA["vision_config"] |= {"vision_output_dim": 64, "intermediate_layers_indices": [1]}
EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "sliding_window": 24,
}
BEAM = {
    **LLAMA,
    **EXPERTS,
    "model_type": "beam",
    "architectures": ["BeamForCausalLM"],
    "num_hidden_layers": 7,
}
BEAM |= {"n_group": 1, "topk_group": 1}
DOGE = {**LLAMA, "model_type": "doge", "architectures": ["DogeForCausalLM"], "attention_bias": True}
DOGE_MOE = {**DOGE, "is_moe": True, "num_experts": 40, "num_experts_per_tok": 4}
PRIVACY = {
    **LLAMA,
    "model_type": "openai_privacy_filter",
    "sliding_window": 8,
    "num_local_experts": 6,
}
PRIVACY |= {
    "architectures": ["OpenAIPrivacyFilterForTokenClassification"],
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
}
MUSE: dict[str, Any] = {
    "model_type": "muse_spark",
    "architectures": ["MuseSparkForConditionalGeneration"],
    "text_config": {
        **{
            key: value
            for key, value in LLAMA.items()
            if key not in ("architectures", "torch_dtype")
        },
        "model_type": "muse_spark_text",
        "hidden_size": 64,
        "num_hidden_layers": 5,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse"],
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 20,
        "moe_hidden_size": 24,
        "sliding_window": 24,
    },
    "vision_config": {"model_type": "muse_spark_vision", "num_hidden_layers": 1, "hidden_size": 32},
    "torch_dtype": "bfloat16",
}
MUSE["vision_config"] |= {"num_attention_heads": 2, "intermediate_size": 64}
MUSE |= {"audio_config": {"model_type": "muse_spark_audio", "out_hidden_size": 64}}
DEBERTA = {
    **{
        key: BERT[key]
        for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    },
    "model_type": "deberta-v2",
    "architectures": ["DebertaV2ForMaskedLM"],
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "relative_attention": True,
    "position_buckets": 16,
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "norm_rel_ebd": "layer_norm",
}
CONFIGS = {
    "beam": BEAM,
    "doge": DOGE,
    "doge_moe": DOGE_MOE,
    "privacy": PRIVACY,
    "muse": MUSE,
    "deberta": DEBERTA,
    "llama": LLAMA,
    "gemma3": GEMMA,
    "deepseek": DEEPSEEK,
    "mixtral": MIXTRAL,
    "jamba": JAMBA,
    "mamba2": MAMBA2,
    "bert": BERT,
    "bart": BART,
    "t5": T5,
    "mllama": MLLAMA,
}


needs_transformers = pytest.mark.usefixtures("transformers")


def saved(config: dict[str, Any], folder: Path) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def checks(answer: Answer) -> dict[tuple[str, str], dict[str, Any]]:
    return {(c["of"], c["name"]): c for c in answer.document["checks"]}


def replace_config(monkeypatch: Patch, config: dict[str, Any]) -> None:
    """Make `verify` build the class of `config`, and predict the figures of the file that is
    given.
    """
    monkeypatch.setattr(
        attncalc.questions.verify.command, "load_with_config", lambda name: (load(name), config)
    )


def compared(ask: Ask, path: str, *more: str) -> Answer:
    return ask("verify", path, "--against", "transformers", "--json", *more)


@needs_transformers
@each("name", CONFIGS)
def test_the_class_agrees(ask: Ask, tmp_path: Path, name: str) -> None:
    answer = compared(ask, saved(CONFIGS[name], tmp_path))
    by_name = checks(answer)
    assert [c for c in by_name.values() if not c["ok"]] == []
    assert answer.code == 0
    assert all(c["tolerance"] == 0 for c in by_name.values())
    assert {c["section"] for c in by_name.values()} >= {"parameters", "FLOPs", "model"}
    assert "without values" not in answer.out


@needs_transformers
def test_layers_that_text_skips_are_not_expected_to_run(ask: Ask, tmp_path: Path) -> None:
    """Layer 1 of 4 attends to an image; the class does not run it, but has its parameters."""
    by_name = checks(compared(ask, saved(MLLAMA, tmp_path)))
    assert (
        by_name["", "modules_decoder"]["measured"]
        == by_name["", "modules_decoder"]["predicted"]
        == 3
    )
    # q and o 64 x 64, k and v 64 x 32, and the norms of q and k in the layer that attends to an
    # image
    assert by_name["", "params_attention"]["measured"] == 4 * (2 * 64 * 64 + 2 * 64 * 32) + 2 * 16


@needs_transformers
def test_figures_calculated_by_hand(ask: Ask, tmp_path: Path) -> None:
    answer = compared(ask, saved(LLAMA, tmp_path), "-b", "3", "-c", "10")
    measured = {key: c["measured"] for key, c in checks(answer).items()}
    # q and o are 64 x 64, k and v 64 x 32; 3 layers
    assert measured["decoder", "params_attention_layer"] == 2 * 64 * 64 + 2 * 64 * 32
    assert measured["", "params_attention"] == 3 * 12_288
    # K and V of 3 sequences, 10 tokens, 2 heads of 16, 2 B, 3 layers
    assert measured["", "kv_cache_10"] == 2 * 3 * 10 * 2 * 16 * 2 * 3
    # 2 FLOP per weight and token; QK and PV of 4 heads of 16, 10 x 10 pairs
    assert measured["decoder", "flops_prefill_projections"] == 2 * 12_288 * 30
    assert measured["decoder", "flops_prefill_scores"] == 3 * 2 * 2 * 4 * 16 * 100
    device = json.loads(answer.out)["device"]
    assert device["type"] == "meta"
    assert device["name"].endswith("LlamaForCausalLM")


@needs_transformers
def test_a_config_on_standard_input_works(ask: Ask, tmp_path: Path) -> None:
    piped = ask("verify", "-", "--against", "transformers", "--json", stdin=json.dumps(LLAMA))
    assert piped.code == 0
    assert checks(piped) == checks(compared(ask, saved(LLAMA, tmp_path)))


@needs_transformers
def test_a_second_context_exceeds_the_window_and_the_source_has_its_own_length(
    ask: Ask, tmp_path: Path
) -> None:
    windowed = checks(compared(ask, saved(GEMMA, tmp_path), "-c", "10"))
    # transformers keeps 23 of a window of 24, twice, and all 26 of the full layer: 128 B per token,
    # layer and sequence
    assert windowed["", "kv_cache_26"]["measured"] == 2 * (23 + 23 + 26) * 128
    crossed = checks(compared(ask, saved(BART, tmp_path), "-c", "10", "--source-context", "7"))
    assert crossed["", "cross_attention_cache_10"]["measured"] == 3 * 2 * 7 * 2 * 32 * 2
    assert crossed["decoder", "flops_prefill_scores"]["measured"] == 2 * 2 * 2 * 32 * (
        10 * 10 + 10 * 7
    )


@needs_transformers
def test_notes_name_what_is_not_compared(ask: Ask, tmp_path: Path) -> None:
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    vision |= {"image_size": 28, "patch_size": 14, "projection_dim": 16}
    config = {"model_type": "llava", "text_config": LLAMA, "torch_dtype": "bfloat16"}
    config["vision_config"] = {**vision, "model_type": "clip_vision_model"}
    answer = compared(ask, saved(config, tmp_path))
    assert answer.code == 0
    notes = " ".join(json.loads(answer.out)["notes"])
    assert "does not count it: vision_tower" in notes
    assert "language side" in checks(answer)["", "params_total"]["note"]
    routed = json.loads(compared(ask, saved(MIXTRAL, tmp_path)).out)["notes"]
    assert any("FLOPs of experts are not compared" in note for note in routed)
    gathered = checks(compared(ask, saved(BERT, tmp_path)))["encoder", "params_attention_layer"]
    assert gathered["note"].endswith(
        "up to 128 more in them are a norm or a table of positions, counted elsewhere"
    )


@needs_transformers
def test_a_class_that_reads_values_is_compared_by_parameters(
    ask: Ask, tmp_path: Path, monkeypatch: Patch
) -> None:
    import transformers

    def reads_values(self: Any, x: Any) -> Any:
        return x * float(x.sum())

    monkeypatch.setattr(
        transformers.models.llama.modeling_llama.LlamaRMSNorm, "forward", reads_values
    )
    answer = compared(ask, saved(LLAMA, tmp_path))
    assert answer.code == 0
    assert {c["section"] for c in checks(answer).values()} == {"parameters", "model"}
    assert "LlamaForCausalLM cannot run on tensors without values" in " ".join(
        json.loads(answer.out)["notes"]
    )


@needs_transformers
@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_every_format_works(ask: Ask, tmp_path: Path, form: str) -> None:
    path = saved(GEMMA, tmp_path)
    for more in ((), ("--explain",)):
        answer = ask("verify", path, "--against", "transformers", "--format", form, *more)
        assert (answer.code, answer.err) == (0, "")
        assert max(map(len, answer.out.splitlines())) <= 80 or form != "table"


LAYER = ("params_attention_layer", "params_attention", "params_total", "flops_prefill_projections")
BREAKS: dict[str, tuple[str, Break, tuple[str, ...]]] = {
    "W_k": ("llama", wider(Grouped, "W_k"), LAYER),
    "W_v across": ("bart", wider(Grouped, "W_v"), LAYER),
    "W_kv_b": ("deepseek", wider(Latent, "W_kv_b"), LAYER),
    "W_x": ("jamba", wider(Mamba, "W_x"), LAYER),
    "A_log, which has no FLOPs": ("jamba", wider(Mamba, "A_log"), LAYER[:3]),
    "cache": ("llama", wider_cache(Grouped), ("kv_cache_128",)),
    "caches of both": ("bart", wider_cache(Grouped), ("kv_cache_64", "cross_attention_cache_64")),
    "state": ("jamba", wider_cache(Mamba), ("recurrent_state_32",)),
    "scores": ("bert", scores(Grouped, lambda flops: 2 * flops), ("flops_prefill_scores",)),
    "window": (
        "gemma3",
        replaced(Sliding, "reach", property(lambda self: self.window + 1)),
        ("kv_cache_128",),
    ),
}


@needs_transformers
@each("name", BREAKS)
def test_a_wrong_formula_fails_exactly_its_checks(
    ask: Ask, tmp_path: Path, monkeypatch: Patch, name: str
) -> None:
    model, mutate, names = BREAKS[name]
    mutate(monkeypatch)
    path = saved(CONFIGS[model], tmp_path)
    answer = compared(ask, path)
    assert answer.code == 1
    assert {c["name"] for c in checks(answer).values() if not c["ok"]} == set(names)
    screen = ask("verify", path, "--against", "transformers").out
    assert "DISAGREE" in screen


@needs_transformers
def test_a_wrong_number_of_layers_fails(ask: Ask, tmp_path: Path, monkeypatch: Patch) -> None:
    """The model has one layer more than the class, so that layers and modules cannot be matched."""
    replace_config(monkeypatch, {**LLAMA, "num_hidden_layers": 2})
    answer = compared(ask, saved(LLAMA, tmp_path))
    assert answer.code == 1
    failed = {c["name"] for c in checks(answer).values() if not c["ok"]}
    assert failed == {"modules_decoder", "params_total", "params_attention", "kv_cache_128"}


@needs_transformers
def test_a_missing_class_is_exit_code_3(ask: Ask, tmp_path: Path, monkeypatch: Patch) -> None:
    replace_config(monkeypatch, {**LLAMA, "model_type": "llama17"})
    answer = compared(ask, saved(LLAMA, tmp_path))
    assert (answer.code, answer.out) == (3, "")
    assert "has no model_type 'llama17'" in answer.err
    replace_config(monkeypatch, {**LLAMA, "hidden_act": "sigh"})
    answer = compared(ask, saved(LLAMA, tmp_path))
    assert answer.code == 3
    assert "transformers cannot build its class for model_type 'llama': KeyError" in answer.err


def test_without_transformers_the_tip_is_the_install_command(
    ask: Ask, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    answer = ask("verify", saved(LLAMA, tmp_path), "--against", "transformers")
    assert (answer.code, answer.out) == (3, "")
    assert "pip install 'transformers>=5.23' torch" in answer.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("gpt3", "--against", "transformers"),
            "--against transformers needs a config.json, and 'gpt3' has none",
        ),
        (("llama2-70b", "--against", "tensorflow"), "--against tensorflow is not supported"),
        (("--against", "transformers"), "--against needs a model"),
        (
            ("gpt2", "--against", "transformers", "--scaling"),
            "--against cannot be combined with --scaling",
        ),
        (
            ("gpt2", "--against", "transformers", "--attention", "mqa"),
            "--against cannot be combined with --attention",
        ),
        (
            ("gpt2", "--against", "transformers", "--kernel", "math"),
            "--against cannot be combined with --kernel",
        ),
        (
            ("gpt2", "--against", "transformers", "--device", "cpu"),
            "--against cannot be combined with --device",
        ),
        (
            ("gpt2", "--against", "transformers", "--seed", "1"),
            "--against cannot be combined with --seed",
        ),
    ],
)
def test_invalid_arguments_are_errors(ask: Ask, arguments: tuple[str, ...], message: str) -> None:
    error = ask("verify", *arguments).error
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 2
