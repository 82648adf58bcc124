"""What people type first, with the words of other tools, gets an answer or the right pointer."""

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import Ask
from tables import each
from typer.main import get_command

import attncalc
from attncalc.cli import COMMANDS, app
from attncalc.cli.command import names_of
from attncalc.cli.trial import problem_of
from attncalc.errors import AttncalcError
from attncalc.vocabulary import IDEAS, Idea

TRIES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "data/first-tries.yaml").read_text(encoding="utf-8")
)


def answer_of(ask: Ask, one: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Return the exit code and all that is printed; in Python an error is code 2."""
    if "python" not in one:
        words = shlex.split(one["run"])
        monkeypatch.setattr("sys.argv", ["attncalc", *words])
        answer = ask(*words)
        return answer.code, answer.out + answer.err
    try:
        return 0, str(eval(one["python"], {"attncalc": attncalc}))
    except (AttncalcError, AttributeError) as error:
        return 2, str(error)


_PLACEHOLDERS = {"MODEL": "llama3.1-8b", "GPU": "h100", "FILE": "llama3.1-8b"}


def failing_tips(text: str) -> list[str]:
    """Return the commands in the tips of an answer that do not run, and why."""
    tips = "\n".join(line for line in text.splitlines() if line.startswith("  tip: "))
    found = re.findall(r"'attncalc ((?: '[^'\n]*'(?=[ '])|[^'\n])*)'|: attncalc ([^;\n]*)", tips, re.MULTILINE)
    commands = ("".join(either).rstrip("?") for either in found)
    tried = ((each, [_PLACEHOLDERS.get(word, word) for word in shlex.split(each)]) for each in commands)
    problems = ((command, problem_of(get_command(app), words)) for command, words in tried)
    return [f"{command}: {problem.message}" for command, problem in problems if problem]


@pytest.mark.parametrize("who", TRIES)
def test_first_tries_work_and_every_tip_names_a_command_that_runs(
    who: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    failed = []
    for one in TRIES[who]:
        code, text = answer_of(ask, one, monkeypatch)
        missing = [words for words in one["says"] if words not in text]
        tips = failing_tips(text)
        if code != one.get("code", 0) or missing or tips:
            failed.append((one.get("run") or one["python"], code, missing, tips, text[:300]))
    assert not failed, failed


def test_a_product_of_bare_numbers_is_about_no_term(ask: Ask) -> None:
    assert ask("24 * 7 * 365").out == "answer: 24 * 7 * 365 = 61,320\n"


def test_a_tip_with_a_command_that_does_not_run_is_noticed() -> None:
    tips = "  tip: did you mean 'attncalc kv llama3.1-8b --tp 3'? for example: attncalc fit MODEL --gpu GPU"
    assert failing_tips(tips) == ["kv llama3.1-8b --tp 3: --tp 3 does not divide 32 query heads"]


def test_there_are_tries_of_many_kinds_of_user() -> None:
    assert len(TRIES) >= 16
    assert sum(map(len, TRIES.values())) >= 380


RECIPES = {
    "axolotl.yml": """
base_model: llama3-8b
adapter: qlora
lora_r: 32
lora_dropout: 0.05
sequence_len: 4096
liger_fused_linear_cross_entropy: true
optimizer: paged_adamw_32bit
datasets: [{path: x}]
gradient_checkpointing: true
""",
    "factory.yaml": """
model_name_or_path: llama3-8b
finetuning_type: lora
lora_rank: 8
lora_target: all
cutoff_len: 2048
deepspeed: examples/deepspeed/ds_z3_config.json
""",
    "dpo.yaml": """
base_model: llama3-8b
rl: dpo
adapter: lora
micro_batch_size: 2
learning_rate: 1e-5
lora_modules_to_save: [lm_head]
activation_offloading: true
""",
    "grpo.yaml": """
model_name_or_path: llama3-8b
num_generations: 8
max_prompt_length: 512
max_completion_length: 1024
per_device_train_batch_size: 8
""",
    "fsdp2.yaml": """
base_model: llama3-8b
fsdp_version: 2
fsdp_config: {offload_params: true, cpu_ram_efficient_loading: true}
optimizer: adamw_torch_8bit
""",
    "torchtune.yaml": """
model:
  _component_: torchtune.models.llama3_1.qlora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 8
tokenizer: {max_seq_len: 2048}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
""",
    "ds_z3.json": """{"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto",
"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}}""",
    "loop.json": '{"zero_optimization": {"stage": 3}, "deepspeed": "loop.json"}',
    "accelerate.yaml": """
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true, fsdp_offload_params: false}
mixed_precision: bf16
num_processes: 4
""",
}


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        (
            "train axolotl.yml",
            "llama3-8b --weights-dtype nf4 --context 4096 --loss fused --optimizer paged_adamw_32bit --recompute full "
            "--lora r=32,dropout=0.05",
        ),
        ("axolotl train axolotl.yml -c 1K", "llama3-8b -c 1K --weights-dtype nf4 --loss fused"),
        (
            "train dpo.yaml",
            "llama3-8b --batch 2 --lora r=16 --pairs --reference-model\n"
            "note: not read of dpo.yaml: lora_modules_to_save, activation_offloading\n",
        ),
        ("train grpo.yaml", "llama3-8b --context 1536 --batch 8\nnote: neither generation of answers"),
        # FSDP's CPUOffloadPolicy moves weights, gradients and the optimizer's states together
        ("train fsdp2.yaml", "llama3-8b --fsdp --offload optimizer,params --optimizer adamw_torch_8bit\n"),
        ("train factory.yaml", "llama3-8b --context 2048 --zero 3 --recompute full --lora r=8,targets=all"),
        (
            "train torchtune.yaml",
            "llama3_1/8B --weights-dtype nf4 --no-kbit-upcast --context 2048 --loss chunked --lora "
            "r=8,targets=q_proj+o_proj+gate+up+down",
        ),
        ("train llama3-8b --gpus 4 --deepspeed ds_z3.json", "llama3-8b --gpus 4 --zero 3 --offload optimizer,params"),
        ("train llama3-8b --gpus 4 --deepspeed loop.json", "llama3-8b --gpus 4 --zero 3"),  # which names itself
        ("train llama3-8b --config_file accelerate.yaml", "llama3-8b --fsdp --recompute full --dtype bf16 --gpus 4"),
    ],
)
def test_a_trainers_file_is_its_options(
    line: str, meaning: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in RECIPES.items():
        Path(name).write_text(text, encoding="utf-8")
    answer = ask(*line.split())
    assert answer.err.startswith(f"read as: attncalc train {meaning}")
    assert answer.code == 0


MAY_MATTER = """
kv llama3-8b not fp8
fit llama3-8b h100 withuot fp8
llama3-8b rtx-2050
kv llama3-8b twice
kv llama3-8b 7
kv llama3-8b --pool 3
gpus --memory 80
kv mistral-7b-v0.1 --block-size 16
fit llama3-8b --kv-size 8
train llama3-8b --deepspeed ds_config.json
fit llama3-8b --gpu h100 --hicache
train llama3-8b on 10000 samples
"""


@pytest.mark.parametrize("line", MAY_MATTER.strip().splitlines())
def test_a_command_with_a_word_that_may_change_a_figure_is_not_run(ask: Ask, line: str) -> None:
    answer = ask(*line.split())
    assert (answer.code, answer.out) == (2, "")


def test_words_that_change_no_figure_are_left_out_and_named_first(ask: Ask) -> None:
    answer = ask(*["why", "does", "qwen3-32b", "honestly", "not", "fit", "on", "a", "4090"])
    assert answer.err == "read as: attncalc fit qwen3-32b --gpu 4090\nnot read: honestly, not\n"
    assert (answer.code, answer.out.startswith("FITS")) == (0, True)  # in q4_k_m


def test_a_command_that_is_wrapped_can_be_pasted(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    first, *others = ask("fit", "llama3-8b", "h100", "--max-num-seqs", "8", "-c", "4K", "fp8").err.splitlines()
    assert [line.endswith(" \\") for line in (first, *others)] == [True] * len(others) + [False]
    assert max(map(len, (first, *others))) <= 60


def test_another_tools_name_of_an_option_is_read(ask: Ask) -> None:
    answer = ask("kv", "llama3-8b", "--seq_len_max", "4k", "--port", "80")
    assert answer.out == ask("kv", "llama3-8b", "-c", "4k").out
    assert answer.err == "read as: attncalc kv llama3-8b --context 4k\nnot read: --port 80 (it changes no figure)\n"


@pytest.mark.parametrize("line", ["kv llama3-8b honestly", "memory llama3-8b --train", "plan llama3-8b --users 9"])
def test_a_program_gets_an_error_where_words_are_left_out_or_something_is_assumed(ask: Ask, line: str) -> None:
    for option in ("--json", "--quiet"):
        answer = ask(*line.split(), option)
        assert (answer.code, answer.out) == (2, "")


def test_a_program_gets_an_answer_to_another_tools_name(ask: Ask) -> None:
    answer = ask("kv", "llama3-8b", "--seqlen-max", "4k", "--json")
    assert answer.document == ask("kv", "llama3-8b", "-c", "4k", "--json").document


def test_a_built_in_model_stands_for_one_of_the_hub_that_cannot_be_reached(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    repository = "mlx-community/Qwen3-14B-4bit"
    answer = ask("fit", repository, "-c", "4K")
    assert answer.out == ask(*["fit", "--weights-dtype", "int4", "qwen3-14b", "-c", "4K"]).out
    assert "read as: attncalc fit --weights-dtype int4 qwen3-14b -c 4K\nnote: " in answer.err
    assert f"; MLX runs it: mlx_lm.server --model {repository}\n" in answer.err
    assert ask("fit", repository, "-c", "4K", "--json").code == 2


def test_each_word_of_the_vocabulary_belongs_to_one_idea() -> None:
    words = Counter(word for idea in IDEAS for word in idea.words.split())
    assert [word for word, times in words.items() if times > 1] == []


@each("idea", IDEAS)
def test_some_command_has_what_an_idea_means(idea: Idea) -> None:
    root: Any = get_command(app)
    options = {name: names_of(root.get_command(None, name)) for name in COMMANDS}
    for fragment in (*idea.fragments("8"), *idea.fragments(None)):
        commands = [fragment.command] if fragment.command else [*COMMANDS]
        assert any(all(pair[0] in options[name] for pair in fragment.options) for name in commands) or (
            fragment.options == (("show",),)
        )


def test_a_formula_answers_on_stdout_before_the_screen_and_alone_with_quiet(ask: Ask) -> None:
    question = "training flops of gpt-3 on 300B tokens"
    assert ask(*question.split()).out.startswith("answer: training FLOP = 6 * 174,604,259,328 * 300,000,000,000 =")
    assert ask(*question.split(), "--quiet").out.count("\n") == 1
