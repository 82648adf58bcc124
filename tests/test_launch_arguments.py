"""The arguments of pasted launch commands are read as the engine's own parser reads them."""

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import Ask
from tables import each

from attncalc import AttncalcError
from attncalc.engines import find_engine
from attncalc.engines.arguments import COMPUTED, read_table, table_file
from attncalc.options import options_of
from attncalc.questions.fit.options import FitOptions
from attncalc.questions.fit.pasted import expand

TABLES = {name: read_table(table_file(name)) for name in ("vllm", "sglang", "llamacpp")}
OPTIONS = {
    part: option
    for option in options_of(FitOptions).values()
    for name in (*option.names, *option.also)
    for part in name.split("/")
}
LINES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "data/launch-arguments.yaml").read_text(encoding="utf-8")
)


def command_of(line: dict[str, Any]) -> str:
    """Return the command that starts a program with these arguments."""
    return " ".join([line["start"], *line["arguments"]])


def expanded(command: str, *before: str) -> list[str]:
    """Return the options of a command, each of which has a value that `fit` can read."""
    found = expand(before, shlex.split(command), OPTIONS, OPTIONS)
    for i, word in enumerate(found):
        option = OPTIONS.get(word)
        if option is not None and option.parser is not None:
            option.parser.parse(found[i + 1], word)
    return found


@each("engine", [*TABLES])
def test_fit_has_an_option_for_each_computed_argument(engine: str) -> None:
    """Each of its names too, without its opposite, which is the default."""
    words = find_engine(engine).commands[0]
    known = {*words.names, *words.flags, *words.models, *OPTIONS}
    computed = [row for row in TABLES[engine].rows if row.memory == COMPUTED]
    assert [row.names for row in computed if not known.intersection(row.names)] == []
    flags = [row for row in computed if not row.takes_value]
    assert [row.names for row in flags if not known.issuperset(row.names)] == []


@each("engine", [*TABLES])
def test_what_fit_reads_of_a_command_is_computed(engine: str) -> None:
    words = find_engine(engine).commands[0]
    read = {*words.names, *words.flags, *words.models}
    read |= {
        part
        for kind in find_engine(engine).options
        for option in options_of(kind).values()
        for name in (*option.names, *option.also)
        for part in name.split("/")
    }
    rows = [row for row in TABLES[engine].rows if read.intersection(row.names)]
    assert [row.names for row in rows if row.memory != COMPUTED] == []


@each(
    ("command", "expected"),
    [
        ("vllm serve a/b --enforce-eager --no-enforce-eager", "a/b --engine vllm"),
        ("vllm serve a/b --no-enforce-eager", "a/b --engine vllm"),
        (
            "vllm serve a/b --enable-prefix-caching --no-async-scheduling",
            "a/b --enable-prefix-caching --no-async-scheduling --engine vllm",
        ),
        ("vllm serve a/b -qfp8 -O3", "a/b --weights-dtype fp8 --engine vllm"),
        ("vllm serve a/b -O 2 -O.level=3", "a/b --engine vllm"),
        ("vllm serve a/b --max-model-len -1", "a/b --engine vllm"),
        ("vllm serve --cudagraph-capture-sizes 1 2 4 --model a/b", "a/b --engine vllm"),
        ("vllm serve a/b --hf-token --max_model_len 4k", "a/b --context 4k --engine vllm"),
        (
            "vllm serve a/b --limit-mm-per-prompt.image 2 --limit_mm_per_prompt.video=0",
            """a/b --limit-mm-per-prompt '{"image": 2, "video": 0}' --engine vllm""",
        ),
        (
            "vllm serve a/b --speculative-config.method mtp "
            "--speculative-config.num_speculative_tokens 3",
            """a/b --speculative-tokens 3 --speculative-config '{"method": "mtp"}' --speculative-layers 1 """
            "--engine vllm",
        ),
        (
            "vllm serve a/b --spec-method eagle3 --spec-model c/d --spec-tokens 2",
            """a/b --speculative-config '{"method": "eagle3"}' --speculative-model c/d --speculative-tokens 2 """
            "--engine vllm",
        ),
        (
            "vllm serve a/b --speculative-config.method ngram --speculative-config.a+ b,c "
            "--speculative-config.a+=d --no-enable-chunked-prefill",
            """a/b --speculative-config '{"method": "ngram", "a": ["b", "c", "d"]}' --engine vllm""",
        ),
        (
            """vllm serve a/b --hf-overrides '{"text_config": {"rope_parameters": {"factor": 4}}}'""",
            "a/b --allow-long-max-model-len --engine vllm",
        ),
        # a micro-batch is at most a batch, by default 512
        ("llama-server -m a.gguf -b 128", "a.gguf --ubatch 128 --engine llamacpp"),
        ("llama-server -b 256 -m a.gguf -ub 1024", "a.gguf --ubatch 256 --engine llamacpp"),
        ("llama-server -m a.gguf -ub 64 -b 128", "a.gguf --ubatch 64 --engine llamacpp"),
        # and a batch has 2,048 by default
        ("llama-server -m a.gguf -ub 4096", "a.gguf --ubatch 2048 --engine llamacpp"),
        ("llama-server -m a.gguf -ub 4096 -b 4096", "a.gguf --ubatch 4096 --engine llamacpp"),
        ("llama-server -m a.gguf -b 4096", "a.gguf --engine llamacpp"),
        (
            # it finds tokens in the text, as ngram
            """vllm serve a/b --speculative-config '{"method": "ngram_gpu"}'""",
            """a/b --speculative-config '{"method": "ngram_gpu"}' --engine vllm""",
        ),
        (
            "sglang serve a/b --lora-target-modules q_proj o_proj",
            "a/b --lora-target-modules 'q_proj o_proj' --engine sglang",
        ),
        ("sglang serve a/b --chunked-prefill-size -1", "a/b --engine sglang"),
        (
            "sglang serve a/b --enable-hicache --tp 2",
            "a/b --enable-hierarchical-cache --tp 2 --engine sglang",
        ),
        (
            "docker run lmsysorg/sglang:v0.4.6 python3 -m sglang.launch_server --model-path a/b "
            "--enable-ep-moe",
            "a/b --enable-expert-parallel --engine-version 0.4.6 --engine sglang",
        ),
        (
            "VLLM_USE_V1=0 vllm serve a/b --swap-space 8",
            "a/b --swap-space 8 --engine-version v0 --engine vllm",
        ),
    ],
)
def test_arguments_are_read_as_the_engines_parser_reads_them(command: str, expected: str) -> None:
    assert expanded(command) == shlex.split(expected)


@each(
    ("command", "error"),
    [
        (
            "vllm serve a/b --tp 2",
            "vLLM 0.33.0 has no argument --tp\n  tip: write --tensor-parallel-size",
        ),
        (
            "vllm serve a/b --context-length 8K",
            "has no argument --context-length\n  tip: write --max-model-len",
        ),
        ("vllm serve a/b --enforce-eager=1", "--enforce-eager of the command takes no value"),
        ("vllm serve a/b -tp2", "vLLM 0.33.0 has no argument -tp2\n  tip: write -tp 2"),
        ("vllm serve a/b --seed", "--seed needs a value\n  tip: vLLM 0.33.0 has --seed VALUE"),
        ("vllm serve a/b --max 4", "--max of the command is ambiguous"),
        ("vllm serve a/b c/d", "unexpected word in the command: c/d"),
        ("vllm serve a/b -tp 2 --tensor-parallel 2", "is given twice in the command, with -tp"),
        # a value of --task, which versions without it refuse
        ("vllm serve a/b --runner embed", "cannot be 'embed'\n  tip: write --runner pooling"),
        # two names of one argument, whose value a function reads
        (
            "vllm serve a/b -q fp8 --quantization bitsandbytes",
            "is given twice in the command, with -q",
        ),
        (
            """vllm serve a/b -dp 8 --eplb-config '{"num_redundant_expert": 32}'""",
            "vLLM has no key num_redundant_expert\n  tip: did you mean 'num_redundant_experts'?",
        ),
        ("llama-server -m a.gguf -b 128 -ub -c 4096", "-ub needs a value"),
        (
            "llama-server -m a.gguf --ctx-sise 8192",
            "may change memory\n  tip: did you mean '--ctx-size'? Otherwise leave it out",
        ),
        ("sglang serve --model_path a/b", "SGLang 0.5.23 has no argument --model_path"),
        ("sglang serve a/b --enforce-eager", "SGLang 0.5.23 has no argument --enforce-eager"),
    ],
)
def test_what_the_engines_parser_refuses_is_an_error(command: str, error: str) -> None:
    with pytest.raises(AttncalcError) as raised:
        expanded(command)
    assert error in str(raised.value)


def test_a_version_before_the_command_chooses_its_arguments() -> None:
    command = "vllm serve a/b --disable-log-requests"
    assert expanded(command, "--engine-version", "0.10.0")[2:] == ["a/b", "--engine", "vllm"]
    # of another engine it says nothing about the command's
    before = ("--engine", "sglang", "--engine-version", "0.4.6")
    with pytest.raises(
        AttncalcError, match=r"vLLM 0\.33\.0 has no argument --disable-log-requests"
    ):
        expanded(command, *before)


def test_a_batch_of_llamacpp_is_no_argument_that_is_not_used(ask: Ask) -> None:
    model = ("fit", "--gpu", "rtx-4090", "--", "llama-server", "-m", "qwen3-8b-q4_k_m.gguf")
    assert "not used" not in ask(*model, "-b", "4096", "-ub", "1024").err


def test_one_note_names_what_may_change_memory_and_another_what_does_not(ask: Ask) -> None:
    words = "--port 1 --moe-backend triton --seed 1 -cc.mode 3 --enable-return-routed-experts"
    answer = ask("fit", "--gpu", "h100", "--", *f"vllm serve qwen3-8b {words}".split())
    assert answer.err == (
        "note: not used: --port, --seed\n"
        "note: not computed, and may change memory: --moe-backend, "
        "--enable-return-routed-experts, -cc\n"
    )


@pytest.mark.parametrize("line", LINES, ids=[f"{i}" for i in range(len(LINES))])
def test_a_public_launch_command_is_read_or_refused_as_by_the_engine(
    line: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = ["--context", "4096"]
    if "version" in line:
        before += ["--engine-version", line["version"]]
    if "refused" in line:
        with pytest.raises(AttncalcError) as raised:
            expanded(command_of(line), *before)
        assert raised.value.message == line["refused"]
        return
    assert "--engine" in expanded(command_of(line), *before)
    said = capsys.readouterr().err
    _, _, named = said.partition("note: not computed, and may change memory: ")
    named_sorted = sorted(
        filter(None, named.strip().split(", ")), key=lambda name: name.lstrip("-")
    )
    assert named_sorted == line.get("may", [])


def test_there_are_sixty_public_launch_commands_of_both_engines() -> None:
    engines = ["vllm" in line["start"] for line in LINES]
    assert len(LINES) >= 60
    assert min(engines.count(True), engines.count(False)) >= 20


@each("depth", [10, 990, 100_000])
def test_keys_and_values_of_any_depth_are_read_or_an_error(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    with suppress(AttncalcError):
        expanded(f"vllm serve a/b --additional-config{'.a' * depth} {nested}")


@each(
    ("command", "error"),
    [
        (
            "vllm serve Qwen/Qwen3-32B-AWQ --quantization fp8",
            "Qwen/Qwen3-32B-AWQ has weights in int4",
        ),
        (
            "sglang serve --model-path Qwen/Qwen3-32B-AWQ --quantization fp8",
            "Qwen/Qwen3-32B-AWQ has weights in int4",
        ),
        ("vllm serve Qwen/Qwen3-32B -q awq_marlin", "Qwen/Qwen3-32B has no quantized weights"),
    ],
)
def test_a_method_that_the_checkpoint_does_not_have_is_refused(command: str, error: str) -> None:
    with pytest.raises(AttncalcError, match=error):
        expanded(command)


def test_the_checkpoints_own_method_is_taken() -> None:
    for command in (
        "vllm serve Qwen/Qwen3-32B-AWQ --quantization awq",
        "vllm serve Qwen/Qwen3-32B-FP8 --quantization fp8",
    ):
        assert expanded(command)[0] == command.split()[2]


@each(
    ("arguments", "context"),
    [("-np 4 -c 0", "40960"), ("-c 0", "40960"), ("-np 4 -c 8192", "8192")],
)
def test_a_context_of_0_is_the_models_own_which_llamacpp_does_not_shorten(
    arguments: str, context: str
) -> None:
    options = expanded(f"llama-server -m qwen3-8b {arguments}", "--gpu", "rtx-4090")
    assert options[options.index("--context") + 1] == context


def test_without_a_context_the_gpu_decides_it() -> None:
    assert "--context" not in expanded("llama-server -m qwen3-8b", "--gpu", "rtx-4090")
