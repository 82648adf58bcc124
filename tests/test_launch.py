"""The command that starts an engine with the options of a request."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY, Ask

from attncalc import Workload, load
from attncalc.config.gpus import gpu
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest, resolve


def command(
    engine: str, model: str = "qwen3-8b", batch: int = 1, kv_dtype: str | None = None, **fields: Any
) -> str | None:
    workload = Workload.decode(batch, 4096, kv_dtype=kv_dtype)
    where = fields if "kv_memory" in fields else {"gpu": gpu("h100-80gb"), **fields}
    return launch_command(resolve(FitRequest(load(model), workload, engine, **where)))


VLLM = "vllm serve Qwen/Qwen3-8B"
SGLANG = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
LLAMACPP = "llama-server -m Qwen3-8B-BF16.gguf"


@pytest.mark.parametrize(
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
        ("vllm", {"gpu_memory_utilization": "0.95"}, f"{VLLM} --max-model-len 4096 --gpu-memory-utilization 0.95"),
        ("vllm", {"kv_memory": 2**30}, f"{VLLM} --max-model-len 4096 --kv-cache-memory-bytes 1073741824"),
        (
            "vllm",
            {"engine_args": {"allow_long_max_model_len": True, "prefix_caching": False, "max_num_seqs": 8}},
            f"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 {VLLM} --max-model-len 4096 --max-num-seqs 8 --no-enable-prefix-caching",
        ),
        ("sglang", {"kv_dtype": "fp8"}, f"{SGLANG} --kv-cache-dtype fp8_e4m3 --context-length 4096"),
        (
            "sglang",
            {"gpus": 4, "tp": 2, "gpu_memory_utilization": "0.8", "engine_args": {"block_size": 64}},
            f"{SGLANG} --context-length 4096 --tp-size 2 --dp-size 2 --mem-fraction-static 0.8 --page-size 64",
        ),
        # llama-server divides -c by the slots: three of 4,096 tokens are 12,288
        ("llamacpp", {"batch": 3}, f"{LLAMACPP} -c 12288 -np 3 -ngl 999"),
        ("llamacpp", {"kv_dtype": "q8_0"}, f"{LLAMACPP} -c 4096 -np 1 -ngl 999 -ctk q8_0 -ctv q8_0"),
        ("llamacpp", {"weights_dtype": "q4_0"}, "llama-server -m Qwen3-8B-Q4_0.gguf -c 4096 -np 1 -ngl 999"),
    ],
)
def test_a_command_has_the_engines_own_options(engine: str, fields: dict[str, Any], expected: str) -> None:
    assert command(engine, **fields) == expected


def test_ranks_divide_the_experts_of_a_mixture_and_replicas_of_it_have_a_command_each() -> None:
    mixtral = "vllm serve mistralai/Mixtral-8x7B-v0.1 --max-model-len 4096"
    ranks = command("vllm", "mixtral-8x7b", gpus=4, dp=4, enable_expert_parallel=True)
    assert ranks == f"{mixtral} --data-parallel-size 4 --enable-expert-parallel"
    # vLLM would divide the experts of two ranks over all 8 GPUs
    assert command("vllm", "mixtral-8x7b", gpus=8, tp=4) == f"{mixtral} --tensor-parallel-size 4"
    assert (
        command("vllm", gpus=4, dp=2) == f"{VLLM} --max-model-len 4096 --tensor-parallel-size 2 --data-parallel-size 2"
    )
    sglang = command("sglang", "mixtral-8x7b", gpus=4, enable_expert_parallel=True) or ""
    assert "--tp-size 4 --ep-size 4" in sglang


def test_there_is_no_command_without_a_server_or_a_checkpoint() -> None:
    assert command("transformers") is None
    assert command("ideal") is None
    # vLLM converts to fp8 as it loads, but an int4 checkpoint has another name
    assert command("vllm", weights_dtype="int4") is None
    assert command("vllm", "deepseek-v3", weights_dtype="int4", tp=8, gpus=8) is None
    assert command("llamacpp", "deepseek-v3", gpus=16) is None  # released in fp8, which GGUF does not have


def test_the_model_is_the_presets_repository_or_the_path_that_was_given(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    config = (REPOSITORY / "docs/examples/qwen3-next-80b-a3b/config.json").read_text()
    (folder / "config.json").write_text(config)
    for path in (folder, folder / "config.json"):
        answer = json.loads(ask("fit", str(path), "--kv-memory", "9GiB", "-c", "4096", "--json").out)
        assert shlex.split(answer["launch_command"])[:3] == ["vllm", "serve", str(folder)]
        assert f"'{folder}'" in answer["launch_command"]
    (tmp_path / "llama.json").write_text(config)
    for name, text in ((str(tmp_path / "llama.json"), ""), ("-", config)):  # vLLM loads folders, not such a file
        answer = json.loads(ask("fit", name, "--kv-memory", "9GiB", "-c", "4096", "--json", stdin=text).out)
        assert shlex.split(answer["launch_command"])[:3] == ["vllm", "serve", "MODEL"]
    for preset, repository in (("gpt-oss-20b", "openai/gpt-oss-20b"), ("falcon-7b", "tiiuae/falcon-7b")):
        assert (command("vllm", preset) or "").split()[2] == repository
    for name, repository in (
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
    ):
        answer = json.loads(ask("fit", name, "--kv-memory", "20GiB", "-c", "4096", "--json").out)
        assert answer["launch_command"].split()[2] == repository


@pytest.mark.parametrize(
    ("engine", "model", "args", "flags"),
    [
        ("vllm", "deepseek-v3", {"speculative_layers": 1, "speculative_tokens": 2}, {"method": "mtp"}),
        ("vllm", "qwen3-8b", {"speculative_layers": 1, "speculative_tokens": 2}, {"model": "DRAFT_MODEL"}),
        ("vllm", "qwen3-8b", {"speculative_tokens": 2}, {"method": "ngram"}),
    ],
)
def test_a_drafter_of_vllm_is_in_its_speculative_config(
    engine: str, model: str, args: dict[str, int], flags: dict[str, str]
) -> None:
    words = shlex.split(command(engine, model, engine_args=args, gpus=8) or "")
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {**flags, "num_speculative_tokens": 2}


@pytest.mark.parametrize(
    ("model", "args", "flags"),
    [
        # server_args: with one candidate per step there are as many drafts as steps, and the token of the target
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
        ("qwen3-8b", {"speculative_tokens": 4}, "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4"),
    ],
)
def test_a_drafter_of_sglang_has_its_own_options(model: str, args: dict[str, int], flags: str) -> None:
    assert (command("sglang", model, engine_args=args, gpus=8) or "").endswith(flags)


def test_without_drafts_there_is_no_speculation() -> None:
    for engine in ("vllm", "sglang"):
        assert "speculative" not in (command(engine) or "")


@pytest.mark.parametrize("value", ["on", "off", "auto"])
def test_flash_attention_of_llamacpp_is_as_given(value: str) -> None:
    assert f" --flash-attn {value}" in (command("llamacpp", engine_args={"flash_attn": value}) or "")
    assert "flash-attn" not in (command("llamacpp") or "")
