"""The command that starts an engine with the options of a request."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY, Ask
from tables import each

from attncalc import Workload, load
from attncalc.checkpoint import CheckpointWeights
from attncalc.config.gpus import gpu
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest, resolve

# Of Qwen/Qwen3-8B-AWQ, the keys that count.
QWEN3_AWQ = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "float16",
    "quantization_config": {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 128,
        "zero_point": True,
    },
}


def command(
    engine: str, model: str = "qwen3-8b", batch: int = 1, kv_dtype: str | None = None, **fields: Any
) -> str | None:
    workload = Workload.decode(batch, 4096, kv_dtype=kv_dtype)
    where = fields if "kv_memory" in fields else {"gpu": gpu("h100-80gb"), **fields}
    return launch_command(resolve(FitRequest(load(model), workload, engine, **where)))


VLLM = "vllm serve Qwen/Qwen3-8B"
SGLANG = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
LLAMACPP = "llama-server -m Qwen3-8B-BF16.gguf"


@each(
    ("engine", "fields", "expected"),
    [
        ("vllm", {}, f"{VLLM} --max-model-len 4096"),
        ("vllm", {"kv_dtype": "fp8"}, f"{VLLM} --kv-cache-dtype fp8 --max-model-len 4096"),
        ("vllm", {"weights_dtype": "fp8"}, f"{VLLM} --quantization fp8 --max-model-len 4096"),
        (
            "vllm",
            {"tp": 2, "pp": 2},
            f"{VLLM} --max-model-len 4096 --tensor-parallel-size 2 --pipeline-parallel-size 2",
        ),
        (
            "vllm",
            {"gpu_memory_utilization": "0.95"},
            f"{VLLM} --max-model-len 4096 --gpu-memory-utilization 0.95",
        ),
        (
            "vllm",
            {"kv_memory": 2**30},
            f"{VLLM} --max-model-len 4096 --kv-cache-memory-bytes 1073741824",
        ),
        (
            "vllm",
            {
                "engine_args": {
                    "allow_long_max_model_len": True,
                    "prefix_caching": False,
                    "max_num_seqs": 8,
                }
            },
            f"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 {VLLM} --max-model-len 4096 --max-num-seqs 8 "
            "--no-enable-prefix-caching",
        ),
        (
            "vllm",
            {"engine_args": {"flashinfer_sampler": True}},
            f"VLLM_USE_FLASHINFER_SAMPLER=1 {VLLM} --max-model-len 4096",
        ),
        (
            "vllm",
            {"engine_args": {"flashinfer_sampler": False}},
            f"VLLM_USE_FLASHINFER_SAMPLER=0 {VLLM} --max-model-len 4096",
        ),
        ("vllm", {"engine_args": {"warm_start": True}}, f"{VLLM} --max-model-len 4096"),
        (
            "sglang",
            {"kv_dtype": "fp8"},
            f"{SGLANG} --kv-cache-dtype fp8_e4m3 --context-length 4096",
        ),
        (
            "sglang",
            {
                "gpus": 4,
                "tp": 2,
                "gpu_memory_utilization": "0.8",
                "engine_args": {"block_size": 64},
            },
            f"{SGLANG} --context-length 4096 --tp-size 2 --dp-size 2 --mem-fraction-static 0.8 "
            "--page-size 64",
        ),
        # llama-server divides -c by the slots: three of 4,096 tokens are 12,288
        ("llamacpp", {"batch": 3}, f"{LLAMACPP} -c 12288 -np 3 -ngl 999"),
        (
            "llamacpp",
            {"kv_dtype": "q8_0"},
            f"{LLAMACPP} -c 4096 -np 1 -ngl 999 -ctk q8_0 -ctv q8_0",
        ),
        (
            "llamacpp",
            {"weights_dtype": "q4_0"},
            "llama-server -m Qwen3-8B-Q4_0.gguf -c 4096 -np 1 -ngl 999",
        ),
    ],
)
def test_a_command_has_the_engines_own_options(
    engine: str, fields: dict[str, Any], expected: str
) -> None:
    assert command(engine, **fields) == expected


def test_ranks_divide_the_experts_of_a_mixture_and_replicas_of_it_have_a_command_each() -> None:
    mixtral = "vllm serve mistralai/Mixtral-8x7B-v0.1 --max-model-len 4096"
    ranks = command("vllm", "mixtral-8x7b", gpus=4, dp=4, enable_expert_parallel=True)
    assert ranks == f"{mixtral} --data-parallel-size 4 --enable-expert-parallel"
    # vLLM would divide the experts of two ranks over all 8 GPUs
    assert command("vllm", "mixtral-8x7b", gpus=8, tp=4) == f"{mixtral} --tensor-parallel-size 4"
    assert (
        command("vllm", gpus=4, dp=2)
        == f"{VLLM} --max-model-len 4096 --tensor-parallel-size 2 --data-parallel-size 2"
    )
    sglang = command("sglang", "mixtral-8x7b", gpus=4, enable_expert_parallel=True) or ""
    assert "--tp-size 4 --ep-size 4" in sglang


@each(
    ("engine", "given", "flag"),
    [
        ("vllm", "fp8_e5m2", "--kv-cache-dtype fp8_e5m2"),
        ("vllm", "FP8_E5M2", "--kv-cache-dtype fp8_e5m2"),
        ("vllm", "fp8_e4m3", "--kv-cache-dtype fp8"),
        ("sglang", "fp8_e5m2", "--kv-cache-dtype fp8_e5m2"),
        ("sglang", "fp8", "--kv-cache-dtype fp8_e4m3"),
    ],
)
def test_the_format_of_an_fp8_cache_stays(ask: Ask, engine: str, given: str, flag: str) -> None:
    asked = ("fit", "qwen3-8b", "--gpu", "a100", "--engine", engine, "--kv-dtype", given, "--json")
    document = ask(*asked).document
    assert f" {flag} " in document["launch_command"]
    assert document["workload"]["kv_dtype"] == "fp8"


def test_weights_without_a_command_say_which_checkpoint_has_one(ask: Ask, tmp_path: Path) -> None:
    """vLLM converts weights to fp8 as it loads them, and not to int4; a checkpoint in int4 keeps
    its command.
    """
    asked = ("--gpu", "a100", "-c", "4K")
    dead_end = ask("fit", "phi-4", *asked, "--weights-dtype", "int4").out
    assert "vllm serve" not in dead_end
    assert "--weights-dtype int4 needs a checkpoint in int4" in dead_end
    # one is known
    for model, more in (("qwen3-32b", ()), ("qwen3-8b", ("--served-model", "Qwen/Qwen3-8B-AWQ"))):
        command = ask("fit", model, *asked, "--weights-dtype", "int4", *more, "--json").document[
            "launch_command"
        ]
        assert command.lower() == f"vllm serve qwen/{model}-awq --max-model-len 4096"
    assert "needs a checkpoint" not in ask("fit", "qwen3-8b", *asked, "--weights-dtype", "fp8").out
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_AWQ), encoding="utf-8")
    for options in ((), ("--weights-dtype", "int4"), ("--kv-dtype", "fp8")):
        document = ask("fit", str(tmp_path), *asked, *options, "--json").document
        assert document["launch_command"].startswith(f"vllm serve {tmp_path}")


@pytest.mark.parametrize(
    ("gpu", "half"), [("t4", "fp16"), ("v100-32gb", "fp16"), ("a10g", "bf16"), ("24GB", "bf16")]
)
def test_a_model_in_bf16_runs_in_fp16_on_a_gpu_without_it(ask: Ask, gpu: str, half: str) -> None:
    """vLLM's Platform.supported_dtypes has bf16 from compute capability 8.0 on; vLLM 0.8 asked for
    --dtype=half.
    """
    document = ask(
        "fit", "qwen3-4b", "--gpu", gpu, "--engine", "vllm", "-c", "4K", "--json"
    ).document
    assert document["summary"].startswith("FITS")
    assert ("--dtype float16" in document["launch_command"]) is (half == "fp16")
    assert (document["roofline"] is None) is (gpu == "24GB")
    asked = ask("fit", "qwen3-4b", "--gpu", gpu, "--engine", "vllm", "-c", "4K", "--dtype", "bf16")
    assert ("bf16 needs a GPU with compute capability 8.0" in asked.err) is (half == "fp16")


def test_there_is_no_command_without_a_server_or_a_checkpoint() -> None:
    assert command("transformers") is None
    assert command("ideal") is None
    # vLLM converts to fp8 as it loads, but an int4 checkpoint has another name
    assert command("vllm", weights_dtype="int4") is None
    assert command("vllm", "deepseek-v3", weights_dtype="int4", tp=8, gpus=8) is None
    # released in fp8, which GGUF does not have
    assert command("llamacpp", "deepseek-v3", gpus=16) is None


def test_the_model_is_the_presets_repository_or_the_path_that_was_given(
    ask: Ask, tmp_path: Path
) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    config = (REPOSITORY / "docs/examples/qwen3-next-80b-a3b/config.json").read_text()
    (folder / "config.json").write_text(config)
    for path in (folder, folder / "config.json"):
        answer = ask("fit", str(path), "--kv-memory", "9GiB", "-c", "4096", "--json").document
        assert shlex.split(answer["launch_command"])[:3] == ["vllm", "serve", str(folder)]
        assert f"'{folder}'" in answer["launch_command"]
    (tmp_path / "llama.json").write_text(config)
    # vLLM loads folders, not such a file
    for name, text in ((str(tmp_path / "llama.json"), ""), ("-", config)):
        answer = ask(
            "fit", name, "--kv-memory", "9GiB", "-c", "4096", "--json", stdin=text
        ).document
        assert shlex.split(answer["launch_command"])[:3] == ["vllm", "serve", "MODEL"]
    for preset, repository in (
        ("gpt-oss-20b", "openai/gpt-oss-20b"),
        ("falcon-7b", "tiiuae/falcon-7b"),
    ):
        assert (command("vllm", preset) or "").split()[2] == repository
    for name, repository in (
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
    ):
        answer = ask("fit", name, "--kv-memory", "20GiB", "-c", "4096", "--json").document
        assert answer["launch_command"].split()[2] == repository


@pytest.mark.parametrize(
    ("engine", "model", "args", "flags"),
    [
        (
            "vllm",
            "deepseek-v3",
            {"speculative_layers": 1, "speculative_tokens": 2},
            {"method": "mtp"},
        ),
        (
            "vllm",
            "qwen3-8b",
            {"speculative_layers": 1, "speculative_tokens": 2},
            {"model": "DRAFT_MODEL"},
        ),
        ("vllm", "qwen3-8b", {"speculative_tokens": 2}, {"method": "ngram"}),
        (
            "vllm",
            "qwen3-8b",
            {"speculative_tokens": 2, "speculative_config": '{"method": "suffix"}'},
            {"method": "suffix"},
        ),
    ],
)
def test_a_drafter_of_vllm_is_in_its_speculative_config(
    engine: str, model: str, args: dict[str, Any], flags: dict[str, str]
) -> None:
    words = shlex.split(command(engine, model, engine_args=args, gpus=8) or "")
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {**flags, "num_speculative_tokens": 2}


@pytest.mark.parametrize(
    ("model", "args", "flags"),
    [
        # server_args: with one candidate per step there are as many drafts as steps, and the token
        # of the target
        (
            "deepseek-v3",
            {"speculative_layers": 1, "speculative_tokens": 4},
            "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 4",
        ),
        (
            "qwen3-8b",
            {"speculative_layers": 1},
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFT_MODEL",
        ),
        (
            "qwen3-8b",
            {"speculative_tokens": 4},
            "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4",
        ),
    ],
)
def test_a_drafter_of_sglang_has_its_own_options(
    model: str, args: dict[str, int], flags: str
) -> None:
    assert (command("sglang", model, engine_args=args, gpus=8) or "").endswith(flags)


def test_without_drafts_there_is_no_speculation() -> None:
    for engine in ("vllm", "sglang"):
        assert "speculative" not in (command(engine) or "")


@pytest.mark.parametrize("value", ["on", "off", "auto"])
def test_flash_attention_of_llamacpp_is_as_given(value: str) -> None:
    assert f" --flash-attn {value}" in (
        command("llamacpp", engine_args={"flash_attn": value}) or ""
    )
    assert "flash-attn" not in (command("llamacpp") or "")


def options(engine: str, model: str = "qwen3-8b", **fields: Any) -> str:
    """Return the options after the context's, of a model without speculation."""
    text = command(engine, model, **fields) or ""
    return text.partition(
        "-len 4096" if engine == "vllm" else "-length 4096" if engine == "sglang" else "-ngl"
    )[2]


@each(
    ("engine", "args", "expected"),
    [
        ("vllm", {"max_num_batched_tokens": 2048}, " --max-num-batched-tokens 2048"),
        ("vllm", {"block_size": 32}, " --block-size 32"),
        ("vllm", {"mamba_ssm_cache_dtype": "fp32"}, " --mamba-ssm-cache-dtype float32"),
        ("vllm", {"prefix_caching": True}, " --enable-prefix-caching"),
        ("vllm", {"enforce_eager": True}, " --enforce-eager"),
        ("vllm", {"disable_hybrid_kv_cache_manager": True}, " --disable-hybrid-kv-cache-manager"),
        ("vllm", {"engine_version": "0.17.1", "swap_space": 2**32}, " --swap-space 4"),
        ("vllm", {"engine_version": "0.17.1", "swap_space": 2**29}, " --swap-space 0.5"),
        ("vllm", {"engine_version": "0.17.1", "swap_space": 0}, " --swap-space 0"),
        ("vllm", {"engine_version": "0.18.0", "swap_space": 2**32}, ""),  # it has none
        (
            "vllm",
            {"enable_lora": True, "max_loras": 4, "max_lora_rank": 64},
            " --enable-lora --max-lora-rank 64 --max-loras 4",
        ),
        ("vllm", {"cpu_offload_gb": 5 * 2**29}, " --cpu-offload-gb 2.5"),
        (
            "vllm",
            {"kv_offloading_size": 5 * 2**29},
            " --kv-offloading-size 2.5 --kv-offloading-backend native",
        ),
        ("sglang", {"hicache_size": 30}, " --enable-hierarchical-cache --hicache-size 30"),
        (
            "sglang",
            {"enable_lora": True, "max_lora_rank": 64, "lora_target_modules": "q_proj o_proj"},
            " --enable-lora --max-lora-rank 64 --lora-target-modules q_proj o_proj",
        ),
        (
            "vllm",
            {
                "language_model_only": True,
                "skip_mm_profiling": True,
                "max_cudagraph_capture_size": 64,
            },
            " --language-model-only --skip-mm-profiling --max-cudagraph-capture-size 64",
        ),
        ("vllm", {"warm_start": True}, ""),
        (
            "vllm",
            {"limit_mm_per_prompt": '{"image": 0}'},
            """ --limit-mm-per-prompt '{"image": 0}'""",
        ),
        ("vllm", {"speculative_layers": 1}, """ --speculative-config '{"model": "DRAFT_MODEL"}'"""),
        ("sglang", {"max_running_requests": 8}, " --max-running-requests 8"),
        ("sglang", {"chunked_prefill_size": 4096}, " --chunked-prefill-size 4096"),
        ("sglang", {"max_mamba_cache_size": 64}, " --max-mamba-cache-size 64"),
        ("sglang", {"cuda_graph_max_bs": 8}, " --cuda-graph-max-bs-decode 8"),
        ("sglang", {"engine_version": "0.5.13", "cuda_graph_max_bs": 8}, " --cuda-graph-max-bs 8"),
        (
            "sglang",
            {"mamba_radix_cache_strategy": "no_buffer"},
            " --mamba-radix-cache-strategy no_buffer",
        ),
        (
            "sglang",
            {"engine_version": "0.5.13", "mamba_radix_cache_strategy": "no_buffer"},
            " --mamba-scheduler-strategy no_buffer",
        ),
        ("sglang", {"max_total_tokens": 8192}, " --max-total-tokens 8192"),
        ("sglang", {"swa_full_tokens_ratio": "0.5"}, " --swa-full-tokens-ratio 0.5"),
        ("sglang", {"mamba_full_memory_ratio": "0.7"}, " --mamba-full-memory-ratio 0.7"),
        ("sglang", {"mamba_ssm_cache_dtype": "bf16"}, " --mamba-ssm-dtype bfloat16"),
        ("sglang", {"prefix_caching": False}, " --disable-radix-cache"),
        ("sglang", {"prefix_caching": True}, ""),
        ("sglang", {"disable_hybrid_swa_memory": True}, " --disable-hybrid-swa-memory"),
        ("sglang", {"ple_offload_embedding": False}, " --no-ple-offload-embedding"),
        *(
            (
                "sglang",
                {"speculative_layers": 1, "speculative_tokens": tokens},
                " --speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFT_MODEL"
                f" --speculative-num-steps {steps} --speculative-eagle-topk 1 "
                f"--speculative-num-draft-tokens {tokens}",
            )
            for tokens, steps in ((1, 1), (2, 1), (3, 2))
        ),
        ("llamacpp", {"ubatch": 256}, " 999 -ub 256"),
        ("llamacpp", {"n_gpu_layers": 20}, " 20"),
        ("llamacpp", {"n_gpu_layers": 0}, " 0"),
        ("llamacpp", {"tensor_split": (3.0, 1.5)}, " 999 -ts 3,1.5"),
        ("llamacpp", {"no_kv_offload": True}, " 999 -nkvo"),
        ("llamacpp", {"kv_dtype_k": "int8"}, " 999 -ctk q8_0"),
        ("llamacpp", {"kv_dtype_v": "int4"}, " 999 -ctv q4_0"),
        ("llamacpp", {"kv_dtype_k": "bf16", "kv_dtype_v": "fp32"}, " 999 -ctk bf16 -ctv f32"),
        ("llamacpp", {"kv_unified": True}, " 999 -kvu"),
        ("llamacpp", {"swa_full": True}, " 999 --swa-full"),
    ],
)
def test_each_argument_has_its_option(engine: str, args: dict[str, Any], expected: str) -> None:
    gpus: dict[str, Any] = {"gpus": 2} if "tensor_split" in args else {}
    assert options(engine, engine_args=args, **gpus) == expected


@pytest.mark.parametrize(
    ("layers", "flag"),
    [
        (10, " 999 --n-cpu-moe 10"),
        (31, " 999 --n-cpu-moe 31"),
        (32, " 999 --cpu-moe"),
        (40, " 999 --cpu-moe"),
        (0, " 999"),
    ],
)
def test_experts_on_the_host(layers: int, flag: str) -> None:
    """Mixtral has 32 layers."""
    assert options("llamacpp", "mixtral-8x7b", engine_args={"n_cpu_moe": layers}, gpus=4) == flag


@pytest.mark.parametrize(
    ("args", "batch", "cells", "slots"),
    [
        ({}, 3, 3 * 4096, 3),
        ({"sequences": 5}, 3, 5 * 4096, 5),
        ({"kv_unified": True}, 3, 3 * 4096, 3),
        ({"kv_unified": True, "sequences": 5}, 3, 3 * 4096, 5),
    ],
)
def test_the_context_of_llamacpp_is_that_of_all_slots(
    args: dict[str, Any], batch: int, cells: int, slots: int
) -> None:
    """A unified cache has the cells of all requests, whichever slot they are in."""
    assert f" -c {cells} -np {slots} " in (command("llamacpp", batch=batch, engine_args=args) or "")


def test_without_a_gpu_llamacpp_has_no_layers_on_one() -> None:
    text = command("llamacpp", kv_memory=2**33, engine_args={"kv_unified": True}) or ""
    assert text == f"{LLAMACPP} -c 4096 -np 1 -kvu"


@pytest.mark.parametrize(
    ("engine", "model", "fields", "expected"),
    [
        ("vllm", "qwen3-8b", {"kv_dtype": "int8"}, "--kv-cache-dtype int8_per_token_head"),
        ("vllm", "qwen3-8b", {"kv_dtype": "int4"}, "--kv-cache-dtype int4_per_token_head"),
        ("vllm", "qwen3-8b", {"kv_dtype": "fp4"}, "--kv-cache-dtype nvfp4"),
        ("sglang", "qwen3-8b", {"kv_dtype": "fp4"}, "--kv-cache-dtype fp4_e2m1"),
        ("vllm", "qwen3-8b", {"kv_dtype": "bf16"}, None),  # the default
        ("vllm", "qwen3-8b", {"weights_dtype": "bf16"}, None),
        ("vllm", "deepseek-v3", {"weights_dtype": "fp8", "gpus": 16}, None),  # as released
    ],
)
def test_dtypes_have_the_engines_names(
    engine: str, model: str, fields: dict[str, Any], expected: str | None
) -> None:
    text = command(engine, model, **fields) or ""
    assert text
    assert (expected in text) if expected else "dtype" not in text and "quantization" not in text


@pytest.mark.parametrize(
    ("version", "model", "fields", "expected"),
    [
        ("0.5.22", "mixtral-8x7b", {"tp": 4, "attn_dp": 2}, "--tp-size 4 --attn-dp-size 2"),
        (
            "0.5.21",
            "mixtral-8x7b",
            {"tp": 4, "attn_dp": 2},
            "--tp-size 4 --dp-size 2 --enable-dp-attention",
        ),
        (
            "0.5.23",
            "mixtral-8x7b",
            {"gpus": 8, "tp": 4, "attn_dp": 2},
            "--tp-size 4 --attn-dp-size 2",
        ),
        ("0.5.23", "qwen3-8b", {"gpus": 4, "tp": 2, "pp": 2}, "--tp-size 2 --pp-size 2"),
        ("0.5.23", "qwen3-8b", {"gpus": 4, "tp": 2, "dp": 2}, "--tp-size 2 --dp-size 2"),
    ],
)
def test_parallelism_of_sglang(
    version: str, model: str, fields: dict[str, Any], expected: str
) -> None:
    assert (
        options("sglang", model, engine_args={"engine_version": version}, **fields)
        == f" {expected}"
    )


def test_revision_and_path_are_as_given() -> None:
    given: dict[str, Any] = {"served_model": "/models/mine", "revision": "v2"}
    assert command("vllm", **given) == "vllm serve /models/mine --revision v2 --max-model-len 4096"
    assert (command("sglang", **given) or "").endswith(
        "--model-path /models/mine --revision v2 --context-length 4096"
    )
    assert (command("llamacpp", served_model="/models/mine/") or "").startswith(
        "llama-server -m mine-BF16.gguf "
    )
    assert (command("llamacpp", served_model="mine.GGUF") or "").startswith(
        "llama-server -m mine.GGUF "
    )


def test_dcp_is_an_option_of_vllm() -> None:
    text = command("vllm", "deepseek-v3", gpus=8, tp=8, dcp=4, weights_dtype=None) or ""
    assert "--tensor-parallel-size 8 --decode-context-parallel-size 4" in text


def test_a_draft_model_is_named_by_its_repository_or_as_given() -> None:
    draft = load("qwen3-0.6b")
    for served, name in ((None, "Qwen/Qwen3-0.6B"), ("/models/draft", "/models/draft")):
        words = shlex.split(
            command("vllm", draft=draft, served_draft=served, engine_args={"speculative_tokens": 3})
            or ""
        )
        config = json.loads(words[words.index("--speculative-config") + 1])
        assert config == {"model": name, "num_speculative_tokens": 3}


@each(
    ("kind", "served", "revision", "expected"),
    [
        # files of a repository: llama.cpp downloads them, of its default branch
        ("GGUF", "org/name:Q4_K_M", None, "-hf org/name:Q4_K_M"),
        ("GGUF", "org/name:a.gguf", None, "-hf org/name -hff a.gguf"),
        ("GGUF", "org/name:A.GGUF", None, "-hf org/name -hff A.GGUF"),
        ("GGUF", "org/name", None, "-hf org/name"),
        ("GGUF", "org/name:Q4_K_M", "v2", None),
        # a path
        ("GGUF", "/models/a.gguf", None, "-m /models/a.gguf"),
        ("GGUF", "/models/folder", None, "-m /models/folder"),
        ("GGUF", "/models/folder", "v2", "-m /models/folder"),
        ("safetensors", "/models/a.gguf", None, "-m /models/a.gguf"),
        # another checkpoint is converted, into a file of this name
        ("safetensors", "org/name", None, "-m name-BF16.gguf"),
        (None, "org/name", None, "-m name-BF16.gguf"),
        (None, "org/a.gguf", None, "-m org/a.gguf"),
    ],
)
def test_llamacpp_loads_a_file_a_repository_or_what_a_checkpoint_is_converted_to(
    kind: Any, served: str, revision: str | None, expected: str | None
) -> None:
    stored = CheckpointWeights(1, 1, (), 10**9, kind=kind) if kind else None
    model = dataclasses.replace(load("qwen3-8b"), stored=stored)
    asked = FitRequest(
        model,
        Workload.decode(1, 4096),
        "llamacpp",
        kv_memory=2**33,
        served_model=served,
        revision=revision,
    )
    found = launch_command(resolve(asked))
    assert found == (None if expected is None else f"llama-server {expected} -c 4096 -np 1")


@pytest.mark.parametrize(("drafts", "steps"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_sglang_drafts_the_last_token_without_a_step(drafts: int, steps: int) -> None:
    args = {"speculative_layers": 1, "speculative_tokens": drafts}
    text = command("sglang", engine_args=args) or ""
    assert text.endswith(
        f"--speculative-num-steps {steps} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {drafts}"
    )


@pytest.mark.parametrize(
    ("model_dtype", "cache", "expected"),
    [("fp16", "bf16", "bfloat16"), ("bf16", "fp16", "float16"), ("fp16", "fp16", None)],
)
def test_a_cache_in_another_dtype_than_the_model_is_an_option(
    model_dtype: str, cache: str, expected: str | None
) -> None:
    workload = Workload.decode(1, 4096, dtype=model_dtype, kv_dtype=cache)
    text = (
        launch_command(
            resolve(FitRequest(load("qwen3-8b"), workload, "vllm", gpu=gpu("h100-80gb")))
        )
        or ""
    )
    assert text.partition(" --kv-cache-dtype ")[2].partition(" ")[0] == (expected or "")


@pytest.mark.parametrize(
    ("released", "has_command"),
    [({}, True), ({"weights_dtype": "int4"}, False), ({"experts_dtype": "mxfp4"}, False)],
)
def test_vllm_quantizes_to_fp8_only_what_is_not_quantized(
    released: dict[str, str], has_command: bool
) -> None:
    model = dataclasses.replace(load("qwen3-8b"), **released)  # type: ignore[arg-type]
    asked = FitRequest(
        model, Workload.decode(1, 4096), "vllm", gpu=gpu("h100-80gb"), weights_dtype="fp8"
    )
    assert (launch_command(resolve(asked)) is not None) == has_command


@each(("given", "printed"), [("90%", "0.9"), ("0.90", "0.90"), ("1/4", "0.25")])
def test_a_share_is_printed_as_engines_read_it(ask: Ask, given: str, printed: str) -> None:
    words = ("fit", "gpt2", "--gpu", "h100", "--gpu-memory-utilization", given)
    out = ask(*words).out
    assert out.count(f"--gpu-memory-utilization {printed}") == 2
