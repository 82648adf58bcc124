"""Quantized checkpoints that are known by their name: checkpoints.txt against the files of releases,
and what a name that was not read is taken for.
"""

from pathlib import Path

import pytest
from asking import Ask
from tables import each

from attncalc import fit, load
from attncalc.config.checkpoints import SCHEMES, Checkpoint, by_habit, checkpoints, of_checkpoint
from attncalc.cost.params import params
from attncalc.engines.multi_token import prediction_layers
from attncalc.model import ModelSpec
from attncalc.serving.weights import weights
from attncalc.units import parse_bytes

DATA = Path(__file__).parent / "data"
NAMED = [one for one in checkpoints() if not one.is_habit]
KNOWN = [one for one in NAMED if one.exceptions is not None]


def size_of(model: ModelSpec) -> int:
    return int(weights(model, weights_dtype=model.weights_dtype or model.experts_dtype).total)


def test_every_line_has_a_known_scheme_and_stands_once() -> None:
    names = [one.name.lower() for one in checkpoints()]
    assert len(names) == len(set(names))
    for one in checkpoints():
        others = {scheme for scheme in (one.exceptions or {}).values() if scheme}
        assert {one.scheme, *others} <= set(SCHEMES), one.name


@each(("name", "file"), [
    ("Qwen/Qwen2.5-32B-Instruct-AWQ", "startups/models/qwen2.5-32b-awq.json"),
    ("Qwen/Qwen3-8B-AWQ", "startups/models/qwen3-8b-awq.json"),
    ("Qwen/Qwen3-14B-AWQ", "startups/models/qwen3-14b-awq.json"),
    ("Qwen/Qwen3-32B-AWQ", "startups/models/qwen3-32b-awq.json"),
    ("Qwen/Qwen3.5-122B-A10B-GPTQ-Int4", "startups/models/qwen3.5-122b-a10b-gptq.json"),
    ("RedHatAI/Qwen3.6-35B-A3B-NVFP4", "startups/models/qwen3.6-35b-a3b-nvfp4.json"),
    ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "startups/models/llama-3.1-8b-awq.json"),
    ("nvidia/GLM-5.2-NVFP4", "startups/models/glm-5.2-nvfp4.json"),
    ("nvidia/Gemma-4-26B-A4B-NVFP4", "quantized/nvidia__Gemma-4-26B-A4B-NVFP4.json"),
    ("nvidia/Gemma-4-31B-IT-NVFP4", "startups/models/gemma-4-31b-nvfp4.json"),
    ("nvidia/Kimi-K2-Thinking-NVFP4", "startups/models/kimi-k2-thinking-nvfp4.json"),
    ("nvidia/Qwen3.6-27B-NVFP4", "startups/models/nvidia--qwen3.6-27b-nvfp4.json"),
    ("nvidia/Qwen3.6-35B-A3B-NVFP4", "quantized/nvidia__Qwen3.6-35B-A3B-NVFP4.json"),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic",
     "startups/models/redhatai--llama-3.3-70b-instruct-fp8-dynamic.json"),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8",
     "startups/models/redhatai--meta-llama-3.1-8b-instruct-quantized.w8a8.json"),
])  # fmt: skip
def test_a_line_is_as_large_as_the_config_of_the_checkpoint(name: str, file: str) -> None:
    named = load(name)
    read = load(str(DATA / file))
    # single modules may differ: in_proj_a and in_proj_b, 0.4 % of a delta net
    assert size_of(named) == pytest.approx(size_of(read), rel=0.002)
    assert named.kv_dtype == read.kv_dtype


@each("one", [one for one in KNOWN if one.size != "-"])
def test_the_parts_of_a_line_have_the_size_of_its_files(one: Checkpoint) -> None:
    model = load(one.name)
    layers = prediction_layers(model, 1)
    # those in a release are in 16 bits, and some releases leave them out
    predicting = 2 * int(params(layers).total) if layers else 0
    published = parse_bytes(one.size, "size")
    # '18GB' is rounded to 3 %
    digits = len(one.size.split("G")[0].replace(".", ""))
    near = 0.012 if digits > 2 else 0.08
    without, with_layers = size_of(model), size_of(model) + predicting
    assert without * (1 - near) <= published <= with_layers * (1 + near), (without, with_layers)


def test_modules_and_ranges_of_layers_have_schemes_of_their_own() -> None:
    known = of_checkpoint("unsloth/Qwen3.8-27B-NVFP4")
    assert known is not None
    quantization = known[1].quantization("qwen3_5")
    assert quantization is not None

    def dtype(layer: int, role: str, matrix: str) -> str | None:
        scheme = quantization.scheme_of(layer, role, matrix)  # type: ignore[arg-type]
        return scheme and scheme.dtype

    # the last 8 of 64 MLPs are in fp8
    assert [dtype(layer, "mlp", "W_up") for layer in (0, 55, 56, 63)] == [
        "fp4",
        "fp4",
        "fp8",
        "fp8",
    ]
    assert dtype(3, "attention", "W_q") == dtype(0, "linear", "W_q") == "fp8"
    assert (dtype(0, "head", "lm_head"), dtype(0, "embedding", "lm_head")) == ("fp8", None)


def test_a_name_asks_for_the_cache_of_its_checkpoint() -> None:
    gpu = {"gpu": "rtx-5090", "context": 8192, "max_num_seqs": 16}
    named = fit("nvidia/Qwen3.6-27B-NVFP4", **gpu)  # type: ignore[arg-type]
    assert named.resolved.args.kv_dtype.name == "fp8"


# Organisations' habits


def test_a_name_that_cannot_be_fetched_is_taken_as_its_organisation_stores_models(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    answer = ask("fit", "cyankiwi/Qwen3.6-27B-AWQ-4bit", "--gpu", "l40s", "-c", "32K")
    text = " ".join(answer.out.split())
    assert (
        "warning: cyankiwi/Qwen3.6-27B-AWQ-4bit was not read. cyankiwi's habit is assumed: "
        "attention in int4." in text
    )
    assert "vllm serve cyankiwi/Qwen3.6-27B-AWQ-4bit" in text
    known = load("cyankiwi/Qwen3.6-27B-AWQ-INT4")
    assert size_of(load("cyankiwi/Qwen3.6-27B-AWQ-4bit")) == size_of(known)


@each(("name", "words"), [
    ("RedHatAI/Qwen3-8B-FP8-dynamic", "attention in fp8"),  # it has no other attention
    ("RedHatAI/Qwen3.6-27B-FP8-dynamic", "linear attention in 16 bits"),
])  # fmt: skip
def test_a_habit_names_only_parts_that_the_model_has(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert f"RedHatAI's habit is assumed: {words}." in load(name).notes[-1]


def test_a_line_without_parts_is_as_its_organisation_stores_models() -> None:
    known = of_checkpoint("Qwen/Qwen2.5-7B-Instruct-AWQ")
    assert known is not None
    assert known[1].exceptions is None
    model = load("Qwen/Qwen2.5-7B-Instruct-AWQ")
    assert model.quantization is not None
    assert model.quantization.method == "awq"
    assert any("Qwen's habit is assumed" in note for note in model.notes)


@each("name", [
    "cyankiwi/Qwen3-Next-80B-A3B-Instruct-AWQ-4bit",  # what it leaves in 16 bits is not known
    "someone/Qwen3.6-27B-AWQ-4bit",
    "cyankiwi/NoSuchModel-27B-AWQ-4bit",
])  # fmt: skip
def test_another_name_has_no_habit(name: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_habit(name) is None
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert ask("fit", name, "--gpu", "h100").code == 2


def test_a_dtype_and_a_checkpoint_without_known_parts_have_equal_figures(ask: Ask) -> None:
    """The experts' copies of CUTLASS are those of FP4, whether a name or an option says it."""
    asked = ("--gpu", "8xgb10", "-c", "8192", "--engine", "vllm", "--json")
    by_name = ask("fit", "nvidia/DeepSeek-V3-FP4", *asked).document
    by_dtype = ask("fit", "deepseek-v3", "--weights-dtype", "fp4", *asked).document
    assert by_dtype["values"] == by_name["values"]
    assert by_dtype["runtime"] == by_name["runtime"]


def test_docs_count_the_lines() -> None:
    habits = [one for one in checkpoints() if one.is_habit]
    organisations = {one.name.partition("/")[0] for one in habits}
    text = " ".join((DATA.parent.parent / "docs/models.md").read_text("utf-8").split())
    assert (
        f"has {len(NAMED)} checkpoints. For {len(KNOWN)} of them it says which parts stay in 16 "
        f"bits. It also has the habits of {len(organisations)} organisations, in {len(habits)} "
        "lines." in text
    )
