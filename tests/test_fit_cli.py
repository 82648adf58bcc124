"""`attncalc fit` on the command line: its screen, its JSON, its exit codes and its errors."""

import re
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, results
from reports import one_per_structure
from tables import each

from attncalc import preset_names
from attncalc.engines import ENGINES
from attncalc.questions.schemas import schema_name
from attncalc.questions.verify.catalogue import CATALOGUE

FOUR = ("fit", "llama2-70b", "--gpu", "h100-80gb", "--gpus", "4")
PROMISED = (Path(__file__).parent / "data/json-names.txt").read_text()
# The figures and the keys of an answer, and the keys of an engine's, as scripts rely on.
NAMES, MORE, LAYER = (
    set(re.findall(f"^fit {path}(\\w+){end}$", PROMISED, re.MULTILINE))
    for path, end in (("results ", r" \[.*\]"), ("", ""), (r"layers\.", ""))
)


def test_the_budget_subtracts_weights_and_reserve(ask: Ask) -> None:
    answer = ask(
        *FOUR, "--engine", "ideal", "--reserve", "2GiB", "--gpu-memory-utilization", "0.9", "--full"
    )
    # an H100 shows 79.10 GiB; x 0.9 = 71.19; 128.48 / 4 = 32.12 of weights and 2 of reserve leave
    # 37.07
    labels = [
        "one NVIDIA H100",
        "x 0.9 gpu-memory-utilization",
        "- weights in fp16",
        "- runtime",
        "= KV memory",
    ]
    numbers = ["79.10 GiB", "71.19 GiB", "32.12 GiB", "2.00 GiB", "37.07 GiB"]
    lines = next(block for block in answer.out.split("\n\n") if "= KV memory" in block).splitlines()
    for line, label, number in zip(lines, labels, numbers, strict=True):
        assert line.strip().startswith(label)
        assert f" {number} " in line
    assert answer.out.startswith(
        "FITS: 118 concurrent requests. 1 request of 4,096 tokens needs 320 MiB on each\n"
    )
    # 37.07 GiB hold 118 sequences of 320 MiB
    assert re.search(r"concurrent requests of 4,096 tokens +118\n", answer.out)
    assert (answer.code, answer.err) == (0, "")


def test_json_names_what_scripts_rely_on(ask: Ask) -> None:
    answer = ask(*FOUR, "--engine", "ideal", "--reserve", "2GiB", "--json")
    document = answer.document
    assert document["schema"] == schema_name("fit")
    assert set(document) == MORE
    figures = results(answer)
    assert (
        figures["usable_memory"] - figures["weights"] - figures["reserve"] == figures["kv_memory"]
    )
    assert figures["reserve"] == 2 * 2**30
    assert figures["max_batch"] == figures["kv_memory"] // figures["kv_bytes_per_sequence"]
    assert figures["min_gpus"] == 2  # 2 x 79.1 - 128.5 - 2 x 2 = 25.7 GiB


WAYS = (
    FOUR,
    (*FOUR, "--engine", "ideal"),
    (*FOUR, "--engine", "all"),
    (*FOUR, "--engine", "llamacpp"),
    (*FOUR, "--batch", "100000"),
    ("fit", "llama2-70b", "--kv-memory", "5.38GiB"),
    ("fit", "llama2-70b", "--kv-memory", "5.38GiB", "--engine", "sglang", "--tp", "4"),
    ("fit", "gpt-oss-20b", "--gpu", "t4", "--weights-dtype", "fp8"),
    ("fit", "t5-base", "--gpu", "t4", "--engine", "transformers"),
)


@pytest.mark.parametrize("command", WAYS, ids=" ".join)
def test_the_shape_of_json_does_not_depend_on_a_flag(ask: Ask, command: tuple[str, ...]) -> None:
    answer = ask(*command, "--json")
    document = answer.document
    assert set(document) == MORE
    assert sorted(result["name"] for result in document["results"]) == sorted(NAMES)
    by_name = results(answer)
    whole = [
        by_name[name] for name in ("kv_blocks", "kv_tokens", "max_context", "max_batch", "min_gpus")
    ]
    assert all(value is None or type(value) is int for value in whole)
    assert by_name["concurrency"] >= 0
    assert document["fits"] == (answer.code == 0)
    assert all(set(layer) == LAYER for layer in document["layers"])


@each("command", WAYS)
def test_every_format_has_the_answer(ask: Ask, command: tuple[str, ...]) -> None:
    verdict = ask(*command, "--json").document["summary"]
    for form, more in (
        ("table", ()),
        ("table", ("--explain",)),
        ("csv", ()),
        ("markdown", ("--explain",)),
    ):
        answer = ask(*command, "--format", form, *more)
        assert answer.code in (0, 1)
        assert answer.err == ""
        # by its name, where it has a formula
        assert ("kv_memory" in answer.out) is (form == "csv" or bool(more))
        assert (verdict in " ".join(answer.out.split())) is (form != "csv")
        assert form != "table" or max(map(len, answer.out.splitlines())) <= 80


def suggestions(document: dict[str, Any]) -> dict[str, Any]:
    return {change["flag"]: change for change in document["suggestions"]}


def test_a_workload_that_does_not_fit_exits_with_1_and_suggestions(ask: Ask) -> None:
    command = (
        "fit",
        "llama2-70b",
        "--engine",
        "ideal",
        "--gpu",
        "h100-80gb",
        "--gpus",
        "2",
        "--batch",
        "40",
    )
    answer = ask(*command, "--json")
    document = answer.document
    # 2 x 79.10 - 128.48 = 29.72 GiB for 40 sequences of 1.25 GiB: 23 fit; 4 GPUs have 187.9
    assert (answer.code, document["fits"]) == (1, False)
    assert suggestions(document)["--batch 23"]["max_batch"] == 23
    assert suggestions(document)["--gpus 4 --tp 4"]["max_batch"] == 150
    for flags in suggestions(document):
        options = dict(zip(flags.split()[::2], flags.split()[1::2], strict=True))
        words = [
            word
            for i, word in enumerate(command)
            if command[max(0, i - 1)] not in options and word not in options
        ]
        assert ask(*words, *flags.split()).code == 0, flags
    assert "DOES NOT FIT: 40 requests of 4,096 tokens need" in ask(*command).out


def test_the_full_screen_ends_with_the_lines_that_the_engine_will_log(ask: Ask) -> None:
    answer = ask(*FOUR, "--reserve", "3GiB", "--full", "--roofline")
    document = ask(*FOUR, "--reserve", "3GiB", "--json").document
    assert len(document["notes"]) > 3
    screen = " ".join(answer.out.split())
    assert screen.endswith("vLLM will log: " + " ".join(" ".join(document["log_lines"]).split()))
    assert " ".join(document["notes"][-1].split()) in screen.partition("vLLM will log:")[0]


def test_vllm_does_not_start_where_not_one_request_fits(ask: Ask) -> None:
    # a block of 16 tokens takes 5 MiB: 4096 tokens need 1.25 GiB
    assert "vLLM will not start" in ask("fit", "llama2-70b", "--kv-memory", "1GiB", "--full").out
    assert "vLLM will log" in ask("fit", "llama2-70b", "--kv-memory", "2GiB", "--full").out


@each(
    ("version", "sizes"),
    [
        ("v0", "larger than the maximum number of tokens that can be stored in KV cache (3264)"),
        ("0.11.0", "(1.25 GiB KV cache is needed"),
        ("0.33.0", "model's max seq len (4096), (1.25 GiB KV cache is needed"),
    ],
)
def test_the_log_of_a_start_without_room_ends_with_vllms_message(
    ask: Ask, version: str, sizes: str
) -> None:
    """It has no size of a cache: the message is read back as the reason."""
    options = ("--kv-memory", "1GiB", "--engine-version", version, "--json")
    (line,) = ask("fit", "llama2-70b", "--context", "4096", *options).document["log_lines"]
    assert sizes in line
    refusal = ask("fit", "--log", "-", "--json", stdin=line).document["refusal"]
    assert refusal["kind"] == "too_small"
    if version != "v0":
        assert (refusal["needed"], refusal["available"]) == (5 * 2**28, 2**30)


def test_kv_memory_is_exact(ask: Ask) -> None:
    answer = ask(
        "fit", "llama2-7b", "--engine", "ideal", "--kv-memory", "5.38GiB", "-c", "1000", "--json"
    )
    # 5.38 GiB = 5,776,731,013 bytes; a token is 32 * 2 * 32 * 128 * 2 = 524,288: 11,018 of them
    assert results(answer)["kv_memory"] == 5_776_731_013
    assert (results(answer)["kv_tokens"], results(answer)["max_context"]) == (11_018, 4096)
    assert results(answer)["max_batch"] == 11
    assert results(answer)["weights"] is None


def test_more_gpus_than_the_model_needs_run_replicas(ask: Ask) -> None:
    command = (
        "fit",
        "llama2-70b",
        "--engine",
        "ideal",
        "--gpu",
        "h100-80gb",
        "--gpus",
        "8",
        "--tp",
        "4",
    )
    answer = ask(*command, "--full")
    assert "2 replicas of 4 GPUs divide the batch: all figures are per replica" in " ".join(
        answer.out.split()
    )
    assert "8 x NVIDIA H100" in answer.out


@each(
    ("batch", "verdict"),
    [
        (
            500,
            "DOES NOT FIT: 500 requests of 4,096 tokens, 125 on each of 4 replicas, need 70.31 "
            "GiB on each GPU,",
        ),
        (
            10,
            "FITS: 452 concurrent requests. 10 requests of 4,096 tokens, at most 3 on each of 4 "
            "replicas, need 1.69",
        ),
        (1, "FITS: 452 concurrent requests. 1 request of 4,096 tokens needs 576 MiB,"),
    ],
)
def test_the_verdict_has_the_batch_and_the_part_of_each_replica(
    ask: Ask, batch: int, verdict: str
) -> None:
    """A token takes 2 x 36 layers x 8 heads x 128 x 2 B = 144 KiB, 4,096 of them 576 MiB; 125
    requests 70.31 GiB.
    """
    command = (
        "fit",
        "qwen3-8b",
        "--gpu",
        "h100",
        "--gpus",
        "4",
        "--tp",
        "1",
        "-c",
        "4K",
        "--engine",
        "ideal",
    )
    answer = ask(*command, "--batch", str(batch))
    assert " ".join(answer.out.split()).startswith(verdict)


def test_the_suggested_batch_is_that_of_all_replicas(ask: Ask) -> None:
    """Suggested is 4 times what a replica holds; a sequence more on one of them no longer fits for
    sure.
    """
    command = ("fit", "qwen3-8b", "--gpu", "h100", "--gpus", "4", "--tp", "1", "-c", "4K", "--json")
    changes = ask(*command, "--batch", "500").document["suggestions"]
    (batch,) = (
        int(change["flag"].split()[1]) for change in changes if change["flag"].startswith("--batch")
    )
    assert batch % 4 == 0
    assert ask(*command, "--batch", str(batch)).document["verdict"] == "fits"
    assert ask(*command, "--batch", str(batch + 1)).document["verdict"] != "fits"


def test_replicas_are_totalled(ask: Ask) -> None:
    command = ("fit", "llama2-70b", "--gpu", "h100-80gb", "--gpus", "12", "--tp", "4")
    answer = ask(*command)
    document = ask(*command, "--json").document
    one = ask(*command[:-4], "--gpus", "4", "--json").document
    figures = {figure["name"]: figure["value"] for figure in one["results"]}
    tokens = figures["kv_tokens"]
    assert one["totals"] == {
        name: figures[name] for name in ("concurrency", "max_batch", "kv_tokens")
    }
    assert document["totals"]["max_batch"] == 3 * figures["max_batch"]
    assert document["totals"]["kv_tokens"] == 3 * tokens
    shown = re.search(r"tokens in the cache +([\d,]+) +([\d,]+)\n", answer.out)
    assert shown
    one_least, least = (int(number.replace(",", "")) for number in shown.groups())
    assert (least, one_least < tokens) == (3 * one_least, True)
    assert ", 3 replicas, tp 4," in " ".join(answer.out.split())


def test_tp_is_the_number_of_gpus_divided_by_the_stages(ask: Ask) -> None:
    document = ask(*FOUR, "--pp", "2", "--json").document
    assert (document["gpus"], document["tp"], document["pp"], document["replicas"]) == (4, 2, 2, 1)


def test_every_engine_has_figures_or_an_error(ask: Ask) -> None:
    layers = ask("fit", "t5-base", "--engine", "all", "--kv-memory", "1GiB", "--json").document[
        "layers"
    ]
    assert [layer["name"] for layer in layers] == list(ENGINES)
    assert all((layer["refused"] is None) == bool(layer["results"]) for layer in layers)
    refused = [layer for layer in layers if layer["refused"]]
    screen = " ".join(ask("fit", "t5-base", "--engine", "all", "--kv-memory", "1GiB").out.split())
    assert refused
    assert all(layer["refused"] in screen for layer in refused)


def test_every_engine_names_its_version(ask: Ask) -> None:
    command = ("fit", "qwen3-8b", "--kv-memory", "8GiB", "--json")
    layers = ask(*command, "--engine", "all").document["layers"]
    versions = {layer["name"]: layer["engine_version"] for layer in layers}
    assert versions["ideal"] is None
    assert versions["sglang"] == "0.5.23"
    assert versions["llamacpp"] == "b11739"
    assert versions["transformers"] == "5.23.0"
    ik = ask(*command, "--engine", "llamacpp", "--engine-version", "ik").document
    assert ik["engine_version"] == ik["layers"][0]["engine_version"] == "ik"


def test_options_have_the_engines_names(ask: Ask) -> None:
    engines = (
        "--tensor-parallel-size",
        "4",
        "--max-model-len",
        "5k",
        "--kv-cache-dtype",
        "fp8",
        "--block-size",
        "32",
    )
    attncalc_names = ("--tp", "4", "-c", "5000", "--kv-dtype", "fp8", "--page-size", "32")
    for command in (
        ("fit", "llama2-70b", "--gpu", "h100"),
        ("fit", "llama2-70b", "--kv-cache-memory-bytes", "9GiB"),
    ):
        assert ask(*command, *engines) == ask(*command, *attncalc_names)


# Presets whose answers, and whose --engine all, the tests of screens have.
CATALOGUED = set(one_per_structure(CATALOGUE))


@each(
    "name",
    [name for name in one_per_structure([*CATALOGUE, *preset_names()]) if name not in CATALOGUED],
)
def test_every_further_structure_of_a_model_has_an_answer_or_one_error(ask: Ask, name: str) -> None:
    answer = ask("fit", name, "--engine", "all", "--gpu", "a100-80gb")
    assert answer.code in (0, 1, 2)
    assert len(answer.err.splitlines()) == (2 if answer.code == 2 else 0)


@each(
    ("arguments", "error"),
    [
        (("--kv-memory", "1GiB", "--gpus", "2"), "--gpus cannot be combined with --kv-memory"),
        (("--gpu", "h1000"), "no GPU named 'h1000'"),
        (("--kv-memory", "lots"), "--kv-memory: 'lots' is not a size"),
        (
            ("--kv-memory", "1GiB", "--reserve", "1GiB"),
            "--reserve cannot be combined with --kv-memory",
        ),
        (
            ("--kv-memory", "1GiB", "--weights-dtype", "fp8"),
            "--weights-dtype cannot be combined with --kv-memory",
        ),
        (("--gpu", "h100", "--tp", "3"), "--tp 3 does not divide 64 query heads"),
        (
            ("--gpu", "h100", "--tp", "8", "--gpus", "4"),
            "--tp 8 with --pp 1 needs 8 GPUs, but --gpus is 4",
        ),
        (
            ("--gpu", "h100", "--tp", "4", "--gpus", "6"),
            "--gpus 6 is not a multiple of --tp 4 times --pp 1",
        ),
        (("--gpu", "h100", "--gpus", "3", "--pp", "2"), "--gpus 3 is not a multiple of --pp 2"),
        (
            ("--gpu", "h100", "--gpu-memory-utilization", "92"),
            "'92' is not a number above 0 and at most 1",
        ),
        (("--gpu", "h100", "--weights-dtype", "fp7"), "there is no dtype 'fp7'"),
        (("--gpu", "h100", "--engine", "vlm"), "there is no engine 'vlm'"),
        (
            ("--gpu", "h100", "--engine", "ideal", "--block-size", "16"),
            "--block-size has no effect on engine ideal",
        ),
        (("--gpu", "h100", "--engine-version", "0.0.1"), "0.0.1"),
        (("--gpu", "h100", "--pp", "81"), "--pp 81 is more than the number of layers (80)"),
        (
            ("--gpu", "h100", "--engine", "sglang", "--swa-full-tokens-ratio", "wide"),
            "'wide' is not a number above 0",
        ),
        (("--gpu", "h100", "--reserve", "-1"), "--reserve: '-1' is not a size"),
    ],
)
def test_an_impossible_request_is_one_error_and_a_tip(
    ask: Ask, arguments: tuple[str, ...], error: str
) -> None:
    said = ask("fit", "llama2-70b", *arguments).error
    assert error in said
    assert len(said.splitlines()) == 2
    assert said.splitlines()[1].startswith("  tip: ")


def test_a_misspelt_gpu_has_a_suggestion(ask: Ask) -> None:
    assert "did you mean 'h100-80gb'" in ask("fit", "gpt2", "--gpu", "h100-80g").err


def test_the_reserve_may_be_0(ask: Ask) -> None:
    assert results(ask(*FOUR, "--reserve", "0", "--json"))["reserve"] == 0


def test_dtype_sets_weights_and_cache(ask: Ask) -> None:
    plain, wide = (results(ask(*FOUR, "--json", *more)) for more in ((), ("--dtype", "fp32")))
    # 70B over 4 GPUs; the allocator rounds tensors of both sizes up, by less than a thousandth
    assert abs(wide["weights"] / plain["weights"] - 2) < 0.001
    assert wide["kv_bytes_per_block"] == 2 * plain["kv_bytes_per_block"]


def test_the_memory_share_has_the_engines_name_for_it(ask: Ask) -> None:
    assert (
        "x 0.9 mem-fraction-static"
        in ask(*FOUR, "--engine", "sglang", "--gpu-memory-utilization", "0.9", "--full").out
    )
    assert (
        "x 0.9 gpu-memory-utilization"
        in ask(*FOUR, "--gpu-memory-utilization", "0.9", "--full").out
    )
    assert "x 0.9 mem-fraction-static" in ask(*FOUR, "--mem-fraction-static", "0.9", "--full").out


def test_bytes_per_sequence_do_not_depend_on_the_batch(ask: Ask) -> None:
    single, several = (results(ask(*FOUR, "--json", "--batch", batch)) for batch in ("1", "7"))
    assert (
        single["kv_bytes_per_sequence"] == several["kv_bytes_per_sequence"] <= single["kv_needed"]
    )
    assert several["kv_needed"] >= 7 * single["kv_bytes_per_sequence"]


def test_it_fits_if_it_fits_with_one_engine(ask: Ask) -> None:
    # Gemma 3's windows are stored whole by SGLang: 128Ki tokens * 62 * 2 * 16 * 128 * 2 B = 62 GiB,
    # not 10.4
    answer = ask("fit", "gemma3-27b", "--engine", "all", "--kv-memory", "40GiB")
    assert "DOES NOT FIT with SGLang" in answer.out
    assert answer.code == 0
    assert ask("fit", "gemma3-27b", "--engine", "all", "--kv-memory", "1GiB").code == 1


def test_vllms_defaults_depend_on_the_gpu(ask: Ask) -> None:
    # a window's blocks grow with the tokens of a step, 16384 of which vLLM takes at once on a B200,
    # 2048 on an L40S
    large, small = (
        results(ask("fit", "gemma3-27b", "--gpu", name, "--weights-dtype", "int4", "--json"))
        for name in ("b200", "l40s")
    )
    assert large["kv_bytes_per_sequence"] > small["kv_bytes_per_sequence"]


def test_dcp_and_speculation_reach_the_engine(ask: Ask) -> None:
    plain = results(ask("fit", "deepseek-v3", "--kv-memory", "40GiB", "--tp", "8", "--json"))
    split = results(
        ask("fit", "deepseek-v3", "--kv-memory", "40GiB", "--tp", "8", "--dcp", "8", "--json")
    )
    assert split["kv_tokens"] > 7 * plain["kv_tokens"]
    drafted = results(
        ask(
            "fit",
            "deepseek-v3",
            "--kv-memory",
            "40GiB",
            "--tp",
            "8",
            "--speculative-layers",
            "1",
            "--json",
        )
    )
    assert drafted["kv_bytes_per_block"] * 61 == plain["kv_bytes_per_block"] * 62


def test_llama_cpp_has_layers_of_its_own_on_each_gpu(ask: Ask) -> None:
    words = (
        "llama2-70b --engine llamacpp --weights-dtype fp16 --gpu rtx-4090 --gpus 8 --batch 2 --full"
    )
    answer = ask("fit", *words.split())
    # 81 over 8 GPUs end at 10.125: 11 of 80, and the output
    assert "- weights in fp16, 11 of 80 layers" in answer.out
    assert "one NVIDIA GeForce RTX 4090" in answer.out
    assert "(  4096 cells,  80 layers,  2/2 seqs)" in answer.out.replace("\n      ", " ")
    assert answer.code == 0
    error = ask("fit", "llama2-70b", "--engine", "llamacpp", "--gpu", "rtx-4090", "--tp", "8").error
    assert "use --gpus only" in error


def test_a_note_names_llama_cpps_cache_dtype(ask: Ask) -> None:
    note = "The cache is in fp16, llama.cpp's default for every model; --kv-dtype bf16"
    command = ("fit", "qwen3-8b", "--engine", "llamacpp", "--kv-memory", "8GiB", "--full")
    assert note in " ".join(ask(*command).out.split())
    in_bf16 = ask(*command, "--kv-dtype", "bf16").out
    assert "K bf16, V bf16" in in_bf16
    assert "llama.cpp's default" not in in_bf16
    assert "cache is in fp16" not in ask("fit", "llama2-70b", *command[2:]).out
    all_engines = " ".join(ask(*command[:2], "--engine", "all", *command[4:]).out.split())
    assert f"llama.cpp: {note}" in all_engines


def test_sglangs_pools_depend_on_the_model(ask: Ask) -> None:
    command = ("--engine", "sglang", "--kv-memory", "40GiB", "--full")
    assert "Use sliding window memory pool" not in ask("fit", "gemma3-27b", *command).out
    assert "Use sliding window memory pool" in ask("fit", "gpt-oss-20b", *command).out


def test_a_batch_beyond_the_engines_maximum_does_not_fit(ask: Ask) -> None:
    answer = ask(
        "fit",
        "qwen3-8b",
        "--engine",
        "llamacpp",
        "--kv-memory",
        "900GiB",
        "--batch",
        "300",
        "-c",
        "256",
    )
    assert "DOES NOT FIT: 300 requests of 256 tokens; llama.cpp runs at most 256." in answer.out
    assert answer.code == 1


@each(
    ("model", "gpu", "options"),
    [
        ("qwen3-8b", "h100", ()),
        ("gemma3-4b", "a10", ()),
        ("gpt-oss-20b", "a100", ("--engine", "sglang")),
    ],
)
def test_ranks_that_hold_the_model_once_each_need_the_gpus_of_replicas(
    model: str, gpu: str, options: tuple[str, ...], ask: Ask
) -> None:
    asked = ("fit", model, "--gpu", gpu, "--tp", "2", "-c", "8192", *options, "--get", "min_gpus")
    assert ask(*asked, "--dp", "4").out == ask(*asked, "--gpus", "8").out


def test_gpus_that_are_enough_if_they_are_split_otherwise_are_named(ask: Ask) -> None:
    """32 GPUs are tp 32, which crosses nodes; as 4 stages of 8 they hold the model."""
    asked = ("fit", "kimi-k3", "--gpu", "h100", "--gpus", "32")
    assert "32 GPUs are enough: --gpus 32 --tp 8 --pp 4." in " ".join(ask(*asked).out.split())
    assert ask(*asked, "--get", "min_gpus").out == "32\n"
    assert ask(*asked, "--tp", "8", "--pp", "4").code == 0


def test_k_and_v_in_one_dtype_are_a_cache_in_it(ask: Ask) -> None:
    asked = ("fit", "qwen3-0.6b", "--gpu", "rtx-4090", "-c", "8192", "--engine", "llamacpp")
    apart = ask(*asked, "-ctk", "fp32", "-ctv", "fp32", "--full").out
    assert apart == ask(*asked, "--kv-dtype", "fp32", "--full").out


def test_the_context_that_a_screen_names_is_the_one_to_type(ask: Ask) -> None:
    """The slots of -np share -c: 33,024 tokens for each of 4 are -c 132096."""
    asked = ("fit", "qwen3-8b", "--gpu", "rtx-4090", "-np", "4")
    first = ask(*asked).out
    assert "--context 132,096, 33,024 for each of 4 slots, is the longest" in " ".join(
        first.split()
    )
    needed = ask(*asked, "--get", "kv_needed").out
    assert needed == ask(*asked, "-c", "132096", "--get", "kv_needed").out
