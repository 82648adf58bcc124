"""Models and GPUs in the spellings of people, hubs, shops and drivers."""

import pytest
from asking import Ask, of_questions
from tables import each

from attncalc import AttncalcError, fit, gpu, load
from attncalc.config.gpus import gpu_names, gpus_of
from attncalc.config.presets import (
    hint,
    of_absent_file,
    of_gguf_file,
    preset_names,
    preset_of,
    unquantized,
    with_file_type,
)
from attncalc.units import GIB


@each(
    ("name", "preset"),
    [
        ("Llama 3.1 8B", "llama3.1-8b"),
        ("llama_3_1_8b", "llama3.1-8b"),
        ("llama3.1:8b", "llama3.1-8b"),
        ("llama3.1:8b-instruct-q4_K_M", "llama3.1-8b"),
        ("llama-3-8b", "llama3-8b"),
        ("llama3.3-70b", "llama3.1-70b"),  # its title is Llama 3.1/3.3 70B
        # a repository of the preset, with the size in its title
        ("deepseek-r1:671b", "deepseek-v3"),
        ("deepseek-r1:1.5b", "deepseek-r1-1.5b"),  # a distilled model has the name of its teacher
        ("deepseek-r1:7b", "qwen2.5-7b"),
        ("deepseek-r1:8b", "qwen3-8b"),  # of R1-0528; Ollama's tag was Llama 3.1 before
        ("deepseek-r1:8b-llama-distill-q4_K_M", "llama3.1-8b"),
        ("deepseek-r1:8b-0528-qwen3-q4_K_M", "qwen3-8b"),
        ("deepseek-r1:70b", "llama3.1-70b"),
        ("deepseek-r1", "deepseek-v3"),
        ("qwen3-235b", "qwen3-235b-a22b"),
        ("QWEN3 8B", "qwen3-8b"),
        ("qwen3-17b", None),  # not 1.7b
        ("T5", None),  # which of several
        ("llama3.2", None),
        ("kimi", None),
        ("models/qwen3-8b", None),
        ("unsloth/Qwen3 8B", None),
        ("", None),
        ("..", None),
    ],
)
def test_a_preset_is_found_in_any_unambiguous_spelling(name: str, preset: str | None) -> None:
    assert preset_of(name) == preset


def test_every_preset_has_its_own_name() -> None:
    assert all(preset_of(name) == name for name in preset_names())


def test_an_ambiguous_name_lists_what_it_may_mean() -> None:
    assert hint("llama3.2") == "which one: llama3.2-1b, llama3.2-3b, llama3.2-11b-vision? "
    assert hint("qwen3-8b-AWQ") == "did you mean 'attncalc fit qwen3-8b --weights-dtype int4'? "
    assert hint("T5") == "did you mean 't5-base'? "
    # and not llama3.2-3b, of similar letters
    assert hint("llama-2-33b") == "did you mean 'llama2-7b'? "
    assert hint("gemma-3-12b-it-qat") == "did you mean 'gemma3-12b'? "
    assert hint("70B") == "which one: llama2-70b, llama3-70b, llama3.1-70b? "


@each(
    ("name", "found"),
    [
        ("llama3.1-8b:Q4_K_M", ("llama3.1-8b", "q4_k_m")),
        ("qwen3:8b-q8_0", ("qwen3:8b", "q8_0")),
        ("qwen3-8b", ("qwen3-8b", None)),
        ("org/name:Q4_K_M", ("org/name:Q4_K_M", None)),  # a file on the hub
    ],
)
def test_the_type_of_a_gguf_file_may_follow_a_name(
    name: str, found: tuple[str, str | None]
) -> None:
    assert with_file_type(name) == found


@each(
    ("path", "found"),
    [
        ("models/Qwen3-8B-Q4_K_M.gguf", ("Qwen3-8B", "q4_k_m")),
        ("Qwen3-8B-UD-Q4_K_M.gguf", ("Qwen3-8B", "q4_k_m")),
        ("C:\\models\\gemma-3-27b-it.Q6_K.gguf", ("gemma-3-27b-it", "q6_k")),
        ("Llama-3.3-70B-Instruct-BF16-00001-of-00004.gguf", ("Llama-3.3-70B-Instruct", "bf16")),
        ("Qwen3-8B-F16.gguf", ("Qwen3-8B", "fp16")),
        ("qwen3-8b.gguf", ("qwen3-8b", None)),
        ("Qwen3-8B-IQ3_XXS.gguf", ("Qwen3-8B", "iq3_xxs")),
        ("Qwen3-8B-TQ1_0.gguf", None),  # weights of a type that is not known
        ("mine-Q4_K_M.gguf", None),
        ("Qwen3-8B-Q4_K_M", None),
    ],
)
def test_the_name_of_a_gguf_file_has_its_model_and_type(
    path: str, found: tuple[str, str | None] | None
) -> None:
    assert of_absent_file(path) == found


def test_a_gguf_file_of_an_unknown_type_has_a_known_model() -> None:
    assert of_gguf_file("Qwen3-8B-IQ4_XS.gguf") == ("Qwen3-8B", "iq4_xs")
    assert hint("Qwen3-8B-IQ4_XS.gguf") == "did you mean 'qwen3-8b:iq4_xs'? "
    assert hint("Qwen3-8B-Q4_K_XL.gguf").startswith("weights in q4_k_xl are not known here")


@each(
    ("repository", "base"),
    [
        ("Qwen/Qwen3-8B-AWQ", ("qwen3-8b", "int4")),
        ("Qwen/Qwen3-32B-GPTQ-Int8", ("qwen3-32b", "int8")),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", ("llama3.1-70b", "int4")),
        ("RedHatAI/Qwen3-32B-FP8-dynamic", ("qwen3-32b", "fp8")),
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", ("llama3.1-8b", "fp4")),
        ("unsloth/Qwen3-8B-GGUF", ("qwen3-8b", "q4_k_m")),
        ("foo/bar-AWQ", None),
        ("Qwen/Qwen3-8B", None),
    ],
)
def test_a_quantized_copy_has_a_built_in_base(
    repository: str, base: tuple[str, str] | None
) -> None:
    assert unquantized(repository) == base


def test_a_quantized_copy_that_cannot_be_fetched_has_a_tip(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    err = ask("fit", "someone/Qwen3-8B-AWQ", "--gpu", "h100", "--json").err
    assert (
        "the built-in qwen3-8b has the same cache, and 'attncalc fit qwen3-8b --weights-dtype "
        "int4' nearly its weights" in err
    )


def test_a_type_after_the_name_is_the_weights_dtype() -> None:
    assert fit("llama3.1:8b-q4_K_M", gpu="12GB", context=4096) == fit(
        "llama3.1-8b", weights_dtype="q4_k_m", gpu="12GB", context=4096
    )


@each(
    ("name", "own_name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA(R) GeForce(TM) RTX 3090", "rtx-3090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Tesla T4", "t4"),
        ("rtx4090", "rtx-4090"),
        ("RTX_4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("M3 Max 64GB", "m3-max-64gb"),
        ("Apple M3 Max", "m3-max-128gb"),
    ],
)
def test_a_gpu_is_found_as_drivers_and_shops_call_it(name: str, own_name: str) -> None:
    assert gpu(name).name == own_name


@each(
    ("text", "number", "own_name"),
    [
        ("2xh100", 2, "h100-80gb"),
        ("2x8xh100", 2 * 8, "h100-80gb"),  # 2 nodes of 8
        ("h20x8", 8, "h20"),
        ("H100 x 8", 8, "h100-80gb"),
        ("rtx-4090x2", 2, "rtx-4090"),
        ("rtx3060", None, "rtx-3060-12gb"),
        ("mi300x", None, "mi300x"),
        ("H100-SXM5-80GB", None, "h100-80gb"),
        # a line of nvidia-smi --format=csv
        ("NVIDIA A100-SXM4-80GB, 81920 MiB", None, "a100-80gb"),
    ],
)
def test_a_number_of_gpus_stands_before_or_after_their_name(
    text: str, number: int | None, own_name: str
) -> None:
    found, kind = gpus_of(text)
    assert (found, kind.name) == (number, own_name)


def test_a_release_that_states_another_context_has_it() -> None:
    # config.json of Qwen/Qwen2.5-7B-Instruct: max_position_embeddings 32768; of the base model
    # 131072
    contexts = {
        name: load(name).max_context
        for name in ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5:7b-instruct", "qwen2.5-7b")
    }
    assert list(contexts.values()) == [32768, 32768, 131072]


@each(
    ("name", "tokens"),
    [
        ("deepseek-r1:8b", 131072),  # the R1-0528 of Qwen3 8B
        ("deepseek-r1:8b-0528-qwen3-q8_0", 131072),
        ("qwen3:4b-q8_0", 40960),  # the first release, as before the tag 4b was moved to 2507
        ("qwen3:8b", 40960),
        ("qwen3:4b", 262144),  # the release of July 2025
        ("qwen3:4b-instruct", 262144),
        ("qwen3-4b", 40960),
        ("Qwen/Qwen3-4B", 40960),
    ],
)
def test_a_tag_of_ollama_has_the_context_of_its_release(name: str, tokens: int) -> None:
    assert load(name).max_context == tokens


def test_every_gpu_is_found_by_its_title_or_another_one_has_the_same() -> None:
    assert all(gpu(name.upper().replace("-", " ")).name == name for name in gpu_names())


@each(
    ("name", "whole", "eighths"),
    [
        ("h100-1g.10gb", "h100-80gb", 1),
        ("H100 1g.20gb", "h100-80gb", 2),
        ("h100-3g.40gb", "h100-80gb", 4),
        ("NVIDIA H200 MIG 1g.18gb", "h200", 1),
        ("a100-40gb-1g.5gb", "a100-40gb", 1),
        ("h100-7g.80gb", "h100-80gb", 8),
    ],
)
def test_a_slice_has_its_part_of_the_memory(name: str, whole: str, eighths: int) -> None:
    part = gpu(name)
    assert part.memory == gpu(whole).memory * eighths * 9 // 80  # 0.9 of its eighths
    assert part.bandwidth == gpu(whole).bandwidth * eighths // 8
    assert not part.measured


@each(
    ("profile", "seen"),
    # GiB in listings of 'nvidia-smi mig -lgip' in public repositories
    [
        ("h200-1g.18gb", 16.00),
        ("h100-1g.10gb", 9.75),
        ("h100-2g.20gb", 19.62),
        ("h100-3g.40gb", 39.50),
    ],
)
def test_no_slice_is_assumed_larger_than_software_saw(profile: str, seen: float) -> None:
    assert 0.88 * seen * GIB < gpu(profile).memory <= seen * GIB


@each("name", ["h100-1g.33gb", "h100-8g.80gb", "a30-1g.6gb", "rtx-4090-1g.3gb", "nope-1g.10gb"])
def test_a_slice_that_does_not_exist_is_an_error(name: str) -> None:
    with pytest.raises(AttncalcError):
        gpu(name)


@each(
    "command",
    of_questions(
        [
            "plan {} --gpu rtx-4090 --users 2 --prompt 1K --output-len 100",
            "sweep {} --gpu 24GB -c 4K",
        ]
    ),
)
def test_the_type_in_a_models_name_is_that_of_the_weights(ask: Ask, command: str) -> None:
    def rows(model: str) -> str:
        return ask(*command.format(model).split(), "--format", "csv").out.replace(":q4_k_m", "")

    typed, given = rows("llama3.1-8b:q4_k_m"), rows("llama3.1-8b --weights-dtype q4_k_m")
    assert typed == given
    assert typed != rows("llama3.1-8b:q8_0")


def test_a_type_of_weights_that_a_command_does_not_count_is_named(ask: Ask) -> None:
    note = "note: q4_k_m is not used: it is the type of weights, which 'attncalc fit' counts\n"
    for command in of_questions(["kv", "params", "flops", "memory", "compare", "train"]):
        assert ask(command, "llama3.1-8b:q4_k_m").err == note


@each(
    "word",
    [
        "/a" * 50_000,
        "a/" * 50_000,
        "a" * 100_000,
        "a-1-of-1" * 10_000 + ".gguf",
        "x" * 256 + "-Q8_0.gguf",
    ],
)
def test_a_long_word_is_no_name(word: str) -> None:
    """It is compared with no pattern: those of files' names take a time that grows with its
    square.
    """
    assert (of_gguf_file(word), preset_of(word), hint(word)) == (None, None, "")
    assert of_gguf_file(f"{'a/' * 50_000}Qwen3-8B-Q8_0.gguf") == ("Qwen3-8B", "q8_0")
