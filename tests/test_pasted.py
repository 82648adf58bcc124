"""A launch command as a question: `attncalc fit --gpu h100 -- vllm serve Qwen/Qwen3-8B`."""

import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, shell
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError
from attncalc.options import options_of
from attncalc.questions.fit.options import FitOptions
from attncalc.questions.fit.pasted import expand

OPTIONS = {
    part: option
    for option in options_of(FitOptions).values()
    for name in (*option.names, *option.also)
    for part in name.split("/")
}


def expanded(command: str, *before: str) -> list[str]:
    return expand(before, shlex.split(command), OPTIONS, OPTIONS)


def fit(ask: Ask, *words: str) -> dict[str, Any]:
    answer = ask("fit", *words, "--json") if "--" not in words else ask("fit", "--json", *words)
    assert answer.code in (0, 1), answer.err
    found: dict[str, Any] = json.loads(answer.out)
    return found


def values(answer: dict[str, Any]) -> dict[str, Any]:
    return {figure["name"]: figure["value"] for figure in answer["results"]}


@each("options", ["--get kv_memory", "--get kv_memory --unit B", "--get=kv_memory --quiet"])
def test_the_value_of_an_option_for_output_is_no_model(ask: Ask, options: str) -> None:
    answer = ask("fit", "--gpu", "h100", *options.split(), "--", "vllm", "serve", "Qwen/Qwen3-8B")
    assert (answer.code, int(answer.out)) == (
        0,
        values(fit(ask, "qwen3-8b", "--gpu", "h100"))["kv_memory"],
    )


@each("option", ["--format json", "--fail-if kv_needed>1TB", "-o FILE"])
def test_a_launch_command_keeps_its_model_beside_an_option_for_output(
    ask: Ask, option: str, tmp_path: Path
) -> None:
    file = tmp_path / "answer.json"
    words = option.replace("FILE", str(file)).split()
    answer = ask("fit", "--gpu", "h100", *words, "--", "vllm", "serve", "Qwen/Qwen3-8B")
    assert answer.code == 0
    assert "Qwen3 8B" in (answer.out or file.read_text())


@each(
    "options",
    [
        "qwen3-8b --gpu h100 -c 8K",
        "qwen3-8b --gpu h100 -c 8K --kv-dtype fp8 --gpu-memory-utilization 0.9 --max-num-seqs 32",
        "qwen3-8b --gpu 2xh100 --tp 2 -c 8K --no-prefix-caching --enforce-eager",
        "llama3.1-70b --gpu h100 --tp 4 --pp 2 -c 8K --weights-dtype fp8 --block-size 32",
        "llama3.1-8b --gpu l4 -c 200K --allow-long-max-model-len",
        "qwen3-32b --gpu h100 -c 32000 --no-flashinfer-sampler --kv-offloading-size 16",
        "qwen3-8b --gpu 2xh100 --tp 2 -c 8K --no-v2-model-runner --no-allreduce-symm-mem "
        "--fused-moe-chunk-size 8192",
        "qwen3-8b --engine sglang --gpu h100 -c 8K --enable-lora --max-lora-rank 16 "
        "--lora-target-modules all",
        "qwen3-30b-a3b --gpu h100 --tp 2 --dp 2 --enable-expert-parallel -c 4K",
        "qwen3-8b --gpu h100 -c 4K --speculative-tokens 3",
        "qwen3-8b --engine sglang --gpu h100 -c 8K --kv-dtype fp8 --gpu-memory-utilization 0.8",
        "qwen3-8b --engine sglang --gpu h100 --tp 2 -c 8K --no-prefix-caching "
        "--max-running-requests 16",
        "deepseek-v3 --engine sglang --gpu h200 --tp 8 --attn-dp 8 -c 8K --enable-expert-parallel",
        "qwen3-next-80b-a3b --engine sglang --gpu h200 --tp 2 -c 8K --cuda-graph-max-bs 16 "
        "--mamba-radix-cache-strategy no_buffer --mamba-full-memory-ratio 0.5",
        "qwen3-8b --engine llamacpp --gpu 24GB -c 8K -b 4",
        "qwen3-8b --engine llamacpp --gpu 24GB -c 8K -np 4 -kvu -ctk q8_0 -ctv q8_0 -fa on",
        "qwen3-30b-a3b --engine llamacpp --gpu 24GB -c 8K --weights-dtype q4_k_m -ncmoe 12 -ub "
        "1024",
        # drafters: a smaller model, the model's own layers, and layers of a model that is not named
        "qwen3-8b --gpu h100 -c 8K --speculative-model qwen3-0.6b --speculative-tokens 4",
        "deepseek-v3 --gpu h200 --tp 8 -c 8K --speculative-layers 1 --speculative-tokens 2",
        "qwen3-8b --gpu h100 -c 8K --speculative-layers 1 --speculative-tokens 3",
        "qwen3-8b --engine sglang --gpu h100 -c 8K --speculative-model qwen3-0.6b "
        "--speculative-tokens 4",
        "deepseek-v3 --engine sglang --gpu h200 --tp 8 -c 8K --speculative-layers 1 "
        "--speculative-tokens 2",
        "qwen3-8b --engine sglang --gpu h100 -c 8K --speculative-layers 1 --speculative-tokens 3",
        "qwen3-8b --engine llamacpp --gpu 24GB -c 8K -md qwen3-0.6b --speculative-tokens 8 -ctkd "
        "q8_0 -ctvd q8_0",
        "deepseek-v3 --engine llamacpp --gpu 8xh200 -c 8K --weights-dtype q4_k_m "
        "--speculative-layers 1",
    ],
)
def test_what_attncalc_prints_it_also_reads(ask: Ask, options: str) -> None:
    asked = shlex.split(options)
    first = fit(ask, *asked)
    assert first["launch_command"]
    gpu = asked[asked.index("--gpu") + 1]
    second = fit(ask, "--gpu", gpu, "--", *shlex.split(first["launch_command"]))
    assert second["launch_command"] == first["launch_command"]
    assert values(second) == values(first)


@each(
    ("command", "expected"),
    [
        # vLLM's parser takes underscores and an equals sign; k is 1,000 and K 1,024
        ("vllm serve a/b --max_model_len=32k -tp 2", "a/b --context 32k --tp 2 --engine vllm"),
        ("/usr/bin/vllm serve --model a/b", "a/b --engine vllm"),
        ("CUDA_VISIBLE_DEVICES=0,1 vllm serve a/b", "a/b --engine vllm"),
        (
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve a/b",
            "a/b --allow-long-max-model-len --engine vllm",
        ),
        (
            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 VLLM_USE_V2_MODEL_RUNNER=1 vllm serve a/b",
            "a/b --no-estimate-cudagraphs --v2-model-runner --engine vllm",
        ),
        ("VLLM_ALLOW_LONG_MAX_MODEL_LEN=0 vllm serve a/b", "a/b --engine vllm"),
        ("VLLM_USE_V1=0 vllm serve a/b", "a/b --engine-version v0 --engine vllm"),
        (
            "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.9.2 --model a/b",
            "a/b --engine-version 0.9.2 --flashinfer-sampler --engine vllm",
        ),
        # later versions do not sample with FlashInfer where it is installed, and images before V1
        # have an old one
        (
            "docker run vllm/vllm-openai:v0.11.1 --model a/b",
            "a/b --engine-version 0.11.1 --engine vllm",
        ),
        (
            "docker run vllm/vllm-openai:v0.7.3 --model a/b",
            "a/b --engine-version 0.7.3 --engine vllm",
        ),
        (
            "docker run -e VLLM_FUSED_MOE_CHUNK_SIZE=8192 vllm/vllm-openai:v0.8.5 --model a/b",
            "a/b --fused-moe-chunk-size 8192 --engine-version 0.8.5 --flashinfer-sampler "
            "--engine vllm",
        ),
        (
            "docker run lmsysorg/sglang:v0.5.2-cu126 python3 -m sglang.launch_server "
            "--model-path a/b --tp 2",
            "a/b --tp 2 --engine-version 0.5.2 --engine sglang",
        ),
        # the checkpoint's own
        ("vllm serve a/b --quantization awq --dtype auto", "a/b --engine vllm"),
        ("vllm serve a/b -q fp8", "a/b --weights-dtype fp8 --engine vllm"),
        (
            """vllm serve a/b -sc '{"method": "ngram", "num_speculative_tokens": 3}'""",
            """a/b --speculative-tokens 3 --speculative-config '{"method": "ngram"}' --engine vllm""",
        ),
        (
            """vllm serve a/b -sc '{"method": "mtp", "model": "a/b", "num_speculative_tokens": 1}'""",
            """a/b --speculative-tokens 1 --speculative-config '{"method": "mtp"}' --speculative-layers 1 """
            "--engine vllm",
        ),
        (
            """vllm serve a/b -sc '{"method": "dspark", "num_speculative_tokens": 7}'""",
            """a/b --speculative-tokens 7 --speculative-config '{"method": "dspark"}' --v2-model-runner """
            "--speculative-layers 3 --engine vllm",
        ),
        # an algorithm with a draft model is that model; with the model itself it is multi-token
        # prediction
        (
            "sglang serve a/b --speculative-algorithm EAGLE3 --speculative-draft-model-path c/d",
            "a/b --speculative-model c/d --engine sglang",
        ),
        (
            "sglang serve a/b --speculative-algorithm EAGLE --speculative-draft-model-path a/b",
            "a/b --speculative-layers 1 --engine sglang",
        ),
        (
            "llama-server -m x.gguf -hfd org/name:Q8_0 --spec-type draft-eagle3 "
            "--spec-draft-p-min 0.5",
            "x.gguf --speculative-model org/name:Q8_0 --engine llamacpp",
        ),
        ("vllm serve --headless a/b", "a/b --engine vllm"),
        ("lms load --new-flag a/b", "a/b --engine lmstudio"),
        ("sglang serve a/b --ep-size 8", "a/b --enable-expert-parallel --engine sglang"),
        ("sglang serve a/b --ep-size 1", "a/b --engine sglang"),
        ("llama-server -m x.gguf -c 0 -fa -t 8", "x.gguf --flash-attn on --engine llamacpp"),
        ("llama-server -m x.gguf -lm dio", "x.gguf --no-mmap --engine llamacpp"),
        ("LLAMA_ARG_LOAD_MODE=mmap+mlock llama-server -m x.gguf", "x.gguf --engine llamacpp"),
        ("llama-cli -m x.gguf --prompt 'Hello there'", "x.gguf --engine llamacpp"),
        (
            "llama-server -m models/Qwen3-8B-Q4_K_M.gguf",
            "Qwen3-8B --served-model models/Qwen3-8B-Q4_K_M.gguf --weights-dtype q4_k_m "
            "--context 40960 "
            "--engine llamacpp",
        ),
        (
            "vllm serve /models/Qwen3-8B",  # without a GPU: with the model's own context
            "qwen3-8b --served-model /models/Qwen3-8B --context 40960 --engine vllm",
        ),
        (
            "LMCACHE_MAX_LOCAL_CPU_SIZE=20 LMCACHE_MAX_LOCAL_DISK_SIZE=50 vllm serve a/b -tp 2 "
            "-pp 2",
            "a/b --tp 2 --pp 2 --kv-offloading-backend lmcache --kv-offloading-size 80GiB "
            "--disk-size 200GiB "
            "--engine vllm",
        ),
        (
            """vllm serve a/b --kv-transfer-config '{"kv_connector":"NixlConnector"}'""",
            """a/b --kv-transfer-config '{"kv_connector":"NixlConnector"}' --engine vllm""",
        ),
        (
            """vllm serve a/b --enable-eplb --eplb-config '{"num_redundant_experts":32}' -ep""",
            "a/b --enable-eplb --num-redundant-experts 32 --enable-expert-parallel --engine vllm",
        ),
        (
            "vllm serve a/b --eplb-config.num_redundant_experts 32 --eplb-config.window_size 1",
            "a/b --num-redundant-experts 32 --engine vllm",
        ),
        (
            "python -m sglang.launch_server --model-path a/b --ep-num-redundant-experts 32",
            "a/b --num-redundant-experts 32 --engine sglang",
        ),
        ("vllm serve /models/mine/", "/models/mine/ --engine vllm"),
        (
            "OLLAMA_CONTEXT_LENGTH=8192 ollama run llama3.1:8b",
            "llama3.1:8b --context 8192 --engine ollama",
        ),
        (
            "LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_N_PARALLEL=2 LLAMA_ARG_CPU_MOE=1 "
            "LLAMA_ARG_MODEL=x.gguf "
            "llama-server -c 4K",
            "x.gguf --context 4K --sequences 2 --cpu-moe --engine llamacpp",
        ),
        ("CUDA_VISIBLE_DEVICES=0,1 llama-server -m x.gguf", "x.gguf --gpus 2 --engine llamacpp"),
        # vLLM takes one without -tp
        ("CUDA_VISIBLE_DEVICES=0,1 vllm serve a/b", "a/b --engine vllm"),
        ("ollama run gpt-oss:20b", "gpt-oss:20b --engine ollama"),
    ],
)
def test_a_command_becomes_options(command: str, expected: str) -> None:
    assert expanded(command) == shlex.split(expected)


@each(
    ("before", "command", "gpus", "note"),
    [
        (
            "--gpu 8xh200",
            "vllm serve a/b",
            "1",
            "the command uses 1 GPU of 8; with -tp 8 it uses all",
        ),
        (
            "--gpu h200 --gpus 8",
            "sglang serve --model-path a/b --pp-size 2",
            "2",
            "uses 2 GPUs of 8; with -tp 4 it",
        ),
        (
            "--gpu 8xh200",
            "vllm serve a/b -tp 2 --data-parallel-size 2",
            "4",
            "uses 4 GPUs of 8; with -tp 4 it",
        ),
        ("--gpu 8xh200", "vllm serve a/b -tp 8", None, ""),
        ("--gpu 8xh200 --tp 8", "vllm serve a/b", None, ""),
        ("--gpu 8xh200", "llama-server -m a/b", None, ""),  # llama.cpp uses all
    ],
)
def test_only_the_gpus_that_a_command_uses_count(
    capsys: pytest.CaptureFixture[str], before: str, command: str, gpus: str | None, note: str
) -> None:
    words = expanded(command, *before.split())
    given = words[words.index("--gpus") + 1] if "--gpus" in words else None
    assert (given, words.count("--gpus")) == (gpus, int(gpus is not None))
    assert note in capsys.readouterr().err


def test_a_file_of_lmcache_has_its_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lmcache.yaml"
    path.write_text("local_cpu: true\nmax_local_cpu_size: 20.0  # GB\nmax_local_disk_size: 50\n")
    words = expanded(f"LMCACHE_CONFIG_FILE={path} vllm serve a/b -tp 2")
    assert words[words.index("--kv-offloading-size") + 1] == "40GiB"
    assert words[words.index("--disk-size") + 1] == "100GiB"
    expanded("LMCACHE_CONFIG_FILE=not-here.yaml vllm serve a/b")
    assert capsys.readouterr().err == "note: not used: LMCACHE_CONFIG_FILE\n"


def test_an_option_before_the_command_replaces_its_own() -> None:
    words = expanded(
        "vllm serve a/b --max-model-len 8K -tp 2", "-c", "32K", "--tensor-parallel-size", "4"
    )
    assert words == ["-c", "32K", "--tensor-parallel-size", "4", "a/b", "--engine", "vllm"]


@each(
    ("before", "expected"),
    [
        (("--speculative-layers", "1"), ["--speculative-tokens", "3"]),
        (("--speculative-tokens", "4"), ["--speculative-model", "c/d"]),
        (("--speculative-model", "e/f"), ["--speculative-tokens", "3"]),
    ],
)
def test_a_drafter_before_the_command_replaces_its_own(
    before: tuple[str, ...], expected: list[str]
) -> None:
    config = """'{"model": "c/d", "num_speculative_tokens": 3}'"""
    words = expanded(f"vllm serve a/b --speculative-config {config}", *before)
    assert words == [*before, "a/b", *expected, "--engine", "vllm"]


def test_the_advised_command_keeps_the_drafters_other_keys(ask: Ask) -> None:
    drafter = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    command = f"vllm serve qwen3-8b --max-model-len 8K --speculative-config '{json.dumps(drafter)}'"
    words = shlex.split(fit(ask, "--gpu", "h100", "--", command)["launch_command"])
    assert json.loads(words[words.index("--speculative-config") + 1]) == drafter
    assert fit(ask, "--gpu", "h100", "--engine", "sglang", "--", command)["engine"] == "sglang"


def test_variables_around_attncalc_count_as_the_commands(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_CONTEXT_LENGTH", "16384")
    monkeypatch.setenv("OLLAMA_NUM_PARALLEL", "2")
    words = ["--gpu", "12GB", "--", "OLLAMA_NUM_PARALLEL=1", "ollama", "run", "llama3.1:8b"]
    assert (
        ask("fit", *words).err == "note: OLLAMA_CONTEXT_LENGTH=16384 of the environment is used\n"
    )
    of_command, of_tag = (
        fit(ask, *each)["workload"] for each in (words, ["llama3.1:8b", "--gpu", "12GB"])
    )
    assert [of_command["context"], of_command["batch"]] == [16384, 1]
    assert [of_tag["context"], of_tag["batch"]] == [16384, 2]


def test_several_visible_gpus_are_named_if_one_is_counted(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    words = ["qwen3-8b", "--gpu", "h100"]
    assert (
        ask("fit", *words).err
        == "note: CUDA_VISIBLE_DEVICES is not used: --gpus 2 counts its GPUs\n"
    )
    assert ask("fit", *words, "--gpus", "2").err == ""


def test_a_command_in_one_text_is_read_too(ask: Ask) -> None:
    one = fit(ask, "--gpu", "h100", "--", "vllm serve Qwen/Qwen3-8B --max-model-len 8K")
    assert one["results"] == fit(ask, "qwen3-8b", "--gpu", "h100", "-c", "8K")["results"]


@each(
    "words",
    [
        ["--gpu", "h100", "vllm", "serve", "Qwen/Qwen3-8B", "-tp", "1"],
        [
            "--gpu",
            "h100",
            "A=0",
            "python3",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            "Qwen/Qwen3-8B",
        ],
    ],
)
def test_the_dashes_before_a_command_may_be_forgotten(ask: Ask, words: list[str]) -> None:
    assert (
        ask("fit", "--json", *words).document["results"]
        == fit(ask, "qwen3-8b", "--gpu", "h100")["results"]
    )


@each(
    ("command", "error"),
    [
        ("vllm serve Qwen/Qwen3-8B --gpu h100", "--gpu is an option of attncalc"),
        ("vllm serve Qwen/Qwen3-8B --json", "--json is an option of attncalc"),
        (
            "vllm serve Qwen/Qwen3-8B -tp 2 --tensor-parallel-size 2",
            "--tensor-parallel-size is given twice",
        ),
        ("vllm serve --model Qwen/Qwen3-8B --model Qwen/Qwen3-4B", "--model is given twice"),
        ("llama-server -m qwen3-8b-q4_k_m.gguf -c 2048 -c 1024", "-c is given twice"),
        (
            "llama-server -m qwen3-8b-q4_k_m.gguf -c 2048 --ctx-size 1024",
            "--ctx-size 1024 contradicts 2048",
        ),
        ("vllm serve Qwen/Qwen3-8B --format json", "--format is an option of attncalc"),
        ("vllm serve --model", "--model needs a value"),
        ("vllm serve Qwen/Qwen3-8B --max-model-len", "--max-model-len needs a value"),
        ("vllm serve Qwen/Qwen3-8B h100", "unexpected word in the command: h100"),
    ],
)
def test_nothing_in_a_command_is_dropped_or_replaced(ask: Ask, command: str, error: str) -> None:
    for words in (["--", *command.split()], command.split()):
        assert ask("fit", "--gpu", "l4", *words).error.startswith(f"error: {error}")


def test_two_known_models_are_an_error(ask: Ask) -> None:
    error = ask(
        "fit", "llama3.1-8b", "--gpu", "h100", "--", "vllm", "serve", "Qwen/Qwen2.5-7B-Instruct"
    ).error
    assert error.startswith(
        "error: MODEL llama3.1-8b cannot be combined with Qwen/Qwen2.5-7B-Instruct of the command"
    )


@each(
    ("name", "text"),
    [
        (
            "compose.yml",
            "services:\n  vllm:\n    image: vllm/vllm-openai:latest\n"
            "    command: >\n      --model Qwen/Qwen3-8B\n      --tensor-parallel-size 2\n",
        ),
        (
            "deployment.yaml",
            "kind: Service\n---\nkind: Deployment\nspec:\n  containers:\n  - image: "
            "vllm/vllm-openai:latest\n"
            "    command: [/bin/sh, -c]\n    args: [vllm serve Qwen/Qwen3-8B "
            "--tensor-parallel-size 2]\n",
        ),
        (
            "vllm.service",
            "[Service]\nRestart=always\nExecStart=/opt/bin/vllm serve Qwen/Qwen3-8B -tp 2 --port "
            "80\n",
        ),
        (
            "run.sh",
            'MODEL="Qwen/Qwen3-8B"\nexport TP=2\nnohup vllm serve $MODEL \\\n  -tp ${TP} > '
            "out.log 2>&1 &\n",
        ),
    ],
)
def test_a_file_with_a_launch_command_is_that_command(
    ask: Ask, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    answer = ask("fit", "--gpu", "l4", str(tmp_path / name))
    assert (
        answer.out
        == ask("fit", "--gpu", "l4", "--", "vllm", "serve", "Qwen/Qwen3-8B", "-tp", "2").out
    )
    assert "tp 2" in answer.out


@each(
    "text",
    [
        "vllm serve Qwen/Qwen3-8B -tp 2\n",
        "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:latest\n"
        "    args: [--model, Qwen/Qwen3-8B, -tp, '2']\n",
    ],
)
def test_a_launch_command_may_come_through_a_pipe(text: str) -> None:
    assert (
        "Qwen3 8B on 2 x NVIDIA L4, tp 2"
        in shell(f"printf %b {text!r} | attncalc fit --gpu l4 -").stdout
    )


def test_options_that_are_not_used_are_named(ask: Ask) -> None:
    words = ["--trust-remote-code", "--port", "1", "--attention-backend", "FLASHINFER"]
    err = ask("fit", "--gpu", "h100", "--", "vllm", "serve", "Qwen/Qwen3-8B", *words).err
    assert err == (
        "note: not used: --trust-remote-code, --port\n"
        "note: not computed, and may change memory: --attention-backend\n"
    )


def test_sglang_s_options_of_graphs_and_kernels_are_named_and_experts_divided(ask: Ask) -> None:
    words = [
        "--tp",
        "8",
        "--ep",
        "8",
        "--cuda-graph-backend-decode",
        "full",
        "--cuda-graph-bs-decode",
        "1",
        "2",
    ]
    drafted = ["--speculative-algo", "EAGLE", "--speculative-num-draft-tokens", "2"]
    command = [
        "sglang",
        "serve",
        "--model-path",
        "deepseek-v3",
        *words,
        "--moe-a2a-backend",
        "deepep",
        *drafted,
    ]
    answer = ask("fit", "--gpu", "b200", "--full", "--", *command)
    assert answer.err == (
        "note: not computed, and may change memory: --cuda-graph-backend-decode, "
        "--cuda-graph-bs-decode\n"
    )
    assert "tp 8, ep 8" in answer.out
    assert "the drafter" in answer.out


@each(
    "command",
    ["vllm serve /models/Qwen3-8B", "llama-server -m /models/Qwen3-8B-Q4_K_M.gguf"],
    ids=["folder", "file"],
)
def test_a_path_of_another_machine_is_kept_in_the_printed_command(ask: Ask, command: str) -> None:
    answer = ask("fit", "--gpu", "h100", "--", *command.split())
    assert f"  {command} " in answer.out
    assert answer.err.lower().endswith("is not here, and is read as qwen3-8b, by its name\n")


@each(
    ("command", "message"),
    [
        (
            ["vllm", "serve", "gpt2", "--kv-sharing-fast-prefill-size", "1"],
            "vLLM 0.33.0 has no argument --kv-sharing-fast-prefill-size",
        ),
        (
            ["llama-server", "-m", "qwen3-8b", "-md", "Qwen3-0.6B-Q8_0.gguf"],
            "does not compute a draft model in q8_0",
        ),
        (
            ["llama-server", "-m", "gpt2", "--lora-of-mine", "x"],
            "--lora-of-mine of llama.cpp is not known here",
        ),
        (["llama-server", "-m", "gpt2", "--mmproj", "x"], "--mmproj x: there is no such file"),
        (["rm", "-rf", "x"], "'rm -rf x' starts no engine"),
        (["vllm serve 'gpt2"], "no preset named ''gpt2'"),
        (["vllm", "serve"], "a model is required"),
        (["vllm", "serve", "gpt2", "--speculative-config", "{"], "'{' is not a JSON object"),
    ],
)
def test_a_command_that_is_not_understood_is_an_error(
    ask: Ask, command: list[str], message: str
) -> None:
    assert message in ask("fit", "--gpu", "h100", "--", *command).error


def test_no_other_name_of_an_option_is_a_name_of_another() -> None:
    names: dict[str, str] = {}
    for field, option in options_of(FitOptions).items():
        for name in (*option.names, *option.also):
            assert names.setdefault(name, field) == field


PARTS = (
    *OPTIONS,
    "vllm",
    "serve",
    "-m",
    "sglang.launch_server",
    "llama-server",
    "ollama",
    "run",
    "--",
)


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=8), min_size=1, max_size=12))
def test_any_words_become_options_or_one_error(words: list[str]) -> None:
    with suppress(AttncalcError):
        found = expand(["--gpu", "h100"], words, OPTIONS, OPTIONS)
        assert found[:2] == ["--gpu", "h100"]
        assert "--engine" in found


@each("own", [("qwen3-8b",), ("-p", "qwen3-8b")])
def test_model_replaces_that_of_the_command(ask: Ask, own: tuple[str, ...]) -> None:
    answer = ask(
        "fit",
        *own,
        "--gpu",
        "h100",
        "--full",
        "--",
        "vllm",
        "serve",
        "/mnt/x",
        "--max-model-len",
        "8192",
    )
    assert answer.code == 0
    assert "Qwen3 8B on one" in answer.out
    assert "vllm serve /mnt/x --max-model-len 8192" in answer.out


@each(
    ("gpu", "gpus", "number"),
    [
        ("h100", "all", 1),
        ("h100", "2", 2),
        ("h100", '"device=0,1"', 2),
        ("2xh100", "device=0,1", 2),
    ],
)
def test_a_container_sees_as_many_gpus_as_docker_gives_it(
    ask: Ask, gpu: str, gpus: str, number: int
) -> None:
    words = ("docker", "run", "--gpus", gpus, "vllm/vllm-openai", "--model", "qwen3-8b")
    answer = ask("fit", "--gpu", gpu, "--json", "--", *words, "--tensor-parallel-size", str(number))
    assert json.loads(answer.out)["gpus"] == number


@each(
    ("before", "command"),
    [
        # one of 8 GPUs is used
        (("--gpu", "8xh100"), "vllm serve Qwen/Qwen3-8B"),
        (("--gpu", "h100", "--gpus", "4"), "vllm serve Qwen/Qwen3-8B -tp 2"),
        (("--gpu", "h100", "--context", "8K"), "docker run --gpus 2 vllm/vllm-openai -tp 2 gpt2"),
        (("--preset", "qwen3-8b", "--gpu", "l4"), "vllm serve /models/own"),
    ],
)
def test_a_value_after_an_equals_sign_is_that_after_a_blank(
    before: tuple[str, ...], command: str, ask: Ask
) -> None:
    joined = [f"{name}={value}" for name, value in zip(before[::2], before[1::2], strict=True)]
    apart = ask("fit", *before, "--", *command.split())
    assert apart.code in (0, 1)
    assert ask("fit", *joined, "--", *command.split()) == apart


def test_a_container_with_another_number_of_gpus_is_an_error(ask: Ask) -> None:
    words = "docker run --gpus 2 vllm/vllm-openai --model qwen3-8b"
    error = ask("fit", "--gpu", "4xh100", "--", *words.split()).error
    assert error.startswith("error: the container sees 2 GPUs (--gpus of the command)")


@pytest.mark.parametrize("number", ["0", "count=0"])
def test_a_container_without_a_gpu_is_an_error(number: str, ask: Ask) -> None:
    words = ["docker", "run", "--gpus", number, "vllm/vllm-openai", "--model", "qwen3-8b"]
    error = ask("fit", "--gpu", "h100", "--", *words).error
    assert error.startswith(f"error: the container sees no GPU (--gpus {number} of the command)")
    assert "  tip: give --gpus all in the command" in error


@each(
    "command",
    [
        "llama-server -m qwen3-8b -c 0",
        "llama-server -m qwen3-8b --load-mode mmap",
        "lms load qwen3-8b --gpu max",
        "VLLM_USE_V1=1 vllm serve qwen3-8b",
        "python -m sglang.launch_server --model-path qwen3-8b --ep-size 1",
    ],
)
def test_a_value_that_is_the_default_is_used(command: str, ask: Ask) -> None:
    assert "not used" not in ask("fit", "--gpu", "h100", "--", *command.split()).err


@each(
    ("command", "value"),
    [
        ("llama-server -m qwen3-8b -c 4096", "--spec-type ngram-simple"),
        ("llama-bench -m qwen3-8b -p 512", "-n 0"),
        (
            "python -m sglang.launch_server --model-path qwen3-8b "
            "--speculative-num-draft-tokens 16",
            "--speculative-algorithm NGRAM",
        ),
    ],
)
def test_a_value_that_adds_nothing_is_used_and_changes_no_figure(
    command: str, value: str, ask: Ask
) -> None:
    """No drafter has layers, and no test generates tokens: `-n 0` leaves the 512 of `-p`."""
    asked = ("fit", "--gpu", "h100", "--json", "--")
    answer = ask(*asked, *command.split(), *value.split())
    assert answer.document["results"] == ask(*asked, *command.split()).document["results"]
    assert "not used" not in answer.err


def test_options_of_docker_that_are_not_used_are_named(ask: Ask) -> None:
    words = "docker run --gpus all -p 8000:8000 --ipc=host -e A=1 vllm/vllm-openai --model qwen3-8b"
    answer = ask("fit", "--gpu", "h100", "--", *words.split())
    assert "note: not used: A, -p, --ipc\n" in answer.err
