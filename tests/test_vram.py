"""`attncalc fit` without a GPU: the memory that a model needs, and the GPUs that have it."""

import pytest
from asking import Ask, results
from tables import each

import attncalc
from attncalc.errors import AttncalcError

GIB = 2**30
STEP = 64 * 2**20
MODEL = "llama3.1-8b"


def test_weights_cache_and_runtime_add_up(ask: Ask) -> None:
    found = results(ask("fit", MODEL, "-b", "4", "--json"))
    # 8,030,261,248 parameters of 2 bytes, and vLLM's table of 131,072 positions of 128 rotary
    # elements
    assert found["weights"] == 8_030_261_248 * 2 + 131_072 * 128 * 2
    # 4 requests of 512 blocks and one block never used, of 16 tokens, in 32 layers: K and V of 8
    # heads of 128 elements
    assert found["kv_needed"] == (4 * 512 + 1) * 16 * 32 * 2 * 8 * 128 * 2
    for needed, reserve in (
        ("needed_low", "reserve_low"),
        ("needed", "reserve"),
        ("needed_high", "reserve_high"),
    ):
        assert found[needed] == found["weights"] + found["kv_needed"] + found[reserve]


def test_the_first_line_says_what_is_needed(ask: Ask) -> None:
    answer = ask("fit", MODEL)
    found = results(ask("fit", MODEL, "--json"))
    low, high = (f"{found[name] / GIB:.1f}" for name in ("needed_low", "needed_high"))
    assert answer.out.startswith(
        f"NEEDS {low} to {high} GiB: weights 15.0 GiB, KV cache 1.0 GiB, runtime "
    )
    assert (answer.code, answer.err) == (0, "")


@each(
    "options",
    [
        ("--engine", "vllm"),
        ("--engine", "sglang"),
        ("--weights-dtype", "q8_0"),
        ("-b", "16", "--kv-dtype", "fp8"),
        ("--tp", "2"),
    ],
)
def test_the_smallest_gpu_is_sure_to_hold_it_and_a_smaller_one_is_not(
    ask: Ask, options: tuple[str, ...]
) -> None:
    memory = results(ask("fit", MODEL, *options, "--json"))["gpu_memory"]
    for size, verdict in ((memory, "fits"), (memory - STEP, "may_not_fit")):
        on_it = ask("fit", MODEL, *options, "-c", "8192", "--gpu", f"{size >> 20}MiB", "--json")
        assert on_it.document["verdict"] == verdict


def test_the_fewest_gpus_of_a_kind_hold_each_context(ask: Ask) -> None:
    kinds = ask("fit", MODEL, "--json").document["layers"]
    # the smallest of which one is always enough
    assert [kind["gpu"] for kind in kinds][-1] == "rtx-6000-ada"
    for kind in kinds:
        for at in kind["fewest_gpus"]:
            number = at["gpus"] or 16  # more than 8 are not tried
            asked = (
                "fit",
                MODEL,
                "-c",
                str(at["context"]),
                "--gpu",
                kind["gpu"],
                "--engine",
                "vllm",
                "--json",
            )
            assert (
                at["gpus"] is None
                or ask(*asked, "--gpus", str(number)).document["verdict"] == "fits"
            )
            if number > 1:
                assert ask(*asked, "--gpus", str(number // 2)).document["verdict"] != "fits"


def test_contexts_are_the_asked_one_32k_and_the_models_own(ask: Ask) -> None:
    assert [at["context"] for at in ask("fit", MODEL, "--json").document["contexts"]] == [
        8192,
        32768,
        131072,
    ]
    assert [at["context"] for at in ask("fit", "gpt2", "--json").document["contexts"]] == [1024]
    users = ask("fit", MODEL, "--prompt", "4K", "--output-len", "1K", "--json").document
    assert users["contexts"][0]["context"] == 4096 + 1024


def test_the_largest_type_of_gguf_files_of_each_memory_fits_and_a_larger_one_does_not(
    ask: Ask,
) -> None:
    quants = {
        quant["gpu_gb"]: quant["weights_dtype"]
        for quant in ask("fit", MODEL, "--json").document["quants"]
    }
    assert quants == {8: "q6_k", 12: "q8_0", 16: "q8_0", 24: "q8_0"}
    for dtype, fits in (("q6_k", True), ("q8_0", False)):
        answer = ask(
            "fit", MODEL, "--weights-dtype", dtype, "-c", "8192", "--gpu", "rtx-4060", "--json"
        )
        assert (answer.document["verdict"] == "fits") is fits


def test_quants_lists_the_longest_context_of_each_type(ask: Ask) -> None:
    found = ask("fit", MODEL, "--quants", "--json").document["quant_contexts"]
    longest = {(one["weights_dtype"], one["gpu_gb"]): one["context"] for one in found}
    assert (len(longest), longest["q8_0", 8]) == (6 * 4, None)
    for quant, gb, name in (("q6_k", 8, "rtx-4060"), ("q4_k_m", 12, "rtx-4070")):
        asked = ("fit", MODEL, "--weights-dtype", quant, "--gpu", name, "--json")
        # cells come in 256
        for context, fits in ((longest[quant, gb], True), (longest[quant, gb] + 256, False)):
            assert (ask(*asked, "-c", str(context)).document["verdict"] == "fits") is fits


@each("options", [("--weights-dtype", "fp8"), ("--engine", "sglang"), ("--max-num-seqs", "64")])
def test_types_of_gguf_files_are_not_shown_where_weights_or_engine_are_chosen(
    ask: Ask, options: tuple[str, ...]
) -> None:
    assert ask("fit", MODEL, *options, "--json").document["quants"] == []


@each(
    "model",
    [
        MODEL,
        "deepseek-v3",
        "kimi-k2",
        "gemma3-27b",
        "whisper-large-v3",
        "nemotron-h-56b",
        "qwen3.6-27b",
    ],
)
def test_it_fits_a_terminal_of_24_rows(ask: Ask, model: str) -> None:
    lines = ask("fit", model).out.splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80


def test_gpu_all_has_the_answer_of_each_gpu(ask: Ask) -> None:
    asked = ("fit", MODEL, "-c", "32K", "--dtype", "fp16", "--json")
    rows = {row["gpu"]: row["verdict"] for row in ask(*asked, "--gpu", "all").document["layers"]}
    assert len(rows) == len(attncalc.gpu_names())
    for name in ("rtx-4060", "rtx-4090", "h100-80gb", "m2-24gb"):
        alone = ask(*asked, "--gpu", name).document
        assert rows[name] == alone["verdict"]


def test_gpus_that_cannot_run_it_are_counted_with_the_reason(ask: Ask) -> None:
    answer = ask("fit", MODEL, "--gpu", "all", "--gpus", "6")
    # llama.cpp divides the layers
    others = sum(not attncalc.gpu(name).runs_files for name in attncalc.gpu_names())
    reason = "cannot run it: --gpus 6: --tp 6 does not divide 32 query heads."
    assert f"{others} further GPUs {reason}" in " ".join(answer.out.split())


def test_ollamas_own_context_is_kept_and_said(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_CONTEXT_LENGTH", "16384")
    answer = " ".join(ask("fit", "llama3.1:8b").out.split())
    assert "1 request of 16,384 tokens" in answer
    assert "--context 16384 --weights-dtype q4_k_m: as Ollama runs" in answer


def test_all_gpus_are_asked_whether_they_hold_all_layers(ask: Ask) -> None:
    """Ollama runs a 70B on one of them with layers on the host."""
    assert ask("fit", "llama3.3:70b", "--gpu", "rtx-4090").out.startswith(
        "RUNS PARTLY ON THE CPU: 35 of 80 layers"
    )
    rows = ask("fit", "llama3.3:70b", "--gpu", "all", "--full").out.splitlines()
    assert next(row for row in rows if row.startswith("  rtx-4090 ")).endswith("does not fit")


def test_only_gpu_all_can_be_refused(ask: Ask) -> None:
    assert ask("fit", "llama3.1-405b").code == 0
    answer = ask("fit", "llama3.1-405b", "--gpu", "all", "--engine", "vllm")
    assert (answer.code, answer.out.split(":")[0]) == (1, "DOES NOT FIT")
    assert ask("fit", "llama3.1-405b", "--gpu", "all", "--gpus", "8").code == 0


@each(
    ("options", "error", "tip"),
    [
        (("-c", "auto"), "-c auto needs --gpu", "as --gpu rtx-4090; or a context, as -c 8K"),
        (("--engine", "all"), "--engine all needs one GPU", "as --gpu h100-80gb"),
        (("--roofline",), "--roofline needs --gpu", "FLOP/s and bandwidth"),
        (("--plot",), "--gpu", "draws"),
        (("-ngl", "20"), "-ngl needs --gpu", "give the GPU, as --gpu rtx-4090"),
        (("-b", "5000"), "vLLM runs at most 1,024 concurrent requests", "give -b 1024 or fewer"),
        (("-c", "200K"), "vLLM does not start: context 204,800 is beyond", "use -c 131072 or less"),
    ],
)
def test_what_needs_a_gpu_or_cannot_run_is_an_error(
    ask: Ask, options: tuple[str, ...], error: str, tip: str
) -> None:
    said = ask("fit", MODEL, *options).error
    assert error in said
    assert tip in said


def test_all_layers_on_a_gpu_need_no_gpu(ask: Ask) -> None:
    """Llama 3.1 8B has 32 layers, and the output layer counts as one: -ngl 33 and 99 divide
    nothing.
    """
    whole, *others = (
        ask("fit", MODEL, "--engine", "llamacpp", *more).out
        for more in ((), ("-ngl", "33"), ("-ngl", "99"))
    )
    assert others == [whole, whole]


def test_explain_shows_the_sum(ask: Ask) -> None:
    assert "weights + kv_needed + reserve" in " ".join(ask("fit", MODEL, "--explain").out.split())


def test_python_has_the_same_figures(ask: Ask) -> None:
    found = attncalc.vram(MODEL, context="16K", batch=2)
    figures = results(ask("fit", MODEL, "-c", "16K", "-b", "2", "--json"))
    assert found.to_dict() == figures
    assert (found.low, found.expected, found.high) == tuple(
        figures[f"needed{end}"] for end in ("_low", "", "_high")
    )
    with pytest.raises(AttncalcError, match="vram has no gpu"):
        attncalc.vram(MODEL, gpu="h100")


def test_the_memory_that_is_needed_has_a_shared_prefix_once(ask: Ask) -> None:
    """200 requests of 8,024 tokens are 502 blocks of 16 each, of which 375 have 6,000 shared
    tokens.
    """
    words = ("fit", "llama3.1-8b", "-b", "200", "--prompt", "7000", "--output-len", "1K", "--json")
    block = 16 * 128 * 1024  # 32 layers * 8 KV heads * 2 * 128 * 2 bytes of a token are 128 KiB
    needed = [
        ask(*words, *more).document["values"]["kv_needed"]
        for more in ((), ("--shared-prefix", "6000"))
    ]
    assert needed == [(200 * 502 + 1) * block, (200 * 502 - 199 * 375 + 1) * block]


def test_a_prefix_that_is_not_shared_is_named(ask: Ask) -> None:
    words = (
        "fit",
        "llama3.1-8b",
        "-b",
        "200",
        "--prompt",
        "7000",
        "--output-len",
        "1K",
        "--no-enable-prefix-caching",
    )
    note = "Prefix caching is off: vLLM stores the shared prefix once per request."
    assert note in " ".join(ask(*words, "--shared-prefix", "6000").out.split())
    assert note not in " ".join(ask(*words).out.split())
