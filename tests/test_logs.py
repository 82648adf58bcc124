"""`attncalc fit --log`: logs of every engine, however they were written down. Figures are those of
public logs.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each

from attncalc.logs.log_file import lines_of, read_log
from attncalc.logs.startup_log import Printed

MODELS = Path(__file__).parent / "data" / "engine-logs" / "models"

# 36 layers x 2 x 8 heads x 128 x 2 B = 147,456 B per token; 16 tokens per block. 1 GiB holds 455
# blocks, 7,280 tokens.
VLLM = """\
(APIServer pid=1) INFO 07-09 21:27:30 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 4096}
(EngineCore pid=9) INFO 07-09 21:27:35 [core.py:114] Initializing a V1 LLM engine (v0.11.0) with config: \
model='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=1, kv_cache_dtype=auto
(EngineCore pid=9) INFO 07-09 21:29:51 [gpu_worker.py:508] Available KV cache memory: 1.00 GiB
(EngineCore pid=9) INFO 07-09 21:29:51 [kv_cache_utils.py:2146] GPU KV cache size: 7,280 tokens
(EngineCore pid=9) INFO 07-09 21:29:51 [kv_cache_utils.py:2146] Maximum concurrency for 4,096 tokens per request: 1.78x
"""

# Qwen2.5-7B on 24 GB (SGLang 0.4.2): 0.88 * 22.76 - 14.39 = 5.64 GiB of K and V, in
# sglang-startups.json.
# 28 layers x 4 heads x 128 x 2 B = 28,672 B of K per token: 5.64 GiB / 2 are 105,607 tokens.
SGLANG = """\
[2025-02-04 10:00:00 TP0] server_args=ServerArgs(model_path='Qwen/Qwen2.5-7B', dtype='auto', kv_cache_dtype='auto', \
context_length=None, mem_fraction_static=0.88, tp_size=1, max_running_requests=None)
[2025-02-04 10:00:01 TP0] Load weight begin. avail mem=22.76 GB
[2025-02-04 10:00:09 TP0] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=8.37 GB, \
mem usage=14.39 GB.
[2025-02-04 10:00:09 TP0] KV Cache is allocated. #tokens: 105607, K size: 2.82 GB, V size: 2.82 GB.
[2025-02-04 10:00:09 TP0] Memory pool end. avail mem=1.68 GB
[2025-02-04 10:00:10 TP0] max_total_num_tokens=105607, chunked_prefill_size=2048, context_len=32768
"""

# Llama 3 8B with four slots of 2,048 tokens and no flash attention, in llamacpp-buffers.json:
# 560.00 and 24.01 MiB.
# 32 layers x 8 heads x 128 x 2 B x 8,192 cells = 512 MiB of K.
LLAMACPP = """\
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23592 MiB free
print_info: general.name     = Meta Llama 3 8B
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 8192
llama_context: n_ctx_per_seq = 2048
llama_context: n_ubatch      = 512
llama_context: flash_attn    = 0
llama_context: kv_unified    = true
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  4/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
llama_context:      CUDA0 compute buffer size =   560.00 MiB
llama_context:  CUDA_Host compute buffer size =    24.01 MiB
"""


def answer_to(ask: Ask, tmp_path: Path, text: str | bytes, *options: str) -> dict[str, Any]:
    log = tmp_path / "start.log"
    log.write_bytes(text.encode() if isinstance(text, str) else text)
    answer = ask("fit", *options, "--log", str(log), "--json")
    assert answer.code in (0, 1), answer.err
    result: dict[str, Any] = answer.document
    return result


def test_a_log_of_vllm_needs_no_option(ask: Ask, tmp_path: Path) -> None:
    """Its model is the preset whose sources have the same repository, which needs no network."""
    result = answer_to(ask, tmp_path, VLLM)
    assert (result["engine"], result["engine_version"], result["agrees"]) == (
        "vllm",
        "0.11.0",
        True,
    )
    assert result["model"]["title"] == "Qwen3 8B"
    assert {check["name"] for check in result["checks"]} == {"kv_tokens", "concurrency"}


def test_a_log_of_sglang_agrees(ask: Ask, tmp_path: Path) -> None:
    result = answer_to(ask, tmp_path, SGLANG, str(MODELS / "qwen2.5-7b.json"))
    assert (result["engine"], result["agrees"]) == ("sglang", True)
    assert {check["name"] for check in result["checks"]} == {"k_size", "v_size"}
    weights, kv_memory = result["estimates"]
    assert (weights["name"], kv_memory["name"]) == ("weights", "kv_memory")
    assert weights["inside"]
    assert kv_memory["inside"]


STARTUPS = Path(__file__).parent / "data" / "startups" / "models"

# Qwen3.5-9B on 2 RTX 4090: 0.8 * 22.93 - 8.85 = 9.49 GiB. Slots of 24 layers x (16 heads x 128 x
# 128 x 4 B + ...) and 8 layers x 2 heads x 256 x 4 B per token. The pool of states gets 9 / 19 of
# it, in whole slots.
HYBRID = """\
[2026-04-14 16:08:20] server_args=ServerArgs(model_path='Qwen/Qwen3.5-9B', dtype='auto', kv_cache_dtype='auto', \
mem_fraction_static=0.8, max_running_requests=None, tp_size=2, context_length=262144)
[2026-04-14 16:08:44 TP0] Load weight begin. avail mem=22.93 GB
[2026-04-14 16:08:49 TP0] Load weight end. elapsed=5.54 s, type=Qwen3_5ForConditionalGeneration, avail mem=14.08 GB, \
mem usage=8.85 GB.
[2026-04-14 16:08:49 TP0] Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: 0.10GB, \
ssm_state size: 4.38GB
[2026-04-14 16:08:49 TP0] KV Cache is allocated. #tokens: 327310, K size: 2.50 GB, V size: 2.50 GB
[2026-04-14 16:09:08 TP0] max_total_num_tokens=327310, chunked_prefill_size=2048, max_running_requests=62, \
context_len=262144, available_gpu_mem=3.79 GB
"""

# DeepSeek-V3 with DP attention on 8 H200 (sgl-project/sglang#6017): 161,488 tokens x 61 layers x
# 576 x 2 B = 10.57 GiB
RANKS = """\
[2025-05-09 14:58:20] server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-V3', dtype='auto', \
kv_cache_dtype='auto', mem_fraction_static=0.845, tp_size=8, dp_size=8, ep_size=8, enable_dp_attention=True, \
context_length=8192)
[2025-05-09 14:58:49 DP0 TP0] Load weight begin. avail mem=137.55 GB
[2025-05-09 15:00:14 DP2 TP2] Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, avail mem=31.87 GB, \
mem usage=105.59 GB.
[2025-05-09 15:00:16 DP1 TP1] KV Cache is allocated. #tokens: 161488, KV size: 10.57 GB
"""


def test_slots_and_tokens_of_a_hybrid_model_agree(ask: Ask, tmp_path: Path) -> None:
    """More memory may hold fewer tokens, since a slot takes all its bytes at once: 186 slots decide
    which memory.
    """
    result = answer_to(ask, tmp_path, HYBRID, str(STARTUPS / "qwen3.5-9b.json"))
    assert result["agrees"]
    assert {check["name"] for check in result["checks"]} >= {
        "state_slots",
        "ssm_state_size",
        "k_size",
    }


def test_a_log_of_a_hybrid_model_without_the_line_of_its_states_says_so(
    ask: Ask, tmp_path: Path
) -> None:
    """0.8 * 22.93 - 8.85 = 9.49 GiB are K, V and states; 5.00 are the K and V that it prints."""
    text = "".join(line for line in HYBRID.splitlines(keepends=True) if "Mamba" not in line)
    path = str(STARTUPS / "qwen3.5-9b.json")
    result = answer_to(ask, tmp_path, text, path, "--gpu", "rtx-4090")
    assert result["agrees"]
    assert {check["name"] for check in result["checks"]} == {"k_size", "v_size"}
    figures = {figure["name"]: figure["value"] for figure in result["results"]}
    assert figures["kv_tokens"] == 327_310
    assert figures["kv_memory"] == pytest.approx(9.49 * 2**30, abs=2**28)  # slots are whole
    assert "kv_memory" not in {estimate["name"] for estimate in result["estimates"]}
    missing = "The log has no line 'Mamba Cache is allocated'"
    assert any(missing in note for note in result["notes"])
    assert not any(missing in note for note in answer_to(ask, tmp_path, HYBRID, path)["notes"])


@each(
    ("lines", "version", "note"),
    [
        (SGLANG, "0.5.23", "by its lines, 0.5.23 is the newest with which all figures agree"),
        (SGLANG.replace(", mem usage=14.39 GB", ""), "0.4.0", "by its lines, 0.4.0 is the newest"),
        (
            SGLANG.replace("K size: 2.82", "K size: 2.84"),
            "0.5.23",
            "no known one agrees, so the newest, 0.5.23,",
        ),
        (f"sglang version 0.4.2\n{SGLANG}", "0.4.2", ""),
    ],
)
def test_a_log_of_sglang_without_a_version_names_the_one_that_is_taken(
    ask: Ask, lines: str, version: str, note: str
) -> None:
    path = lines
    answer = ask("fit", str(MODELS / "qwen2.5-7b.json"), "--log", "-", stdin=path)
    screen = " ".join(answer.out.split())
    assert f"version {version}, page size 1" in screen
    assert note in screen
    assert ("The log has no version" in screen) == bool(note)


def test_the_number_of_requests_that_sglang_concludes_is_no_argument() -> None:
    """max_running_requests=None is in ServerArgs, and 62 in a later line."""
    log = read_log(HYBRID.encode(), "log")
    assert "max_running_requests" not in log.settings
    given = read_log(HYBRID.replace("requests=None", "requests=40").encode(), "log")
    assert given.settings["max_running_requests"] == "40"


def test_ranks_of_attention_are_read_from_a_log_of_sglang(ask: Ask, tmp_path: Path) -> None:
    result = answer_to(ask, tmp_path, RANKS)
    assert (result["tp"], result["dp"], result["attn_dp"], result["expert_parallel"]) == (
        8,
        1,
        8,
        True,
    )
    assert result["agrees"]
    newer = RANKS.replace("dp_size=8, ", "attn_dp_size=8, ", 1).replace(
        "enable_dp_attention=True, ", ""
    )
    assert answer_to(ask, tmp_path, newer)["attn_dp"] == 8
    replicas = RANKS.replace("enable_dp_attention=True", "enable_dp_attention=False")
    assert answer_to(ask, tmp_path, replicas)["attn_dp"] == 1


def test_weights_that_an_old_sglang_does_not_print_are_the_difference(
    ask: Ask, tmp_path: Path
) -> None:
    """avail mem=22.76 before, and 8.37 after the weights: 14.39 GiB."""
    old = SGLANG.replace(", mem usage=14.39 GB", "")
    result = answer_to(ask, tmp_path, old, str(MODELS / "qwen2.5-7b.json"))
    weights = next(estimate for estimate in result["estimates"] if estimate["name"] == "weights")
    assert weights["logged"] == pytest.approx(14.39 * 2**30, abs=2**20)


def test_an_edited_log_of_sglang_disagrees(ask: Ask, tmp_path: Path) -> None:
    result = answer_to(
        ask,
        tmp_path,
        SGLANG.replace("K size: 2.82", "K size: 2.84"),
        str(MODELS / "qwen2.5-7b.json"),
    )
    assert not result["agrees"]


def test_a_full_screen_of_a_log_keeps_the_advice(ask: Ask) -> None:
    """How the log was read leaves the screen first; what is left out is counted."""
    other = HYBRID.replace("K size: 2.50", "K size: 3.50").replace("8.85", "2.85")
    model = str(MODELS / "qwen3.5-9b.json")
    screen, full = (
        ask("fit", model, "--log", "-", *more, stdin=f"{other}{other}").out
        for more in ((), ("--full",))
    )
    assert len(screen.splitlines()) < 24
    assert "--weights-dtype sets the" in screen
    assert "If the log lacks an argument, give it as an option" in screen
    read_so = ("The log has no version", "The log has 2 starts")
    assert not any(note in screen for note in read_so)
    assert all(note in full for note in read_so)
    # a note starts a line, and goes on in lines that are indented
    notes = [
        sum(not line.startswith(" ") for line in text.rpartition("\n\n")[2].splitlines())
        for text in (screen, full)
    ]
    assert screen.endswith(
        f"--full adds the cache, its blocks and {notes[1] - notes[0] + 1} notes.\n"
    )


def test_a_log_of_llamacpp_agrees(ask: Ask, tmp_path: Path) -> None:
    result = answer_to(ask, tmp_path, LLAMACPP, "llama3-8b", "--engine-version", "b5000")
    assert (result["engine"], result["agrees"]) == ("llamacpp", True)
    assert {check["name"] for check in result["checks"]} == {"kv_size", "n_ctx"}
    estimates = {estimate["name"]: estimate["inside"] for estimate in result["estimates"]}
    assert estimates == {"compute_buffer": True, "host_compute_buffer": True}


def test_an_edited_log_of_llamacpp_disagrees(ask: Ask, tmp_path: Path) -> None:
    edited = LLAMACPP.replace("size = 1024.00 MiB (", "size = 1056.00 MiB (")
    assert not answer_to(ask, tmp_path, edited, "llama3-8b")["agrees"]


def docker(text: str) -> str:
    """Return the lines as docker's json-file driver writes them, which splits long ones."""
    parts = [part for line in text.splitlines() for part in (line[:60], f"{line[60:]}\n")]
    entries = ({"log": part, "stream": "stderr", "time": "2026-07-09T21:27:35Z"} for part in parts)
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def wrapped(text: str, width: int = 80) -> str:
    """Return the lines as a terminal of that width shows them."""
    lines = text.splitlines()
    return "\n".join(
        line[i : i + width] for line in lines for i in range(0, max(1, len(line)), width)
    )


FORMS: dict[str, bytes] = {
    "CRLF": VLLM.replace("\n", "\r\n").encode(),
    "UTF-8 with a mark": b"\xef\xbb\xbf" + VLLM.encode(),
    "UTF-16 with a mark": VLLM.encode("utf-16"),
    "UTF-16 without a mark": VLLM.encode("utf-16-le"),
    "colours": VLLM.replace("INFO", "\x1b[32mINFO\x1b[0m")
    .replace("KV cache", "\x1b[1;31mKV cache\x1b[0m")
    .encode(),
    "docker": docker(VLLM).encode(),
    "docker compose": "".join(f"vllm-1  | {line}\n" for line in VLLM.splitlines()).encode(),
    "80 columns": wrapped(VLLM).encode(),
    "120 columns": wrapped(VLLM, 120).encode(),
    "Latin-1 somewhere": b"\xe9\xff\n" + VLLM.encode(),
}


@each("form", FORMS)
def test_the_form_of_a_log_does_not_matter(form: str) -> None:
    assert read_log(FORMS[form], "log") == read_log(VLLM.encode(), "log")


def test_lines_that_are_not_wrapped_are_kept() -> None:
    lines = [
        "Available KV cache memory: 1.00 GiB and more words here",
        "GPU KV cache size: 8,192 tokens",
    ]
    assert lines_of("\n".join(lines).encode()) == lines


@pytest.mark.parametrize(
    ("text", "half"), [("4.8", 2**30 // 200), ("4.80", 2**30 // 200), ("14.9888", 2**30 // 20000)]
)
def test_a_size_is_as_exact_as_its_digits(text: str, half: int) -> None:
    """From 0.14 on vLLM prints 4.80 as 4.8; half of the last digit is rounded up."""
    assert Printed(text, text, 2**30).half == half + 1


@pytest.mark.parametrize(
    ("printed", "agrees"), [("5.62", True), ("5.63", True), ("5.61", False), ("5.64", False)]
)
def test_a_tie_may_be_rounded_to_either_side(
    ask: Ask, tmp_path: Path, printed: str, agrees: bool
) -> None:
    """40,960 tokens x 147,456 B = 5.625 GiB."""
    text = (
        f"Available KV cache memory: 4.50 GiB\n{printed} GiB KV cache is needed, for the max seq "
        "len (40960)\n"
    )
    checks = {c["name"]: c["ok"] for c in answer_to(ask, tmp_path, text, "qwen3-8b")["checks"]}
    assert checks["kv_bytes_per_sequence"] is agrees


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-8B",
        "qwen/qwen3-8b",
        "/home/me/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46dd6066d109eabc6255188de91218",
        "qwen3-8b",
    ],
)
def test_a_repository_is_found_in_the_sources_of_presets(
    ask: Ask, tmp_path: Path, name: str
) -> None:
    assert (
        answer_to(ask, tmp_path, VLLM.replace("Qwen/Qwen3-8B", name))["model"]["title"]
        == "Qwen3 8B"
    )


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-8", "-", "/dev/zero", "../../etc", "org/none", "a\x00b"]
)
def test_an_unknown_model_is_one_error(ask: Ask, name: str) -> None:
    log = VLLM.replace("Qwen/Qwen3-8B", name)
    error = ask("fit", "--log", "-", stdin=log).error
    assert "the log's model" in error
    assert "tip: give the model: attncalc fit MODEL --log FILE" in error


def test_the_whole_budget_is_compared(ask: Ask, tmp_path: Path) -> None:
    """Qwen3-8B on an L20, vLLM 0.12 (end-to-end/logs.json): 15.27 GiB of weights, 1.4 of
    activations, 0.03 outside.
    """
    summary = (
        "(EngineCore_DP0 pid=9) INFO 12-09 18:12:39 [gpu_worker.py:391] Free memory on device "
        "(44.10/44.53 GiB) on "
        "startup. Desired GPU memory utilization is (0.9, 40.08 GiB). Actual usage is 15.27 GiB "
        "for weight, 1.4 GiB "
        "for peak activation, 0.03 GiB for non-torch memory, and 0.54 GiB for CUDAGraph memory.\n"
    )
    result = answer_to(ask, tmp_path, VLLM + summary)
    estimates = {estimate["name"]: estimate for estimate in result["estimates"]}
    assert estimates.keys() == {"weights", "activations", "outside_torch", "kv_memory"}
    assert estimates["weights"]["inside"]
    assert estimates["activations"]["inside"]
    assert result["agrees"]


def test_all_of_a_public_logs_budget_is_in_range(ask: Ask, tmp_path: Path) -> None:
    """Qwen3-235B FP8 on 4 RTX PRO 6000 (end-to-end/logs.json, file 57976227484 in the index), vLLM
    0.27.1.
    """
    text = """\
(APIServer pid=1) INFO 08-21 18:14:00 non-default args: {'max_model_len': 32768, 'max_num_seqs': 32, \
'tensor_parallel_size': 4}
(Worker_TP0 pid=770) INFO 08-21 18:18:05 [gpu_model_runner.py:5405] Model loading took 55.19 GiB memory and 48.5 seconds
(EngineCore pid=558) INFO 08-21 18:21:55 [kv_cache_utils.py:2235] GPU KV cache size: 621,392 tokens
(EngineCore pid=558) INFO 08-21 18:21:55 [kv_cache_utils.py:2236] Maximum concurrency for 32,768 tokens per request: \
18.96x
(Worker_TP1 pid=771) INFO 08-21 18:22:06 [gpu_worker.py:789] Free memory on device (94.05/95.01 GiB) on startup. \
Desired GPU memory utilization is (0.9, 85.51 GiB). Actual usage is 56.89 GiB for consumed memory (weights + \
non-torch), 0.76 GiB for peak activation, and 0.32 GiB for CUDAGraph memory. Replace gpu_memory_utilization config \
with `--kv-cache-memory=29407858586` (27.39 GiB) to fit into requested memory, or `--kv-cache-memory=38581581312` \
(35.93 GiB) to fully utilize gpu memory. Current kv cache memory in use is 27.85 GiB.
"""
    options = ("--gpu", "rtx-pro-6000", "--weights-dtype", "fp8", "--engine-version", "0.27.1")
    result = answer_to(ask, tmp_path, text, str(MODELS / "qwen3-235b-a22b.json"), *options)
    assert result["agrees"]
    estimates = {estimate["name"]: estimate["inside"] for estimate in result["estimates"]}
    assert estimates.keys() >= {"weights", "activations", "weights_and_outside", "kv_memory"}
    assert all(estimates.values())


def test_an_estimate_does_not_make_a_log_wrong(ask: Ask, tmp_path: Path) -> None:
    result = answer_to(ask, tmp_path, VLLM + "Model loading took 99.00 GiB memory and 3 seconds\n")
    assert result["agrees"]
    assert [estimate["inside"] for estimate in result["estimates"]] == [False]


def test_the_exact_memory_in_use_is_taken(ask: Ask, tmp_path: Path) -> None:
    """1,073,741,824 B are 455 blocks of 2,359,296 B; 1.00 GiB alone would allow 2 blocks more or
    less.
    """
    text = VLLM + "Current kv cache memory in use is 1073741824 bytes.\n"
    checks = {c["name"]: c["tolerance"] for c in answer_to(ask, tmp_path, text)["checks"]}
    assert checks["kv_tokens"] == 0


# Bounds


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_long_file_is_an_error(ask: Ask) -> None:
    assert "longer than 67,108,864 bytes" in ask("fit", "qwen3-8b", "--log", "/dev/zero").error


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_without_a_writer_does_not_block(ask: Ask, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "it is empty" in ask("fit", "qwen3-8b", "--log", str(pipe)).error


@pytest.mark.parametrize("name", ["", "none.log"])
def test_a_file_that_cannot_be_read_is_one_error(ask: Ask, tmp_path: Path, name: str) -> None:
    error = ask("fit", "qwen3-8b", "--log", f"{tmp_path}/{name}").error
    assert error.startswith("error: ")
    assert "Traceback" not in error


def test_one_long_line_is_read_up_to_a_limit(ask: Ask, tmp_path: Path) -> None:
    long = "Available KV cache memory: 1.00 GiB, kv_cache_dtype" * 200_000
    result = answer_to(ask, tmp_path, long + "\n" + VLLM)
    assert result["agrees"]


def test_a_log_of_another_engine_than_requested_is_an_error(ask: Ask) -> None:
    log = SGLANG
    error = ask("fit", "llama3-8b", "--log", "-", "--engine", "llamacpp", stdin=log).error
    assert "--engine llamacpp cannot be combined with a log of SGLang" in error


def test_the_gpu_beside_a_log_decides_the_batched_tokens(ask: Ask, tmp_path: Path) -> None:
    """Gemma 4 E4B on 24 GB, vLLM 0.22.1: windows keep 2,048 batched tokens there, and 8,192 on an
    H100.
    """
    log = tmp_path / "vllm.log"
    log.write_text(
        "INFO 06-07 08:56:43 [gpu_worker.py:466] Available KV cache memory: 4.1 GiB\n"
        "INFO 06-07 08:56:43 [kv_cache_utils.py:1733] GPU KV cache size: 224,353 tokens\n"
        "INFO 06-07 08:56:43 [kv_cache_utils.py:1734] Maximum concurrency for 32,768 tokens per "
        "request: 6.85x\n"
    )
    words = (
        "fit",
        str(MODELS / "gemma-4-e4b.json"),
        "--log",
        str(log),
        "--context",
        "32768",
        "--json",
    )
    version = ("--engine-version", "0.22.1")
    assert ask(*words, *version, "--gpu", "rtx-4090").document["agrees"]
    assert not ask(*words, *version, "--gpu", "h100-80gb").document["agrees"]


def test_slots_with_a_unified_cache_share_one_context(ask: Ask) -> None:
    """A log of Qwen3.6-27B: 16 layers x 131,072 cells x 2 x 4 heads x 256 x 34/32 B are 4,352 MiB,
    not one per slot.
    """
    words = (
        "--gpu",
        "rtx-5090",
        "--engine",
        "llamacpp",
        "-c",
        "131072",
        "-np",
        "4",
        "-kvu",
        "--kv-dtype",
        "q8_0",
    )
    lines = ask(
        "fit", str(MODELS / "qwen3.5-27b.json"), "--weights-dtype", "q4_k_m", *words, "--json"
    ).document
    assert any("size = 4352.00 MiB (131072 cells" in line for line in lines["log_lines"])


# A start of Qwen3-235B-A22B in fp8: weights of 55.12 GiB on each of 4 GPUs, and 109.55 GiB in bf16.
FP8_CHECKPOINT = """vllm serve {name} --tensor-parallel-size 4 --max-model-len 40960
INFO 09-24 19:58:12 [gpu_worker.py:298] Available KV cache memory: {memory} GiB
INFO 09-24 19:58:12 [kv_cache_utils.py:864] GPU KV cache size: {tokens} tokens
INFO 09-24 19:58:12 [kv_cache_utils.py:868] Maximum concurrency for 40,960 tokens per request: {times}x
"""


@pytest.mark.parametrize("model", [(), ("qwen3-235b-a22b",)])
@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-235B-A22B-FP8", "RedHatAI/Qwen3-235B-A22B-FP8-dynamic"]
)
def test_a_log_that_agrees_has_one_verdict(
    ask: Ask, tmp_path: Path, name: str, model: tuple[str, ...]
) -> None:
    """The dtype in the checkpoint's name is that of the weights also beside the memory of the
    log.
    """
    file = tmp_path / "server.log"
    file.write_text(FP8_CHECKPOINT.format(name=name, memory="9.90", tokens="220,816", times="5.39"))
    shown = ask("fit", *model, "--log", str(file), "--gpu", "h100")
    # the hub is not asked about a name: what its organisation usually does is a warning
    warnings = shown.out.count("warning: ") - shown.out.count("was not read.")
    assert (shown.code, warnings) == (0, 0)
    answer = ask("fit", *model, "--log", str(file), "--gpu", "h100", "--json").document
    assert (answer["fits"], answer["verdict"], answer["agrees"]) == (True, "fits", True)
    assert answer["launch_command"].startswith(
        f"vllm serve {name} --max-model-len 40960 --tensor-parallel-size 4"
    )


def test_a_start_with_more_memory_than_expected_did_start(ask: Ask, tmp_path: Path) -> None:
    """20 GiB are more than the 13.2 that an H100 is expected to leave: 20 * 2^30 // 770,048 * 16
    tokens.
    """
    file = tmp_path / "server.log"
    given = FP8_CHECKPOINT.format(
        name="Qwen/Qwen3-235B-A22B-FP8", memory="20.00", tokens="446,208", times="10.89"
    )
    file.write_text(given)
    answer = ask("fit", "--log", str(file), "--gpu", "h100")
    assert "does not start" not in answer.out + answer.err
