"""What `attncalc fit --log` says about starts that failed and servers under load:
data/engine-logs/doctor.
"""

import json
import re
from pathlib import Path
from typing import Any

from asking import Ask
from tables import each

FOLDER = Path(__file__).parent / "data" / "engine-logs" / "doctor"
MIB = 2**20
MODELS = Path(__file__).parent / "data" / "engine-logs" / "models"

STATES = [
    # 16 GiB = 131,072 tokens x 131,072 B; 2,213 blocks of 16 tokens are 4.32 GiB
    (
        "vllm-v0-max-seq-len",
        "llama3.1-8b",
        "kv_too_small",
        "needs 16.00 GiB, 4.32 GiB are",
        "--context 35376",
    ),
    (
        "vllm-v0-line-alone",
        "llama3.1-8b",
        "kv_too_small",
        "needs 16.00 GiB, 4.32 GiB are",
        "--context 35408",
    ),
    # 22.05 - 19.77 GiB; 0.89 of the GPU leave less than the 5.63 GiB of 40,960 tokens x 147,456 B
    (
        "vllm-free-memory",
        "qwen3-8b",
        "memory_taken",
        "use 2.28 GiB of the GPU's 22.05 GiB",
        "--weights-dtype fp8",
    ),
    # 14.99 GiB of weights beside 14.55 that are free: no share starts
    (
        "vllm-occupied-weights",
        "",
        "memory_taken",
        "the weights alone need 14.99 GiB",
        "--weights-dtype fp8",
    ),
    (
        "vllm-weights-oom",
        "",
        "weights_too_large",
        "need 61.03 GiB, and the GPU has 47.50 GiB",
        "--weights-dtype fp8",
    ),
    (
        "vllm-sampler-oom",
        "",
        "cache_too_large",
        "594 MiB were wanted, 412 MiB of 23.53 GiB were free",
        "--gpu-memory-utilization 0.93",
    ),
    # 11,814 MiB free - 8,162 of the model - the compute buffer; 40,960 tokens x 163,840 B = 6.25
    # GiB
    (
        "llamacpp-qwen3-14b-kv",
        "qwen3-14b",
        "kv_too_small",
        "needs 6.25 GiB, 2.82 GiB are",
        "--kv-dtype q4_0",
    ),
]


def ask_of(ask: Ask, name: str, model: str, *options: str) -> Any:
    return ask("fit", *filter(None, [model]), "--log", str(FOLDER / f"{name}.log"), *options)


@each(("name", "model", "cause", "reason", "change"), STATES)
def test_a_failed_start_has_its_cause_and_a_command_within_24_rows(
    ask: Ask, name: str, model: str, cause: str, reason: str, change: str
) -> None:
    result = json.loads(ask_of(ask, name, model, "--json").out)
    assert result["refusal"]["cause"] == cause
    assert reason in result["refusal"]["reason"]
    assert any(change in suggestion["flag"] for suggestion in result["suggestions"])
    screen = ask_of(ask, name, model)
    assert screen.code == 1
    assert screen.err == "" or "counts what others hold" in screen.err
    assert len(screen.out.splitlines()) <= 24
    assert max(map(len, screen.out.splitlines())) <= 80


def test_a_process_that_uses_more_than_the_model_needs_ran_another_one(ask: Ask) -> None:
    """It used 47.30 GiB before there was a cache; 15 GiB of weights and a few of runtime memory
    explain half of it.
    """
    log = (FOLDER / "vllm-weights-oom.log").read_text().replace("Qwen/Qwen3-32B", "/models/mine")
    refusal = ask("fit", "llama3.1-8b", "--log", "-", "--json", stdin=log).document["refusal"]
    assert refusal["cause"] == "other_model"
    assert "47.30 GiB were in use before there was a cache" in refusal["reason"]


def test_a_share_that_cannot_start_is_not_advised(ask: Ask) -> None:
    result = json.loads(ask_of(ask, "vllm-occupied-weights", "", "--json").out)
    alone = "--gpu-memory-utilization 0.61"
    assert alone not in [suggestion["flag"] for suggestion in result["suggestions"]]
    assert any(f"{alone} is not enough" in note for note in result["notes"])


def test_a_smaller_share_never_holds_more_than_the_log(ask: Ask) -> None:
    """The log has 9.94 requests at 0.95; 0.02 of 23.53 GiB less are 0.47 GiB, of 0.5625 GiB a
    request.
    """
    result = json.loads(ask_of(ask, "vllm-sampler-oom", "", "--json").out)
    smaller = next(
        change
        for change in result["suggestions"]
        if change["flag"] == "--gpu-memory-utilization 0.93"
    )
    assert 9.94 - 0.02 * 23.53 / 0.5625 - 0.02 < smaller["concurrency"] < 9.94


def test_weights_of_a_log_decide_which_changes_are_offered(ask: Ask) -> None:
    """The file has 4.87 bits per weight: neither q8_0 nor a file in bf16 would be smaller."""
    result = json.loads(ask_of(ask, "llamacpp-qwen3-14b-kv", "qwen3-14b", "--json").out)
    flags = [change["flag"] for change in result["suggestions"]]
    assert not any("--weights-dtype" in flag for flag in flags)
    assert all(
        "Qwen3-14B-Q4_K_M.gguf" in change["launch_command"] for change in result["suggestions"]
    )


def test_a_log_of_another_model_gets_no_advice(ask: Ask) -> None:
    """5.0 GiB for 32,768 tokens are not Llama 3.2 1B's 32 KiB per token."""
    result = json.loads(ask_of(ask, "vllm-other-model", "llama3.2-1b", "--json").out)
    assert (result["refusal"]["cause"], result["suggestions"]) == ("other_model", [])
    assert "5.00 GiB in the log, 1.00 GiB with this model" in result["refusal"]["reason"]


def test_the_tokens_of_a_step_follow_from_a_refusal(ask: Ask, tmp_path: Path) -> None:
    """With 1,024 batched tokens gpt-oss-120b needs 4.54 GiB, with 8,192 it would be 4.79
    (vllm-project/vllm#27508).
    """
    (tmp_path / "a.log").write_text(
        "ValueError: To serve at least one request with the models's max seq len (131072), (4.54 "
        "GiB KV cache is "
        "needed, which is larger than the available KV cache memory (1.71 GiB).\n"
    )
    log = ("--log", str(tmp_path / "a.log"), "--engine", "vllm", "--engine-version", "0.11.0")
    answer = ask("fit", "gpt-oss-120b", *log, "--gpu", "h100")
    assert "16, 1,024 batched tokens" in answer.out
    assert (
        "DID NOT START: one request of 131,072 tokens needs 4.54 GiB, 1.71 GiB are left"
        in answer.out
    )


def test_the_padding_of_an_old_build_is_no_other_model(ask: Ask, tmp_path: Path) -> None:
    """1,056 tokens of 160 KiB are 165 MiB; builds that pad to 256 tokens have 1,280, so 200 MiB."""
    text = (FOLDER / "llamacpp-qwen3-14b-kv.log").read_text(encoding="utf-8")
    cache = "llama_kv_cache:      CUDA0 KV buffer size =   165.00 MiB\nggml_backend_cuda"
    for logged, old in (
        ("40960", "1056"),
        ("ggml_backend_cuda", cache),
        ("6400.00", "9400.00"),
        ("kv cache", "compute"),
    ):
        text = text.replace(logged, old)
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    result = ask("fit", "qwen3-14b", "--log", str(tmp_path / "a.log"), "--json").document
    assert result["refusal"]["cause"] != "other_model"


@each(
    ("name", "model"), [("vllm-weights-oom", "llama2-70b"), ("vllm-occupied-weights", "qwen3-0.6b")]
)
def test_a_log_that_names_another_model_gets_no_advice(ask: Ask, name: str, model: str) -> None:
    """Qwen3 32B has 64 layers and LLaMA-2 70B 80; Llama 3.1 8B has 32 and Qwen3 0.6B 28. Their
    weights would fit.
    """
    result = json.loads(ask_of(ask, name, model, "--json").out)
    assert (result["refusal"]["cause"], result["suggestions"]) == ("other_model", [])


@each("name", ["vllm-after-the-start", "sglang-after-the-start"])
def test_an_allocation_that_fails_after_the_start_stopped_the_server(ask: Ask, name: str) -> None:
    """The log has 'Application startup complete', or 'fired up', before the message."""
    refusal = json.loads(ask_of(ask, name, "", "--json").out)["refusal"]
    assert (refusal["cause"], refusal["reason"][:14]) == ("cache_too_large", "The server ran")
    screen = ask_of(ask, name, "").out
    assert "STOPPED: The server ran" in screen
    assert "DID NOT START" not in screen


def test_a_message_alone_does_not_say_that_the_server_did_not_start(ask: Ask) -> None:
    """With CUDA graphs in private pools, the cache was allocated before."""
    answer = ask_of(ask, "pasted-sglang-long-prefill", "")
    assert "OUT OF MEMORY: The cache left too little for the rest: 1.02 GiB were" in answer.out
    assert (
        "OUT OF MEMORY: An allocation on the GPU"
        in ask_of(ask, "pasted-sglang-aiter-workspace", "").out
    )


def test_a_log_without_a_model_says_what_its_cache_holds(ask: Ask, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(
        "GPU KV cache size: 21,296 tokens\nMaximum concurrency for 40,960 tokens per request: "
        "0.52x\n",
        "utf-8",
    )
    answer = ask("fit", "--log", str(log))
    assert answer.code == 0
    # 21,296 / 40,960 = 0.52
    assert "NO FAILURE: the cache holds 21,296 tokens: 0.52 requests of 40,960" in answer.out
    assert "--kv-cache-dtype fp8: a cache of half the size" in answer.out


def test_layers_that_a_log_does_not_count_contradict_no_model(ask: Ask, tmp_path: Path) -> None:
    """Without 'offloaded 38/65 layers', a compute buffer that failed does not mean that 17.99 GiB
    had been loaded.
    """
    lines = (FOLDER / "ollama-fewer-layers.log").read_text(encoding="utf-8").splitlines()[:8]
    (tmp_path / "a.log").write_text("\n".join(lines), encoding="utf-8")
    answer = ask("fit", "--log", str(tmp_path / "a.log"))
    assert "DID NOT START: The compute buffer did not fit: 10.35 GiB were wanted" in answer.out


def test_ollamas_attempts_that_failed_are_no_refusal(ask: Ask) -> None:
    """It tried 65 layers and started with 38 of 65: 38 of 64 layers' cache are 608 of 1,024 MiB.
    The file is Q4_K_M.
    """
    answer = ask_of(ask, "ollama-fewer-layers", "", "--json")
    result = json.loads(answer.out)
    assert (answer.code, result["agrees"]) == (0, True)
    assert all(estimate["inside"] for estimate in result["estimates"])


def test_a_cache_that_is_partly_on_the_host_holds_what_the_server_was_given(
    ask: Ask, tmp_path: Path
) -> None:
    """1,024 MiB on both sides are one request of 4,096 tokens, with 38 layers of 64 on the GPU
    too.
    """
    log = FOLDER / "ollama-fewer-layers.log"
    without = tmp_path / "a.log"
    lines = log.read_text(encoding="utf-8").splitlines()
    without.write_text(
        "\n".join(line for line in lines if "offloaded" not in line), encoding="utf-8"
    )
    for path in (log, without):
        result = ask("fit", "--log", str(path), "--json").document
        assert (
            next(each["value"] for each in result["results"] if each["name"] == "kv_tokens") == 4096
        )
        assert all(estimate["inside"] for estimate in result["estimates"])


def test_the_screen_of_a_log_has_no_notes_of_the_roofline(ask: Ask) -> None:
    assert "Bounds, not estimates" not in ask_of(ask, "vllm-running", "", "--gpu", "h100").out


def test_a_running_servers_log_of_another_model_has_no_load(ask: Ask) -> None:
    """The load in tokens would be computed with the wrong model."""
    answer = ask_of(ask, "vllm-running", "llama3.1-8b")
    assert answer.code == 1
    assert "DIFFERS: The log is of 'Qwen/Qwen3-8B' (36 layers of width 4,096), not of" in answer.out
    assert "LOAD" not in answer.out
    assert "LOAD" in ask_of(ask, "vllm-running", "").out


def test_sizes_of_the_fitting_pass_are_not_those_of_the_cache(ask: Ask) -> None:
    """It prints 0.00 MiB for each cache. 'F16' with 5.27 bits per weight is gpt-oss as released, in
    MXFP4.
    """
    result = json.loads(ask_of(ask, "llamacpp-fitting-pass", "", "--json").out)
    assert {check["name"]: check["measured"] for check in result["checks"]}["kv_size"] == 768 * MIB
    assert result["agrees"]
    assert all(estimate["inside"] for estimate in result["estimates"])


def test_a_folder_in_a_log_is_the_model_of_its_name(ask: Ask, tmp_path: Path) -> None:
    text = (FOLDER / "vllm-sampler-oom.log").read_text(encoding="utf-8")
    name = re.search(r"model='([^']+)'", text)
    assert name
    (tmp_path / "a.log").write_text(
        text.replace(name[1], f"/models/{name[1].rpartition('/')[2]}"), encoding="utf-8"
    )
    answer = ask("fit", "--log", str(tmp_path / "a.log"))
    assert answer.out == ask_of(ask, "vllm-sampler-oom", "").out.replace(
        name[1], f"/models/{name[1].rpartition('/')[2]}"
    )


def test_a_memory_that_was_given_in_bytes_is_read(ask: Ask) -> None:
    answer = ask_of(ask, "vllm-reserved-bytes", "", "--json")
    checks = {check["name"]: check for check in json.loads(answer.out)["checks"]}
    assert (answer.code, checks["kv_tokens"]["measured"]) == (0, 11_792)


def test_arguments_may_follow_the_figures(ask: Ask) -> None:
    """The cache is fp8 by the last lines: half of the 147,456 B per token."""
    answer = ask_of(ask, "vllm-arguments-last", "", "--json")
    result = json.loads(answer.out)
    assert (answer.code, result["agrees"], result["engine_version"]) == (0, True, "0.11.0")


@each("name", ["ollama-llama-server", "ollama-engine"])
def test_ollamas_logs_are_read(ask: Ask, name: str) -> None:
    """28 layers x 2 x 1,024 x 2 B x 8,192 cells = 896 MiB; 36 layers x 2 x 1,024 x 2 B x 4,096
    cells = 576 MiB.
    """
    model, size = {"ollama-llama-server": ("llama3.2-3b", 896), "ollama-engine": ("qwen3-8b", 576)}[
        name
    ]
    answer = ask_of(ask, name, model, "--json")
    result = json.loads(answer.out)
    check = next(check for check in result["checks"] if check["name"].endswith("kv_size"))
    assert (answer.code, check["predicted"], check["measured"]) == (0, size * MIB, size * MIB)


OWN_ENGINE = [
    # published as 1.1 + 1.5 GiB: 12 layers x 2 x 2 x 256 x 2 B x 32,768 cells = 768 MiB, and 36 x
    # 2.09375 MiB x 25
    ("qwen3-next-80b-a3b", "qwen3next", "1", "1024", "32768", "2.6 GiB", 2_652.375),
    # 18 layers x 2,048 B x 32,768 = 1,152 MiB, and 18 x 2,048 B x (4,096 + 512) = 162 MiB of
    # windows, as published
    ("gpt-oss-120b", "gptoss", "1", "512", "32768", "1.3 GiB", 1_314),
    # 4 layers x 1,024 B x 16,384 = 64 MiB, and 22 x 1,024 B x 1,792 = 38.5: 2 x (512 + 1) + 512, a
    # multiple of 256
    ("gemma-3-1b", "gemma3", "2", "512", "16384", "102.5 MiB", 102.5),
    # the windows are as long as the context: 26 x 1,024 B x 512
    ("gemma-3-1b", "gemma3", "1", "512", "512", "13.0 MiB", 13),
]


@each(("model", "architecture", "parallel", "batch", "context", "size", "predicted"), OWN_ENGINE)
def test_ollamas_own_engine_has_caches_of_its_own(
    ask: Ask,
    model: str,
    architecture: str,
    parallel: str,
    batch: str,
    context: str,
    size: str,
    predicted: float,
) -> None:
    known = MODELS / f"{model}.json"
    log = (
        f'msg="" architecture={architecture} file_type=Q8_0 name="" description=""\n'
        f'msg=load request="{{Operation:commit Parallel:{parallel} BatchSize:{batch} '
        "FlashAttention:Enabled "
        f'KvSize:{context} KvCacheType: NumThreads:8}}"\nmsg="kv cache" device=CUDA0 '
        f'size="{size}"\n'
    )
    words = ("fit", str(known) if known.exists() else model, "--log", "-", "--json")
    (check,) = ask(*words, stdin=log).document["checks"]
    assert (check["ok"], check["predicted"]) == (True, predicted * MIB)
    if architecture != "qwen3next":
        unknown = ask(*words, stdin=log.partition("\n")[2]).document["checks"]
        assert unknown == []


def test_users_are_counted_in_the_logs_memory(ask: Ask) -> None:
    """145,632 tokens / (4,096 + 512) = 31.6 on average, / (4,096 + 1,024) = 28.4 at worst."""
    answer = ask_of(ask, "vllm-running", "", "--prompt", "4K", "--output-len", "1K", "--json")
    users = json.loads(answer.out)["users"]
    assert (users["concurrent_average_all_replicas"], users["concurrent_worst_all_replicas"]) == (
        31,
        28,
    )


def test_a_full_server_says_how_many_requests_it_holds(ask: Ask) -> None:
    """99.9 % of 145,632 tokens / 37 = 3,932; in fp8 twice the tokens hold 74."""
    load = json.loads(ask_of(ask, "vllm-running", "", "--json").out)["load"]
    assert (load["running"], load["waiting"], load["preempted"]) == (37, 63, 1)
    assert (load["tokens_per_request"], load["requests_that_fit"]) == (3_932, 37)
    narrower = load["suggestions"][0]
    assert (narrower["flag"], narrower["concurrency"]) == ("--kv-dtype fp8", 74.0)
    asked = ask_of(ask, "vllm-running", "", "--batch", "50").out
    assert re.search(
        r"DOES NOT FIT: the logged memory holds 37 of 50\s+requests of about 3,932 tokens", asked
    )
    assert "--kv-dtype fp8         74" in asked
    assert not any(
        change["flag"].startswith(("--context", "--batch")) for change in load["suggestions"]
    )
    screen = ask_of(ask, "vllm-running", "").out  # why requests wait is answered before what agrees
    assert (
        screen.index("LOAD: 37 requests are running, 63 waiting")
        < screen.index("of 100 run")
        < screen.index("AGREES")
    )


def test_a_cache_below_the_context_comes_before_what_agrees(ask: Ask) -> None:
    """33,450 of 131,072 tokens are 0.26 of a request, and by the rounded sizes of K and V at least
    0.25.
    """
    log = (
        "server_args=ServerArgs(model_path='Qwen/Qwen2.5-7B-Instruct', context_length=131072)\n"
        "KV Cache is allocated. #tokens: 33450, K size: 0.89 GB, V size: 0.89 GB\n"
        "max_total_num_tokens=33450, chunked_prefill_size=8192, max_running_requests=2048, "
        "context_len=131072\n"
    )
    answer = ask("fit", "--log", "-", stdin=log).out
    assert "DOES NOT FIT: 0.25 x of one request of 131,072 tokens. More than 33,328 are" in answer
    assert answer.index("--context 33329 ") < answer.index("AGREES")


def test_sglangs_retracted_requests_are_a_full_cache(ask: Ask) -> None:
    """0.96 x 30,200 tokens / 6 = 4,832 (the tokens that follow from the printed GB are a few
    fewer).
    """
    load = json.loads(ask_of(ask, "sglang-load", "", "--json").out)["load"]
    assert (load["running"], load["waiting"], load["preempted"]) == (6, 5, 1)
    assert abs(load["tokens_per_request"] - 4_832) < 16
