"""`attncalc fit --vllm-log`: the figures of public logs of vLLM, compared with the predicted
ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each

FOLDER = Path(__file__).parent / "data" / "engine-logs"
ENTRIES: dict[str, dict[str, Any]] = {
    e["id"]: e for e in json.loads((FOLDER / "logs.json").read_text())
}
VLLM = sorted(path.stem for path in (FOLDER / "excerpts").glob("*.log"))
UNEXPLAINED = {
    name
    for name in VLLM
    if ENTRIES[name]["verdict"] != "match" or ENTRIES[name].get("consistency_only")
}

# The figures that logs.json lists of a vLLM log, by the names of the checks of `fit --vllm-log`.
COMPARED_AS = {
    "kv_tokens": "kv_tokens",
    "kv_blocks": "kv_blocks",
    "cpu_blocks": "cpu_blocks",
    "concurrency": "concurrency",
    "block_size": "kv_block_size",
    "needed_gib": "kv_bytes_per_sequence",
}
# Figures of an entry for which its excerpt has no line.
NOT_IN_EXCERPT = {
    # V0 prints no tokens: the entries multiply its blocks by 16
    "vllm-v0-llama3.1-8b-29k": {"kv_tokens"},
    "vllm-v0-qwen2.5-0.5b-32k": {"kv_tokens"},
    "vllm-v0-qwen3-4b": {"kv_tokens"},
    # "Setting attention block size to ..." was not quoted; glm5's line is of a backend, not of the
    # cache
    "vllm-glm5-0.19": {"kv_block_size"},
    "vllm-glm5-0.20.0": {"kv_block_size"},
    "vllm-qwen3.5-9b": {"kv_block_size"},
    "vllm-qwen3.6-27b-mtp1": {"kv_block_size"},
}


# Logs of V0 that end with a refusal, after the figures.
REFUSED = {"vllm-v0-llama3.1-8b-29k"}


def options(entry: dict[str, Any]) -> list[str]:
    """Return the entry's flags as options: what the log's page states, or what is assumed."""
    flags = []
    for name, value in {**entry.get("assumed", {}), **entry["flags"]}.items():
        if name == "prefix-caching":
            flags.append("--prefix-caching" if value else "--no-prefix-caching")
        elif name == "speculative-model":
            flags += ["--speculative-model", str(FOLDER / value)]
        elif name == "swap-space-gib":
            flags += ["--swap-space", str(value)]
        elif name not in ("num-gpu-blocks-override",):
            flags += [f"--{name}", str(value)]
    return flags


def model_of(entry: dict[str, Any]) -> str:
    path = entry["model"]
    return str(FOLDER / path) if path.startswith("models/") else path


@each("name", [name for name in VLLM if name not in UNEXPLAINED and name not in REFUSED])
def test_public_logs_agree(ask: Ask, name: str) -> None:
    entry = ENTRIES[name]
    log = str(FOLDER / "excerpts" / f"{name}.log")
    answer = ask("fit", model_of(entry), "--vllm-log", log, *options(entry), "--json")
    result = answer.document
    assert result["agrees"], [check for check in result["checks"] if not check["ok"]]
    assert answer.code == 0
    compared = {check["name"] for check in result["checks"]}
    # all that the entry lists, except the memory, from which the prediction starts
    listed = {COMPARED_AS[figure] for figure in entry["logged"] if figure in COMPARED_AS}
    assert compared == listed - NOT_IN_EXCERPT.get(name, set())


def test_figures_before_a_refusal_of_v0_agree(ask: Ask) -> None:
    """29,000 tokens do not fit into 1,478 blocks of 16."""
    (name,) = REFUSED
    entry = ENTRIES[name]
    answer = ask(
        "fit",
        model_of(entry),
        "--log",
        str(FOLDER / "excerpts" / f"{name}.log"),
        *options(entry),
        "--json",
    )
    result = answer.document
    assert (answer.code, result["refusal"]["cause"]) == (1, "kv_too_small")
    assert all(check["ok"] for check in result["checks"])


@pytest.mark.parametrize(
    ("name", "printed", "edited"),
    [
        ("vllm-qwen3.5-9b", "2.52x", "999.99x"),
        ("vllm-qwen3.5-9b", "2.52x", "2.54x"),
        ("vllm-v0-qwen3-4b", "2.23x", "999.99x"),
        ("vllm-qwen3.5-9b", "165,792 tokens", "175,792 tokens"),
    ],
)
def test_an_edited_log_disagrees(ask: Ask, name: str, printed: str, edited: str) -> None:
    entry = ENTRIES[name]
    text = (FOLDER / "excerpts" / f"{name}.log").read_text()
    assert printed in text
    log = text.replace(printed, edited)
    answer = ask("fit", model_of(entry), "--log", "-", *options(entry), "--json", stdin=log)
    assert answer.code == 1
    assert not answer.document["agrees"]


def test_the_context_is_read_from_the_concurrency_line(ask: Ask) -> None:
    # 2 MiB per block: 1 GiB holds 512 blocks of 16 tokens; 8,192 / 4,096 = 2.00
    log = (
        "Available KV cache memory: 1.00 GiB\nGPU KV cache size: 8,192 tokens\n"
        "Maximum concurrency for 4,096 tokens per request: 2.00x\n"
    )
    answer = ask("fit", "llama3-8b", "--log", "-", "--json", stdin=log).document
    assert answer["workload"]["context"] == 4096
    assert {check["name"]: check["measured"] for check in answer["checks"]} == {
        "kv_tokens": 8192,
        "concurrency": 2.0,
    }


def test_figures_that_differ_give_exit_code_1(ask: Ask) -> None:
    # 2 MiB per block: 1 GiB holds 512 blocks, 8,192 tokens; 64 tokens more are beyond the rounding
    log = "Available KV cache memory: 1.00 GiB\nGPU KV cache size: 8,256 tokens\n"
    answer = ask("fit", "llama3-8b", "--log", "-", "--context", "4096", stdin=log)
    assert answer.code == 1
    assert "differs" in answer.out
    assert "DIFFERS" in answer.out


@each(
    ("model", "gpu", "agrees"), [("llama3.1-8b", "h100", True), ("llama3.1-8b", "rtx-4090", False)]
)
def test_a_cache_that_the_gpu_cannot_hold_differs(
    ask: Ask, model: str, gpu: str, agrees: bool
) -> None:
    # 437,904 tokens x 131,072 B are 53.46 GiB, more than all of a 4090's 24; an H100 has 72.8 -
    # 15.0 - 2.3 to 4.4
    answer = ask(
        "fit", model, "--gpu", gpu, "--log", "-", stdin="GPU KV cache size: 437,904 tokens\n"
    )
    assert answer.code == int(not agrees)
    assert ("AGREES" in answer.out, "DIFFERS: the KV memory is" in answer.out) == (
        agrees,
        not agrees,
    )


def test_rounding_of_the_memory_is_tolerated(ask: Ask) -> None:
    # 1.00 GiB is anything from 0.995 to 1.005: 509 to 514 blocks of 16 tokens
    log = "Available KV cache memory: 1.00 GiB\nGPU KV cache size: 8,224 tokens\n"
    answer = ask("fit", "llama3-8b", "--log", "-", "--context", "4096", "--json", stdin=log)
    (check,) = answer.document["checks"]
    assert (answer.code, check["predicted"], check["measured"], check["ok"]) == (
        0,
        8192,
        8224,
        True,
    )


def test_options_override_the_log(ask: Ask) -> None:
    log = (
        "Initializing a V1 LLM engine (v0.11.0) with config: model='llama3-8b', "
        "dtype=torch.bfloat16, "
        "max_seq_len=8192, tensor_parallel_size=2, kv_cache_dtype=fp8, enable_prefix_caching=True\n"
        "Available KV cache memory: 1.00 GiB\nGPU KV cache size: 32,768 tokens\n"
    )
    # 32 layers x 16 tokens x 2 x 4 heads x 128 x 1 B = 512 KiB: 2,048 blocks
    answer = ask("fit", "--log", "-", "--json", stdin=log).document
    assert (answer["agrees"], answer["tp"], answer["engine_version"]) == (True, 2, "0.11.0")
    assert answer["workload"]["context"] == 8192
    assert not ask("fit", "--log", "-", "--kv-dtype", "bf16", "--json", stdin=log).document[
        "agrees"
    ]


def test_a_log_without_a_version_is_compared_with_all_releases(ask: Ask) -> None:
    """Only 0.20.0 and older print blocks / groups as tokens, so no later version matches its
    figures.
    """
    name = "vllm-qwen3.6-27b-0.20.0-mtp1"
    log = (FOLDER / "excerpts" / f"{name}.log").read_text().replace("version 0.20.0", "")
    answer = ask("fit", model_of(ENTRIES[name]), "--log", "-", stdin=log)
    assert answer.code == 0
    assert (
        "The log has no version: 0.20.0 is the newest with which all figures agree."
        in answer.out.replace("\n  ", " ")
    )


@pytest.mark.parametrize(
    ("text", "wrong", "tip"),
    [
        ("hello\n", "has neither the size of a cache nor a message", "GPU KV cache size"),
        (
            "GPU KV cache size: 8,192 tokens\n",
            "neither the memory for the cache nor",
            "--kv-memory",
        ),
    ],
)
def test_unusable_logs_are_errors(ask: Ask, text: str, wrong: str, tip: str) -> None:
    # with several groups of layers, the tokens do not give the blocks
    error = ask("fit", "qwen3.6-35b-a3b", "--log", "-", stdin=text).error
    assert wrong in error
    assert tip in error


@pytest.mark.parametrize("option", ["--kv-memory", "--gpus", "--reserve"])
def test_options_for_memory_cannot_be_combined_with_a_log(ask: Ask, option: str) -> None:
    log = "GPU KV cache size: 8,192 tokens\n"
    error = ask("fit", "llama3-8b", "--log", "-", option, "1GiB", stdin=log).error
    assert f"{option} cannot be combined with --log" in error


def test_a_missing_log_is_an_error(ask: Ask, tmp_path: Path) -> None:
    assert "no such file" in ask("fit", "llama3-8b", "--vllm-log", str(tmp_path / "none.log")).error


ENGINE = (
    "Initializing a V1 LLM engine (v0.11.0) with config: model='org/one', dtype=torch.bfloat16, "
    "max_seq_len=8192, "
    "tensor_parallel_size=1, pipeline_parallel_size=1, kv_cache_dtype=auto\n"
)


def test_the_last_of_several_starts_is_read(ask: Ask, tmp_path: Path) -> None:
    log = tmp_path / "start.log"
    failed = (
        "Available KV cache memory: 0.50 GiB\nValueError: 1.00 GiB KV cache is needed, which is "
        "larger\n"
    )
    # 2 MiB per block: 2 GiB hold 1,024 blocks of 16 tokens
    log.write_text(
        ENGINE
        + failed
        + ENGINE
        + "Available KV cache memory: 2.00 GiB\nGPU KV cache size: 16,384 tokens\n"
    )
    answer = ask("fit", "llama3-8b", "--vllm-log", str(log))
    assert answer.code == 0
    assert "The log has 2 starts: the last is compared." in answer.out


def test_a_differing_log_of_another_model_gets_a_note(ask: Ask) -> None:
    log = ENGINE + "Available KV cache memory: 2.00 GiB\nGPU KV cache size: 99 tokens\n"
    answer = ask("fit", "llama3-8b", "--log", "-", stdin=log)
    assert "The log is of 'org/one', and the prediction of " in answer.out


def test_dcp_and_pp_are_read_and_can_be_overridden(ask: Ask, tmp_path: Path) -> None:
    log = tmp_path / "start.log"
    config = (
        "tensor_parallel_size=8, pipeline_parallel_size=1, decode_context_parallel_size=8, "
        "max_seq_len=32768\n"
    )
    # 61 layers x 64 tokens x 576 x 2 B = 4,497,408 B: 10 GiB are 2,387 blocks, 152,768 tokens on
    # each of 8 devices
    log.write_text(
        f"Initializing a V1 LLM engine (v0.15.1) with config: model='x', {config}"
        "Available KV cache memory: 10.00 GiB\nGPU KV cache size: 1,222,144 tokens\n"
    )
    assert ask("fit", "deepseek-v3", "--vllm-log", str(log)).code == 0
    assert ask("fit", "deepseek-v3", "--vllm-log", str(log), "--dcp", "1").code == 1


@pytest.mark.parametrize("engine", ["sglang", "llamacpp", "all"])
def test_a_log_of_vllm_is_of_no_other_engine(ask: Ask, engine: str) -> None:
    log = "GPU KV cache size: 99 tokens\n"
    error = ask("fit", "llama3-8b", "--log", "-", "--engine", engine, stdin=log).error
    assert f"--engine {engine} cannot be combined with" in error


@pytest.mark.parametrize(
    "line",
    [
        "Available KV cache memory: 1..0 GiB",
        "Available KV cache memory: . GiB",
        "GPU KV cache size: , tokens",
        "Maximum concurrency for 4,096 tokens per request: 2.0.0x",
        "GPU KV cache size: " + "9" * 5000 + " tokens",
    ],
)
def test_damaged_numbers_give_no_traceback(ask: Ask, line: str) -> None:
    log = f"Available KV cache memory: 1.00 GiB\n{line}\nGPU KV cache size: 8,192 tokens\n"
    assert ask("fit", "llama3-8b", "--log", "-", "-c", "4096", stdin=log).code in (0, 1)


@each(
    ("tokens", "agrees"),
    [("7,280", True), ("7,232", True), ("7,216", False), ("7,312", True), ("7,328", False)],
)
def test_tokens_agree_within_the_rounding_of_the_memory(
    ask: Ask, tokens: str, agrees: bool
) -> None:
    """Blocks of 36 x 16 x 2 x 8 x 128 x 2 B = 2,359,296 B. 1.00 GiB is 0.995 to 1.005: 452 to 457
    of them.
    """
    log = (
        "INFO 07-09 21:27:35 [core.py:114] Initializing a V1 LLM engine (v0.11.0) with config: "
        "model='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=1, "
        "kv_cache_dtype=auto\n"
        "INFO 07-09 21:29:51 [gpu_worker.py:508] Available KV cache memory: 1.00 GiB\n"
        f"INFO 07-09 21:29:51 [kv_cache_utils.py:2146] GPU KV cache size: {tokens} tokens\n"
    )
    answer = ask("fit", "--log", "-", "--json", stdin=log).document
    assert answer["agrees"] == agrees
