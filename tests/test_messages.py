"""The table of messages that state their cause, logs/messages.txt, and messages of it as people
paste them.
"""

import itertools
import re
from pathlib import Path

import pytest
from asking import Ask
from tables import each

from attncalc.logs.cause import CAUSES
from attncalc.logs.messages import find_message, kinds

TABLE = [(kind.cause, message) for kind in kinds() for message in kind.messages]


def sample(message: str, number: str = "") -> str:
    """Return a text with a message of the table: its first choices, and numbers that grow, or the
    same number.
    """
    numbers = itertools.repeat(number) if number else map(str, itertools.count(1200, 100))
    text = re.sub(r"\[[^]]+\]|\.{2,3}", "", message)
    text = re.sub(r"\{([^}|]+)[^}]*\}", r"\1", text)
    return re.sub(r"<(\w+)>", lambda name: "word" if name[1].isupper() else next(numbers), text)


@each(("cause", "message"), TABLE)
def test_every_message_of_the_table_is_found_in_its_own_text(cause: str, message: str) -> None:
    found = find_message(f"ValueError: {sample(message)} and more.")
    assert found
    assert found.refusal.cause == cause
    assert cause in CAUSES
    assert found.refusal.advice
    words = [found.refusal.reason, *(text for each in found.refusal.advice for text in each)]
    assert not any(re.search(r"\{\w+(?::\w+)?\}|<\w+>", str(text)) for text in words), words


@pytest.mark.parametrize("number", ["0", "1", "12.5", "131072.0"])
def test_no_number_in_a_message_of_the_table_is_an_error(number: str) -> None:
    for cause, message in TABLE:
        if found := find_message(f"ValueError: {sample(message, number)} and more."):
            assert found.refusal.reason, (cause, message)


PASTED = [
    # a scaled model's maximum is a float in vLLM's message
    (
        "User-specified max_model_len (65536) is greater than the derived max_model_len "
        "(max_position_embeddings="
        "32768.0 or model_max_length=None in model's config.json).",
        "65,536",
        "32,768",
        "--max-model-len 32768",
    ),
    # https://github.com/vllm-project/vllm/issues/49064
    (
        "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (969).",
        "1,024",
        "969",
        "--max-num-seqs 969",
    ),
    # https://github.com/vllm-project/vllm/issues/4667
    (
        "{'message': 'max_tokens must be at least 1, got -186.', 'code': 400}",
        "186",
        "longer",
        "--max-model-len N",
    ),
    # https://github.com/vllm-project/llm-compressor/issues/54: 7,392 x 4 = 29,568 = 231 x 128
    (
        "vllm serve m -tp 4\nException in worker VllmWorkerProcess while processing method "
        "load_model: Weight "
        "input_size_per_partition = 7392 is not divisible by min_thread_k = 128., Traceback "
        "(most recent call last):",
        "7,392",
        "128",
        "--tensor-parallel-size 1",
    ),
    # https://github.com/Gitlawb/openclaude/issues/353, with the line break of a terminal
    (
        'API Error: 400 {"error":"The number of tokens to keep from the initial prompt is '
        "greater than the context\n "
        "     length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context "
        "length, or provide",
        "13,055",
        "4,096",
        "lms load --context-length 14336",
    ),
    # 8,203 - 512 = 7,691 and 8,192 - 7,691 = 501:
    # https://github.com/ruipeterpan/specreason/issues/4
    (
        "This model's maximum context length is 8192 tokens. However, you requested 8203 tokens "
        "(7691 in the messages, "
        "512 in the completion).",
        "8,203",
        "8,192 tokens, by 11",
        "max_tokens=501",
    ),
    (
        '{"error":"This model\\u0027s maximum context length is 512 tokens"}',
        "request",
        "512",
        "--max-model-len 1024",
    ),
    (
        r"{'error': 'This model\'s maximum context length is 512 tokens'}",
        "request",
        "512",
        "--max-model-len 1024",
    ),
    (
        "This model&#39;s maximum context length is 512 tokens",
        "request",
        "512",
        "--max-model-len 1024",
    ),
    # 9,814 + 134 + 51 MiB of https://github.com/ggml-org/llama.cpp/issues/19437
    (
        "breakdown_print: | - CUDA0 (GTX 1080 Ti) | 11165 = 8702 + (10001 = 9814 + 134 + 51) + "
        "17592186036877 |\n"
        "llama_params_fit: failed to fit params to free device memory: n_gpu_layers already set "
        "by user to 99, abort",
        "9.77 GiB",
        "8.50 GiB",
        "-fit on",
    ),
    # PyTorch in a container: 79.10 - 10.47 - 0.09 GiB,
    # https://github.com/huggingface/trl/issues/3172
    (
        "CUDA out of memory. Tried to allocate 130.00 MiB. GPU 0 has a total capacity of 79.10 "
        "GiB of which 12.81 MiB "
        "is free. Process 3427 has 0 bytes memory in use. Process 3423 has 0 bytes memory in "
        "use. Process 3429 has 0 "
        "bytes memory in use. Including non-PyTorch memory, this process has 0 bytes memory in "
        "use. Of the allocated "
        "memory 10.47 GiB is allocated by PyTorch, and 93.52 MiB is reserved by PyTorch but "
        "unallocated.",
        "130 MiB were wanted",
        "other processes use 68.53 GiB",
        "",
    ),
    # two shares of https://github.com/sgl-project/sglang/issues/4330
    (
        "With --mem-fraction-static 0.85, I get a CUDA out of memory error. With 0.84: "
        "RuntimeError: Not enough "
        "memory. Please try to increase --mem-fraction-static.",
        "0.84",
        "0.85",
        "--tp 2",
    ),
    # 13.4 x 0.8 = 10.72 GiB of https://github.com/ollama/ollama/issues/10920
    (
        "Error: model requires more system memory (164.8 GiB) than is available (13.4 GiB)",
        "164.80 GiB",
        "13.40 GiB",
        "",
    ),
    # four slots of https://github.com/ggml-org/llama.cpp/issues/23652 share one cache
    (
        "I slot load_model: id 3 | task -1 | new slot, n_ctx = 1024\nerror: Context size has "
        "been exceeded.",
        "1,024",
        "together are longer",
        "-c 2048",
    ),
    # an image of GLM-OCR, whose message two servers wrapped:
    # https://github.com/vllm-project/vllm/issues/34040
    (
        'Error 400 from vllm: {\\"error\\":{\\"message\\":\\"The decoder prompt contains a(n) '
        "image item with length "
        "6042, which exceeds the pre-allocated encoder cache size 4800. Please reduce the input "
        'size\\"}}',
        "6,042",
        "4,800",
        "--max-num-batched-tokens 6042",
    ),
    # the share that SGLang itself asks for
    (
        "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.8. "
        "Raise "
        "--mem-fraction-static above 0.913 (minimum viable = 1 - available/pre = 0.9113).",
        "0.8",
        "nothing",
        "--mem-fraction-static 0.92",
    ),
    # a Mac of 16 GB: 13,421.77 MiB x 1.2
    (
        "metal_device_init: recommendedMaxWorkingSetSize  = 11453.25 MB\n"
        "ggml_backend_metal_buffer_type_alloc_buffer"
        ": error: failed to allocate buffer, size = 13421.77 MiB\nerror loading model: unable to "
        "allocate Metal buffer",
        "13.11 GiB were wanted",
        "at most 10.67 GiB",
        "sudo sysctl iogpu.wired_limit_mb=16106",
    ),
    # no table has it: each option takes the other's number
    (
        "ValueError: max_foo_slots (256) exceeds max_bar_pages (64).",
        "256",
        "64",
        "--max-foo-slots 64",
    ),
]


@pytest.mark.parametrize(("text", "first", "second", "option"), PASTED)
def test_a_paste_is_answered_with_its_two_numbers_and_an_option(
    ask: Ask, text: str, first: str, second: str, option: str
) -> None:
    refusal = ask("fit", "--log", "-", "--json", stdin=text).document["refusal"]
    assert first in refusal["reason"]
    assert second in refusal["reason"]
    assert option in [each["option"] for each in refusal["advice"]]
    screen = ask("fit", "--log", "-", stdin=text)
    assert (screen.code, screen.err) == (1, "")
    assert len(screen.out.splitlines()) <= 24
    assert max(map(len, screen.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("my llama-server says Killed process", "STOPPED"),
        ("error loading model: unable to allocate CUDA0 buffer", "DID NOT START"),
        (
            "I run\nCUDA_VISIBLE_DEVICES=1 vllm serve Qwen/Qwen3-8B --host 0.0.0.0\nand it says "
            "`Free memory on device "
            "(0.49/79.32 GiB) on startup is less than desired GPU memory utilization (0.6, 47.59 "
            "GiB)`",
            "DID NOT START",
        ),
        (
            "vllm serve Qwen/Qwen3-8B\nWorld size (4) is larger than the number of available "
            "GPUs (2)",
            "DID NOT START",
        ),
    ],
)
def test_a_message_is_read_from_an_argument_a_file_and_standard_input(
    ask: Ask, tmp_path: Path, text: str, label: str
) -> None:
    file = tmp_path / "pasted"
    file.write_text(text, encoding="utf-8")
    answers = [
        ask("fit", "--log", text),
        ask("fit", "--log", str(file)),
        ask("fit", "--log", "-", stdin=text),
    ]
    assert [answer.code for answer in answers] == [1, 1, 1]
    assert {answer.out.partition(":")[0] for answer in answers} == {label}


def test_a_longer_context_is_computed_for_a_model_and_a_gpu(ask: Ask) -> None:
    """A request of 35,012 tokens: LLaMA-2 has 4,096, and Qwen3 40,960, of 144 KiB each."""
    log = "The decoder prompt (length 35012) is longer than the maximum model length of 8192."
    asked = ("--gpu", "h100", "--log", "-")
    assert "LLaMA-2 7B has at most 4,096 tokens" in " ".join(
        ask("fit", "llama2-7b", *asked, stdin=log).out.split()
    )
    fits = ask("fit", "qwen3-8b", *asked, "--json", stdin=log).document
    assert [change["flag"] for change in fits["suggestions"]] == ["--context 40960"]
    small = ask("fit", "qwen3-8b", "--gpu", "12GB", "--log", "-", stdin=log).out
    assert "needs another change too" in small


def test_several_processes_whose_use_is_hidden_may_be_ranks(ask: Ask) -> None:
    hidden = next(text for text, *_ in PASTED if "Process 3427 has 0 bytes" in text)
    assert (
        "each needs a GPU of its own, by its LOCAL_RANK"
        in ask("fit", "--log", "-", stdin=hidden).out
    )
