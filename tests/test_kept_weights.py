"""What a quantized checkpoint leaves in 16 bits: --keep, --weights-size, and the usual checkpoint of
a model.
"""

import shlex
from typing import Any

import pytest
from asking import Ask
from tables import each

from attncalc import FitRequest, ModelSpec, Workload, fit, load, sweep
from attncalc.config.gpus import gpu
from attncalc.cost.params import params
from attncalc.engines.multi_token import prediction_layers
from attncalc.serving.request import resolve
from attncalc.serving.weights import weights

# Bytes of a weight in 16 bits, less those in int4 with 16 bits of scale per 128.
MORE = 2 - (4 + 16 / 128) / 8


def weights_of(model: str | ModelSpec, **options: Any) -> int:
    """Return the bytes of the weights on one device, without what vLLM holds beside them."""
    given = {"gpu": "h200", "context": 8192, "engine": "vllm", **options}
    of = fit(model, **given).resolved
    return int(weights(of.model, weights_dtype=of.weights_dtype, draft=of.draft).total)


@each("name", ["llama3.1-8b", "qwen3.6-27b", "qwen3-30b-a3b", "gemma4-26b-a4b", "deepseek-v2-lite"])
@each("dtype", ["int4", "fp8", "int8", "nvfp4", "mxfp4"])
def test_keeping_nothing_is_the_dtype_of_all_matrices(name: str, dtype: str) -> None:
    model = load(name)
    request = FitRequest(model, Workload.decode(1, 64), gpu=gpu("h200"), weights_dtype=dtype)
    resolved = resolve(request)
    kept = resolve(
        FitRequest(model, Workload.decode(1, 64), gpu=gpu("h200"), weights_dtype=dtype, keep=())
    )
    sizes = [
        int(weights(of.model, weights_dtype=of.weights_dtype).total) for of in (resolved, kept)
    ]
    assert sizes[0] == sizes[1]


def test_kept_attention_is_in_16_bits() -> None:
    # q and o have 4096 * 4096 weights, k and v 4096 * 1024, in each of 32 layers
    attention = 32 * 2 * (4096 * 4096 + 4096 * 1024)
    options = {"weights_dtype": "int4"}
    assert (
        weights_of("llama3.1-8b", keep="attention", **options)
        - weights_of("llama3.1-8b", keep="none", **options)
        == attention * MORE
    )


def test_parts_are_kept_alone_and_together() -> None:
    sizes = {
        keep: weights_of("qwen3.6-35b-a3b", weights_dtype="int4", keep=keep)
        for keep in ("none", "attention", "linear-attention", "shared-experts",
                     "attention,linear-attention,shared-experts")
    }  # fmt: skip
    *parts, together = list(sizes.values())[1:]
    assert sum(size - sizes["none"] for size in parts) == together - sizes["none"]
    # 3 matrices of 2048 * 512 in each of 40 layers
    assert sizes["shared-experts"] - sizes["none"] == 40 * 3 * 2048 * 512 * MORE


def test_kept_parts_have_no_range_of_their_own() -> None:
    request = {"weights_dtype": "int4", "gpu": "h200", "context": 8192}
    parts = {
        keep: [part.name for part in fit("qwen3-next-80b-a3b", keep=keep, **request)  # type: ignore[arg-type]
               .budget.reserve.runtime.parts]  # type: ignore[union-attr]
        for keep in (None, "none", "attention")
    }  # fmt: skip
    assert "unquantized_weights" in parts[None]
    assert "unquantized_weights" not in parts["none"] + parts["attention"]


@each(("words", "message", "tip"), [
    ("llama3.1-8b --keep attention", "--keep needs --weights-dtype", "--weights-dtype int4"),
    ("llama3.1-8b --weights-dtype bf16 --keep none", "--keep has no effect on weights in bf16", ""),
    ("llama3.1-8b --weights-dtype int4 --keep shared-experts",
     "--keep shared-experts: Llama 3.1 8B has no shared experts", "give none, or of attention, mlp"),
    ("llama3.1-8b --weights-dtype int4 --keep attention,mlp",
     "--keep attention,mlp leaves nothing in int4", "leave --weights-dtype out"),
    ("llama3.1-8b --weights-dtype int4 --keep head", "--keep cannot be 'head'", "known: attention"),
    ("llama3.1-8b --weights-dtype int4 --keep none,mlp",
     "--keep none cannot be combined with a part", "leave one of them out"),
    ("llama3.1-8b --weights-dtype int4 --keep mlp --weights-size 6GB",
     "--keep cannot be combined with --weights-size", "give one of them"),
    ("llama3.1-8b --weights-dtype q4_k_m --keep mlp --engine llamacpp",
     "--keep has no effect on llama.cpp", "--engine vllm"),
    ("llama3.1-8b --weights-size 6GB --engine llamacpp",
     "--weights-size has no effect on llama.cpp", "name the .gguf file"),
    ("gpt-oss-20b --weights-dtype mxfp4 --keep attention --engine vllm",
     "--keep: the release of gpt-oss 20B says what is in mxfp4", "another --weights-dtype"),
    ("llama3.1-8b --weights-size 6GB",
     "--weights-size 5.59 GiB: Llama 3.1 8B in bf16 takes 14.96 GiB", "int4"),
    ("llama3.1-8b --weights-dtype int4 --weights-size 1GB",
     "--weights-size 953.67 MiB: Llama 3.1 8B in int4 takes 3.74 GiB to 14.96 GiB", "all files"),
    ("llama3.1-8b --weights-dtype int4 --weights-size 600GB", "takes 3.74 GiB to 14.96 GiB", ""),
])  # fmt: skip
def test_what_contradicts_is_an_error(ask: Ask, words: str, message: str, tip: str) -> None:
    answer = ask("fit", *words.split(), "--gpu", "h100")
    assert answer.code == 2
    error, _, after = answer.err.partition("tip:")
    assert message in " ".join(error.split())
    assert "14.96 GiB to 14.96 GiB" not in error
    assert tip in " ".join(after.split())


@each(("words", "option"), [
    ("--weights-dtype int4 --keep none", "--weights-dtype"), ("--weights-size 16GB", "--weights-size"),
])  # fmt: skip
def test_a_memory_for_the_cache_alone_has_no_weights(ask: Ask, words: str, option: str) -> None:
    answer = ask("fit", "llama3.1-8b", "--kv-memory", "10GiB", "--engine", "vllm", *words.split())
    assert answer.code == 2
    assert f"{option} cannot be combined with --kv-memory" in answer.err


# The size of the files


def test_weights_are_as_large_as_the_files() -> None:
    # llama3.1-8b in AWQ has 5.73 GB
    options = {"weights_dtype": "int4", "weights_size": 5_730_000_000}
    assert weights_of("llama3.1-8b", **options) == 5_730_000_000
    # on two devices each has half of all but the norms: 65 * 4096 of 8,030,261,248 parameters
    norms = 65 * 4096
    share = (8_030_261_248 + norms) / 2 / 8_030_261_248
    assert weights_of("llama3.1-8b", gpus=2, **options) == pytest.approx(
        5_730_000_000 * share, abs=1
    )


def test_files_without_a_dtype_are_in_that_of_the_release() -> None:
    assert weights_of("llama3.1-8b", weights_size=16_060_522_496) == 16_060_522_496
    assert weights_of("deepseek-v3", gpu="b300", gpus=8, weights_size="689GB") > 80 * 10**9


def test_layers_for_prediction_in_the_files_count_with_a_drafter_only() -> None:
    model = load("qwen3.6-27b")
    layers = prediction_layers(model, 1)
    assert layers is not None
    predicting = 2 * int(params(layers).total)
    options = {"weights_dtype": "int4", "weights_size": "20.5GB"}
    alone = weights_of(model, **options)
    assert alone == 20_500_000_000 - predicting
    assert weights_of(
        model, speculative_layers=1, speculative_tokens=2, **options
    ) == pytest.approx(20_500_000_000, rel=1e-3)
    # files may lack them
    budget = fit(model, gpu="h200", context=8192, engine="vllm", **options).budget  # type: ignore[arg-type]
    assert budget.reserve is not None
    (part,) = [one for one in budget.reserve.runtime.parts if one.name == "no_prediction_layers"]
    assert (part.low, part.high) == (0, predicting)


def test_text_only_leaves_the_towers_of_the_files_out() -> None:
    options = {"weights_dtype": "int4", "weights_size": "20.5GB"}
    towers = sum(tower.params for tower in load("qwen3.6-27b").towers)
    assert (
        weights_of("qwen3.6-27b", **options)
        - weights_of("qwen3.6-27b", language_model_only=True, **options)
        == 2 * towers
    )


def test_the_size_of_files_chooses_an_engine_that_loads_them(ask: Ask) -> None:
    """A desktop's card has llama.cpp by default, whose files have a type."""
    words = ["qwen3-14b", "--gpu", "rtx-5090", "-c", "8K"]
    assert "llama.cpp" in ask("fit", *words).out
    answer = ask("fit", *words, "--weights-size", "29.5GB")
    assert "--engine vllm is chosen: llama.cpp has no --weights-size." in " ".join(
        answer.out.split()
    )


def test_files_of_a_size_are_not_replaced_by_narrower_ones(ask: Ask) -> None:
    words = ["qwen3-32b", "--weights-dtype", "fp8", "--gpu", "a100-40gb", "-c", "32K", "--json"]
    flags = {
        size: [row["flag"] for row in ask("fit", *words, *size.split()).document["suggestions"]]
        for size in ("", "--weights-size 34GB")
    }
    assert "--weights-dtype int4" in flags[""]
    assert not any("--weights-dtype" in flag for flag in flags["--weights-size 34GB"])


# The usual checkpoint


def test_a_dtype_is_that_of_the_usual_checkpoint_and_says_so(ask: Ask) -> None:
    words = ["qwen3.6-27b", "--weights-dtype", "int4", "--gpu", "l40s", "-c", "32K"]
    text = " ".join(ask("fit", *words).out.split())
    assert (
        "--weights-dtype int4 is as in cyankiwi/Qwen3.6-27B-AWQ-INT4: attention in int4. --keep or "
        "--weights-size sets others." in text
    )
    # that with attention in 16 bits is QuantTrio's
    assert "warning: weights of other checkpoints in int4 take up to" in text
    assert weights_of("qwen3.6-27b", weights_dtype="int4") == weights_of(
        "cyankiwi/Qwen3.6-27B-AWQ-INT4"
    )


def test_the_cache_is_as_the_usual_checkpoint_asks() -> None:
    given = {"weights_dtype": "nvfp4", "gpu": "rtx-5090", "context": 8192, "max_num_seqs": 16}
    assert fit("qwen3.6-27b", **given).resolved.args.kv_dtype.name == "fp8"  # type: ignore[arg-type]


def test_other_checkpoints_are_the_range() -> None:
    given = {"weights_dtype": "int4", "gpu": "h200", "context": 8192}
    reserve = fit("qwen3.6-27b", **given).budget.reserve  # type: ignore[arg-type]
    assert reserve is not None
    (part,) = [one for one in reserve.runtime.parts if one.name == "unquantized_weights"]
    usual = weights_of("cyankiwi/Qwen3.6-27B-AWQ-INT4")
    smallest = weights_of("RedHatAI/Qwen3.8-27B-INT4")
    largest = weights_of("QuantTrio/Qwen3.6-27B-AWQ")
    assert (part.low, part.high) == (smallest - usual, largest - usual)


def test_a_dense_model_of_which_all_checkpoints_are_alike_has_no_note(ask: Ask) -> None:
    text = ask("fit", "qwen3-32b", "--weights-dtype", "int4", "--gpu", "l40s", "-c", "8K").out
    assert "is as in" not in text
    assert "other checkpoints" not in text


@each("words", [
    "--keep attention", "--weights-size 19GB", "--served-model QuantTrio/Qwen3.6-27B-AWQ",
])  # fmt: skip
def test_what_is_told_replaces_the_usual_checkpoint(ask: Ask, words: str) -> None:
    given = ["qwen3.6-27b", "--weights-dtype", "int4", "--gpu", "l40s", "-c", "32K"]
    text = " ".join(ask("fit", *given, *words.split()).out.split())
    assert "cyankiwi/Qwen3.6-27B-AWQ-INT4:" not in text


@each("words", ["--keep linear-attention", "--weights-size 25GB"])
def test_no_known_checkpoint_stands_for_what_is_told(ask: Ask, words: str) -> None:
    given = ["qwen3.6-27b", "--weights-dtype", "int4", "--gpu", "l40s", "-c", "32K", *words.split()]
    assert ask("fit", *given, "--json").document["launch_command"] is None
    named = ask("fit", *given, "--served-model", "my/Qwen3.6-27B-AWQ", "--json").document
    assert named["launch_command"].startswith("vllm serve my/Qwen3.6-27B-AWQ ")


@each("repository", ["cyankiwi/Qwen3.6-27B-AWQ-INT4", "nvidia/Qwen3.6-27B-NVFP4"])
def test_a_name_and_the_dtype_of_that_checkpoint_have_the_same_figures(
    ask: Ask, repository: str
) -> None:
    dtype = "nvfp4" if "NVFP4" in repository else "int4"
    words = ["--gpu", "h100", "-c", "32K", "--engine", "vllm", "--json", "--reserve", "5GiB"]
    typed = ask("fit", "qwen3.6-27b", "--weights-dtype", dtype, *words).document
    named = ask("fit", repository, *words).document
    assert typed["results"] == named["results"]
    back = ask("fit", *words[:4], *words[6:], "--", *shlex.split(typed["launch_command"])).document
    assert back["launch_command"] == typed["launch_command"]


def test_files_and_their_config_have_the_same_kernels() -> None:
    """Headers show packed matrices as int32: the config says of which dtype they are."""
    options = {"gpu": "rtx-4090", "context": 8192, "engine": "vllm", "weights_dtype": "int4"}
    computed = fit("llama3.1-8b", keep="none", **options)  # type: ignore[arg-type]
    size = weights_of("llama3.1-8b", keep="none", **options)
    given = fit("llama3.1-8b", weights_size=size, **options)  # type: ignore[arg-type]
    assert given.budget.kv_memory_low == computed.budget.kv_memory_low
    assert given.budget.room() == computed.budget.room()


def test_a_sweep_has_the_figures_of_fit() -> None:
    """A row of a built-in model is its usual checkpoint; one of a changed model is no checkpoint."""
    columns = ["weights", "kv_memory_low", "kv_memory_high"]
    options = {"gpu": "l40s", "context": 8192, "engine": "vllm", "weights_dtype": "int4"}
    for model, more in (("qwen3.6-27b", {}), ("qwen3.6-27b", {"keep": "attention"}),
                        ("qwen3.6-27b", {"layers": 32})):  # fmt: skip
        (row,) = sweep(model, columns=columns, **options, **more)
        answer = fit(model, **options, **more)  # type: ignore[arg-type]
        assert [row[name] for name in columns] == [answer.to_dict()[name] for name in columns]
