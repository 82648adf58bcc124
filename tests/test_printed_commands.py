"""A printed launch command is the question that was asked, and a row of a plan or a sweep is what
`fit` answers.

`python tools/fuzz.py --printed --count 100000` asks as many as there is time for.
"""

from random import Random

import pytest
from asking import Ask
from fuzz.printed_commands import Question, check_fit, check_number, check_row, question, words_of

# The first 600 questions of a fixed sequence: each option of `OPTIONS` is among them. With those of
# test_same_model.py, 1,000 questions are asked in two ways.
NUMBERS = 600
# Later ones with an option that none of these has: --skip-mm-profiling, -ctk,
# --enable-hierarchical-cache, --attention-backend, and VLLM_FUSED_MOE_CHUNK_SIZE.
LATER = (649, 665, 759, 781, 1168)


@pytest.mark.parametrize("first", range(0, NUMBERS, 100))
def test_a_printed_command_a_plan_and_a_sweep_have_the_answer_of_fit(first: int) -> None:
    answered = [check_number("ci", number) for number in range(first, first + 100)]
    assert sum(answered) > 50  # the others are errors


def test_a_rare_option_is_printed_as_it_is_asked() -> None:
    assert all(check_number("ci", number) for number in LATER)


@pytest.mark.parametrize(
    "asked",
    [
        # slots of -np are requests, whose part of -c each has: 5 fit, and 64 are printed
        Question("llama3.2-3b", {"engine": "llamacpp", "gpu": "h100", "batch": 64}),
        Question("llama3.1-405b", {"engine": "llamacpp", "gpu": "h100", "context": "16K"}),
        # --ep-size 1 divides nothing
        Question(
            "glm-5",
            {
                "engine": "sglang",
                "gpu": "rtx-4090",
                "enable_expert_parallel": True,
                "context": 32768,
            },
        ),
        # a type of GGUF files that a model was not released in
        Question(
            "qwen2.5-3b", {"engine": "llamacpp", "gpu": "l4", "weights_dtype": "mxfp4", "batch": 2}
        ),
        # the blocks of a release in FP8 stay blocks if the dtype is named
        Question(
            "minimax-m2.5", {"engine": "vllm", "gpu": "h200", "weights_dtype": "fp8", "tp": 8}
        ),
        # weights in bf16 of models that were released in fewer bits
        Question(
            "deepseek-v3",
            {"engine": "vllm", "gpu": "h200", "weights_dtype": "bf16", "context": 1000},
        ),
        Question(
            "deepseek-v3.2",
            {"engine": "llamacpp", "gpu": "l4", "weights_dtype": "bf16", "context": 4096},
        ),
        Question("gpt-oss-120b", {"engine": "llamacpp", "gpu": "h100", "weights_dtype": "bf16"}),
        # a file of llama.cpp is in one dtype: its embedding too
        Question("mistral-7b-v0.1", {"engine": "llamacpp", "gpu": "a10", "dtype": "fp32"}),
        # --dtype does not change a file
        Question("qwen3-8b", {"gpu": "rtx-3060", "weights_dtype": "q4_k_m", "dtype": "fp16"}),
        Question("qwen3-8b", {"engine": "sglang", "gpu": "h100", "kv_dtype": "fp4"}),
        Question("qwen3-8b", {"engine": "lmstudio", "gpu": "rtx-4090", "context": 4096}),
        # no command says how many layers an unknown drafter has
        Question("gemma2-9b", {"engine": "vllm", "gpu": "mi300x", "speculative_layers": 2}),
        Question("deepseek-v4-pro", {"engine": "sglang", "gpu": "h200", "speculative_layers": 3}),
        # a checkpoint whose FP8 blocks --tp 8 cuts
        Question(
            "qwen3-235b-a22b", {"engine": "sglang", "gpu": "l40s", "weights_dtype": "fp8", "tp": 8}
        ),
        # the cache on the host is an option of its own, before its size
        Question("llama3.1-8b", {"engine": "sglang", "gpu": "gb200", "pp": 1, "hicache_ratio": 1}),
        # llama-server has no option for rows of logits, and drafts nothing without a drafter
        Question(
            "qwen3-4b", {"engine": "llamacpp", "gpu": "rtx-4060-laptop", "n_outputs_max": 512}
        ),
        Question("qwen3.5-9b", {"engine": "llamacpp", "gpu": "rtx-5090", "speculative_tokens": 2}),
        # that the caches of compilers are there is no option of vLLM
        Question("llama2-7b", {"gpu": "t4", "pp": 2, "warm_start": True, "context": 8192}),
    ],
)
def test_a_command_that_once_had_another_answer_has_the_same(asked: Question) -> None:
    assert check_fit(asked)


@pytest.mark.parametrize(
    "asked",
    [
        # a host whose memory is known has the layers that the card has no room for
        Question(
            "qwen3-32b",
            {
                "engine": "llamacpp",
                "gpu": "rtx-3060",
                "flash_attn": "off",
                "ram": "128GiB",
                "context": 4096,
                "weights_dtype": "q8_0",
            },
        ),
        Question("qwen3-32b", {"gpu": "rtx-3060", "ram": "32GiB", "context": 8192, "batch": 1}),
        Question("qwen3-32b", {"gpu": "rtx-3060", "ram": "64GiB", "context": 8192, "batch": 4}),
        Question("qwen3-32b", {"gpu": "rtx-3060", "n_gpu_layers": "auto", "context": 8192}),
    ],
)
def test_a_row_of_a_sweep_has_the_layers_on_the_host_that_fit_has(asked: Question) -> None:
    assert check_row(asked)


def test_the_words_of_a_question_are_its_options(ask: Ask) -> None:
    words = [*words_of({"tp": 2, "prefix_caching": False, "enforce_eager": True})]
    assert words == ["--tp", "2", "--no-prefix-caching", "--enforce-eager"]
    assert (
        ask(*Question("qwen3-8b", {"gpu": "h100", "tp": 2, "prefix_caching": False}).arguments).code
        == 0
    )


def test_a_number_is_always_the_same_question() -> None:
    assert question(Random("x/1")) == question(Random("x/1"))
    assert len({str(question(Random(f"x/{i}"))) for i in range(50)}) == 50
