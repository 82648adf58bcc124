"""Files of trainers, and commands that start them, are options of `attncalc train`."""

import re
import shlex
from pathlib import Path

import pytest
from asking import Ask

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
    "sft.yaml": """
model_name_or_path: qwen3-8b
dtype: bfloat16
per_device_train_batch_size: 2
max_length: 4096
gradient_checkpointing: true
""",
    "loop.json": '{"zero_optimization": {"stage": 3}, "deepspeed": "loop.json"}',
    "accelerate.yaml": """
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true, fsdp_offload_params: false}
mixed_precision: bf16
num_processes: 4
""",
}


# TRL's defaults of all trainers, as options
OF_TRL = "--batch 8 --recompute full --dtype bf16 --loss fused"
SFT = f"{OF_TRL} --context 1024"
# a model that is loaded in bf16 has no fp32 copy, and torch's AdamW has moments in bf16
LOADED_IN_BF16 = "--dtype bf16 --param-dtype bf16 --no-master-weights --optimizer-dtype bf16"
TRL_NOTE = "note: trl's defaults (1.16.0), which keys in the command replace: "
AXOLOTL_NOTE = "note: axolotl's defaults (0.18.0), which keys in the command replace: "
NO_GENERATION = "note: neither generation of answers nor reward and value models are counted"


@pytest.fixture
def advice_in_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer changes as options of `train`, also of a pasted command."""
    for module in ("figures", "notes"):
        name = f"attncalc.questions.train.{module}.in_keys"
        monkeypatch.setattr(name, lambda options, launcher: " ".join(options))


@pytest.mark.usefixtures("advice_in_own_words")
@pytest.mark.parametrize(
    ("line", "options", "note"),
    [
        (
            "train axolotl.yml",
            "llama3-8b --weights-dtype nf4 --context 4096 --loss fused --optimizer " "paged_adamw_32bit "
            "--recompute full --lora r=32,dropout=0.05 --expandable-segments",
            AXOLOTL_NOTE,
        ),
        (
            "train axolotl.yml -c 1K",  # an option replaces that of the file
            "llama3-8b --weights-dtype nf4 --context 1K --loss fused --optimizer paged_adamw_32bit "
            "--recompute full --lora r=32,dropout=0.05 --expandable-segments",
            AXOLOTL_NOTE,
        ),
        (
            "train dpo.yaml",
            "llama3-8b --batch 2 --context 512 --lora r=16 --autocast --pairs --reference-model "
            "--expandable-segments --modules-to-save lm_head",
            AXOLOTL_NOTE,
        ),
        ("train grpo.yaml", "llama3-8b --context 1536 --batch 8", NO_GENERATION),
        # FSDP's CPUOffloadPolicy moves weights, gradients and the optimizer's states together
        ("train fsdp2.yaml", "llama3-8b --context 512 --fsdp --offload optimizer,params --optimizer adamw_torch_8bit "
         "--recompute none --expandable-segments", AXOLOTL_NOTE),
        ("train factory.yaml", "llama3-8b -b 8 --context 2048 --zero 3 --recompute full --lora r=8,targets=all",
         "note: llamafactory's defaults (0.9.5), "),
        (
            "train torchtune.yaml",
            "llama3_1/8B --weights-dtype nf4 --no-kbit-upcast --context 2048 --loss chunked "
            "--lora r=8,targets=q_proj+o_proj+gate+up+down",
            "",
        ),
        (
            "train llama3-8b -- deepspeed --num_gpus 4 train.py --deepspeed ds_z3.json",
            "llama3-8b --gpus 4 --zero 3 --offload optimizer,params",
            "",
        ),
        # a file that names itself
        ("train llama3-8b --gpus 4 -- deepspeed x.py --deepspeed loop.json", "llama3-8b --gpus 4 --zero 3", ""),
        (
            "train -- accelerate launch --config_file accelerate.yaml x.py --model_name_or_path " "llama3-8b",
            "llama3-8b --fsdp --recompute full --dtype bf16 --gpus 4",
            "",
        ),
        ("axolotl train axolotl.yml", "axolotl.yml", AXOLOTL_NOTE),
        (
            "torchrun --nnodes 2 --nproc_per_node 8 train.py --model llama3-8b --fsdp",
            "llama3-8b --gpus 16 --fsdp",
            "",
        ),
        (
            "tune run lora_finetune_distributed --config llama3_1/70B_lora --nproc_per_node 4",
            "llama3_1/70B --gpus 4 --fsdp --param-dtype bf16 --optimizer-dtype bf16 --batch 2 --loss chunked "
            "--lora r=16,targets=q+v+o+mlp --recompute full",
            "note: torchtune's defaults (0.6.1), ",
        ),
        ("trl dpo --model_name_or_path qwen2.5-7b --max_length 2048",
         f"qwen2.5-7b --context 2048 --pairs --reference-model {OF_TRL} --param-dtype fp32", TRL_NOTE),
        (
            "train -- python train.py --model_name_or_path qwen3-8b --learning_rate 1e-5 --bf16 " "true --my-option 3",
            "qwen3-8b --dtype bf16",
            "note: not read, and may change memory: --my-option\nnote: not used: --learning_rate",
        ),
        # accelerate's number is of all machines
        (
            "train -- accelerate launch --num_machines 2 --num_processes 16 x.py " "--model_name_or_path qwen3-8b",
            "qwen3-8b --gpus 16",
            "",
        ),
        # a key that was typed replaces that of the file
        (
            "axolotl train axolotl.yml --adapter lora --gradient_checkpointing false",
            "llama3-8b --context 4096 --loss fused --optimizer paged_adamw_32bit --lora " "r=32,dropout=0.05 "
            "--autocast --expandable-segments",
            AXOLOTL_NOTE,
        ),
        (
            "trl sft --model_name_or_path qwen3-8b --lora_r 16 --lora_target_modules q_proj v_proj",
            f"qwen3-8b --lora r=16,targets=q_proj+v_proj {SFT} --autocast",
            TRL_NOTE,
        ),
        ("trl sft --model_name_or_path qwen3-8b --use_peft --lora_target_modules all-linear",
         f"qwen3-8b --lora r=16,targets=all-linear {SFT} --autocast", TRL_NOTE),
        ("accelerate launch --gradient_accumulation_steps 4 x.py " "--gradient_accumulation_steps 4 --model qwen3-8b",
         "qwen3-8b --gradient-accumulation 4", ""),
        ("train -- python x.py --model_name_or_path=qwen3-8b --training.seq_len=2K", "qwen3-8b --context 2K", ""),
        ("'trl sft --model_name_or_path qwen3-8b' --gpu a100", f"qwen3-8b --gpu a100 {SFT} --param-dtype fp32", TRL_NOTE),
        ("trl sft --config sft.yaml",
         f"qwen3-8b --batch 2 --context 4096 --recompute full --loss fused {LOADED_IN_BF16}", TRL_NOTE),
        ("train sft.yaml", f"qwen3-8b --batch 2 --context 4096 --recompute full {LOADED_IN_BF16}", ""),
        ("train -- python run_clm.py --model_name_or_path qwen3-0.6b --torch_dtype bfloat16 --bf16",
         f"qwen3-0.6b {LOADED_IN_BF16}", ""),
        # autocast: weights in fp32, activations in bf16
        ("train -- python run_clm.py --model_name_or_path qwen3-0.6b --dtype float32 --bf16",
         "qwen3-0.6b --dtype bf16 --param-dtype fp32", ""),
        ("train -- python run_clm.py --model_name_or_path qwen3-0.6b --dtype auto",
         f"qwen3-0.6b {LOADED_IN_BF16}", "note: dtype auto is counted as bf16"),
        # bitsandbytes' moments do not follow the weights
        ("train -- python x.py --model qwen3-0.6b --dtype bfloat16 --optim paged_adamw_32bit",
         "qwen3-0.6b --optimizer paged_adamw_32bit --param-dtype bf16 --no-master-weights", ""),
        # DeepSpeed keeps fp32 copies, and accelerate casts the weights of FSDP to fp32
        ("train --gpus 2 --zero 3 -- python x.py --model qwen3-0.6b --dtype bfloat16",
         "qwen3-0.6b --gpus 2 --zero 3", ""),
        ("train --gpus 2 -- python x.py --model qwen3-0.6b --dtype bfloat16 --fsdp true",
         "qwen3-0.6b --gpus 2 --fsdp", ""),
        ("train -c 2K -- trl sft --model_name_or_path qwen3-0.6b --gradient_checkpointing false --bf16 false",
         "qwen3-0.6b -b 8 -c 2K --dtype fp32 --loss fused --recompute none",
         TRL_NOTE + "per_device_train_batch_size 8, dtype float32, fused_lm_head true\n"),
        ("trl reward --model_name_or_path qwen3-0.6b --fp16",
         "qwen3-0.6b -b 8 -c 1024 --recompute full --pairs --dtype fp16 --param-dtype fp32",
         TRL_NOTE + "per_device_train_batch_size 8, max_length 1024, gradient_checkpointing true, dtype float32\n"),
    ],
)  # fmt: skip
def test_a_trainers_file_or_command_has_the_answer_of_its_options(
    line: str, options: str, note: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in RECIPES.items():
        Path(name).write_text(text, encoding="utf-8")
    answer = ask(*shlex.split(line))
    assert answer.err.startswith(note)
    assert ("not read" in answer.err, "not used" in answer.err) == (
        "not read" in note,
        "not used" in note,
    )
    assert answer.out == ask("train", *options.split()).out
    assert answer.code != 2


def test_a_model_that_trl_loads_in_bf16_has_no_fp32_states(ask: Ask) -> None:
    command = (
        "trl sft --model_name_or_path Qwen/Qwen3-8B --dtype bfloat16 --per_device_train_batch_size 2 "
        "--max_length 4096 --gradient_checkpointing"
    )
    figures = ask("train", "--json", "--", *command.split()).document["values"]
    # 8,190,735,360 parameters of 2 B, and two moments of 2 B
    assert figures["weights"] == 16_381_470_720
    assert figures["optimizer_states"] == 32_762_941_440


@pytest.mark.parametrize(
    "command",
    ["accelerate launch trl/scripts/sft.py", "uv run trl sft", "torchrun trl/scripts/sft.py"],
)
def test_trl_has_its_defaults_behind_a_launcher(ask: Ask, command: str) -> None:
    line = ["--model_name_or_path", "qwen3-0.6b", "--dtype", "bfloat16"]
    same = ask("trl", "sft", *line)
    assert same.err.startswith(TRL_NOTE)
    assert ask("train", "--", *command.split(), *line) == same


@pytest.mark.usefixtures("advice_in_own_words")
def test_trls_defaults_that_options_replace_are_not_named(ask: Ask) -> None:
    line = [
        "-b",
        "2",
        "-c",
        "2K",
        "--recompute",
        "none",
        "--dtype",
        "fp32",
        "--loss",
        "full",
        "--param-dtype",
        "fp32",
    ]
    answer = ask("train", *line, "--", "trl", "sft", "--model_name_or_path", "qwen3-0.6b")
    assert answer.err == f"{TRL_NOTE}dtype float32\n"
    assert answer.out == ask("train", "qwen3-0.6b", *line).out


def test_options_without_effect_on_memory_are_one_note(ask: Ask) -> None:
    line = [
        "train",
        "--gpu",
        "h100",
        "--",
        "python",
        "finetune.py",
        "--model_name_or_path",
        "qwen3-0.6b",
    ]
    more = [
        "--dataset_name",
        "a/b",
        "--eval_strategy",
        "steps",
        "--eval_steps",
        "100",
        "--eos_token",
        "X",
    ]
    answer = ask(*line, *more)
    assert (
        answer.err == "note: not used: --dataset_name, --eval_strategy, --eval_steps, --eos_token\n"
    )
    assert answer.out == ask(*line).out


def test_trl_that_loads_adapters_base_in_fp32_has_a_note(ask: Ask) -> None:
    line = ["trl", "sft", "--model_name_or_path", "qwen3-0.6b", "--use_peft"]
    note = "the frozen weights are loaded in fp32, and counted in bf16"
    assert note in ask(*line).err
    assert note not in ask(*line, "--dtype", "bfloat16").err


def test_a_missing_file_of_settings_has_a_tip(ask: Ask) -> None:
    answer = ask("train", "--", *["accelerate", "launch", "--config_file", "fsdp.yaml", "train.py"])
    assert answer.error.startswith("error: no such file: fsdp.yaml\n  tip: ")
    assert "leave out --config_file" in answer.error


@pytest.mark.parametrize(
    "command",
    [
        "trl sft --model_name_or_path qwen3-0.6b --max_length 512",
        "torchrun --nproc_per_node 2 train.py --model_name_or_path qwen3-0.6b",
    ],
)
def test_a_training_command_needs_no_dashes_before_it(ask: Ask, command: str) -> None:
    answer = ask("train", "--gpu", "h100", *command.split())
    assert answer.code != 2
    assert answer == ask("train", "--gpu", "h100", "--", *command.split())


@pytest.mark.parametrize(
    ("option", "same"),
    [
        ("--qlora", "--lora --weights-dtype nf4"),
        ("--load_in_4bit", "--lora --weights-dtype nf4"),
        ("--gradient-checkpointing", "--recompute full"),
    ],
)
def test_a_switch_of_trainers_has_a_tip_that_works(ask: Ask, option: str, same: str) -> None:
    line = ["train", "qwen3-0.6b", "--gpu", "h100"]
    assert ask(*line, option).error.endswith(f"  tip: write {same}\n")
    assert ask(*line, *same.split()).code == 0


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("axolotl train no.yml", "no such file: no.yml"),
        ("accelerate launch --config_file no.yaml train.py", "no such file: no.yaml"),
        (
            "train -- python x.py --model_name_or_path qwen3-8b --method foo",
            "--method cannot be 'foo'",
        ),
        ("train -- deepspeed --num_gpus 4 x.py", "a model is required"),
        ("train llama3-8b --lora_rank 8", "no such option: --lora_rank"),
        (
            "train llama3-8b -- trl sft --model_name_or_path qwen3-8b",
            "MODEL llama3-8b cannot be combined",
        ),
        (
            "trl sft --model_name_or_path qwen3-8b --model qwen3-0.6b",
            "--model qwen3-0.6b contradicts",
        ),
        (
            "trl sft --model qwen3-8b --max_length 4096 --max_seq_length 8192",
            "--max_seq_length 8192 contradicts",
        ),
        # no word that nobody typed stands for a missing value
        ("trl sft --model_name_or_path", "--model_name_or_path needs a value"),
        ("trl sft --model qwen3-8b --lora_r --bf16", "--lora_r needs a value"),
        ("torchrun --nproc_per_node x.py --model qwen3-8b", "--nproc_per_node needs a value"),
        ("trl sft foo --model qwen3-8b", "unexpected word in the command: foo"),
        (
            "train -- python x.py --model qwen3-8b --seed 1 --use_peft true foo",
            "unexpected word in the command: foo",
        ),
    ],
)
def test_a_trainers_command_that_cannot_be_read_is_one_error(
    line: str, error: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ask(*line.split()).error.startswith(f"error: {error}")


FSDP1 = (
    "accelerate launch --use_fsdp --fsdp_sharding_strategy {} --num_processes 2 x.py --model gpt2"
)
FILES_OF_DEEPSPEED = {
    "ds.json": '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}',
    "accelerate_ds.yaml": """
distributed_type: DEEPSPEED
deepspeed_config: {deepspeed_config_file: ds.json, zero3_init_flag: true}
num_processes: 2
""",
    "no_ds.yaml": "base_model: gpt2\ndeepspeed: missing.json\n",
    "no_stage.yaml": "{distributed_type: DEEPSPEED, mixed_precision: bf16, num_processes: 2}\n",
    "grpo_beta.yaml": "model_name_or_path: gpt2\nbeta: 0.04\n",
}


@pytest.fixture
def files_of_deepspeed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the test in a folder with FILES_OF_DEEPSPEED."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES_OF_DEEPSPEED.items():
        (tmp_path / name).write_text(text, encoding="utf-8")


ZERO_3 = "gpt2 --gpus 2 --zero 3 --dtype bf16"


@pytest.mark.usefixtures("advice_in_own_words")
@pytest.mark.usefixtures("files_of_deepspeed")
@pytest.mark.parametrize(
    ("line", "options"),
    [
        # DeepSpeed's file within accelerate's, or as an option of its launcher
        ("accelerate launch --config_file accelerate_ds.yaml x.py --model gpt2", ZERO_3),
        (
            "accelerate launch --use_deepspeed --deepspeed_config_file ds.json --num_processes 2 x.py --model gpt2",
            ZERO_3,
        ),
        # accelerate's defaults: FULL_SHARD, and stage 2 (accelerate/utils/dataclasses.py)
        ("accelerate launch --use_fsdp --num_processes 2 x.py --model gpt2", "gpt2 --gpus 2 --fsdp"),
        (FSDP1.format("NO_SHARD"), "gpt2 --gpus 2"),
        (FSDP1.format("3"), "gpt2 --gpus 2"),
        (
            "accelerate launch --use_fsdp --fsdp_reshard_after_forward true --fsdp_activation_checkpointing true "
            "--fsdp_offload_params true --num_processes 2 x.py --model gpt2",
            "gpt2 --gpus 2 --fsdp --recompute full --offload optimizer,params",
        ),
        # DeepSpeed's own switch, with the option that has its file
        ("deepspeed --num_gpus 2 x.py --model gpt2 --deepspeed --deepspeed_config ds.json", ZERO_3),
        ("accelerate launch --use_deepspeed --num_processes 2 x.py --model gpt2", "gpt2 --gpus 2 --zero 2"),
        (
            "accelerate launch --use_deepspeed --zero_stage 1 --num_processes 2 x.py --model gpt2",
            "gpt2 --gpus 2 --zero 1",
        ),
        (
            "accelerate launch --config_file no_stage.yaml x.py --model gpt2",
            "gpt2 --gpus 2 --zero 2 --dtype bf16",
        ),
        # LLaMA-Factory starts torchrun by variables
        ("NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train --model gpt2 --cutoff_len 64 "
         "--disable_gradient_checkpointing true --bf16 false --fp16 false",
         "gpt2 --lora r=8,targets=all --gpus 8 -b 8 -c 64 --expandable-segments"),
        # options of the validation are not those of the run
        ("python x.py --model gpt2 --validation.seq_len 64 --dataset_val.batch_size 9", "gpt2"),
        ("trl sft --model gpt2 --accelerate_config zero3", f"gpt2 {SFT} --gpus 8 --zero 3"),
        # options of the launcher follow --
        ("axolotl train --base_model gpt2 --sequence_len 64 -- --num_processes 2", f"gpt2 {LOADED_IN_BF16} --expandable-segments -c 64 --gpus 2"),
        ("trl grpo --config grpo_beta.yaml --max_completion_length 64",
         f"gpt2 {OF_TRL} --param-dtype fp32 -c 64 --reference-model"),
        ("trl grpo --model gpt2 --beta 0.04 --max_completion_length 64",
         f"gpt2 {OF_TRL} --param-dtype fp32 -c 64 --reference-model"),
        ("trl grpo --model gpt2 --beta 0.0 --max_completion_length 64", f"gpt2 {OF_TRL} --param-dtype fp32 -c 64"),
        ("trl dpo --model gpt2 --precompute_ref_log_probs", f"gpt2 {SFT} --param-dtype fp32 --pairs"),
    ],
)  # fmt: skip
def test_a_launcher_and_its_variables_have_the_answer_of_their_options(
    line: str, options: str, ask: Ask
) -> None:
    pasted = ask("train", "--json", "--", *line.split())
    assert pasted.document["values"] == ask("train", *options.split(), "--json").document["values"]


@pytest.mark.usefixtures("files_of_deepspeed")
@pytest.mark.parametrize(
    ("line", "error"),
    [
        (
            "NGPU=8 CONFIG=llama3_8b ./run_train.sh --parallelism.data_parallel_replicate_degree 2",
            "--parallelism.data_parallel_replicate_degree cannot be '2'",
        ),
        ("train -- python x.py --model gpt2 --per_device_train_batch_size 2 3", "unexpected word in the command: 3"),
        ("NPROC_PER_NODE=4 torchrun --nproc_per_node 8 x.py --model gpt2", "--nproc_per_node 8 contradicts"),
        ("train no_ds.yaml", "no such file: missing.json"),
        ("trl sft --model gpt2 --accelerate_config zero9", "no such file: accelerate_configs/zero9.yaml"),
    ],
)  # fmt: skip
def test_a_launcher_that_contradicts_itself_is_one_error(line: str, error: str, ask: Ask) -> None:
    words = line.split()
    words = words if words[0] == "train" else ["train", "--", *words]
    assert ask(*words).error.startswith(f"error: {error}")


@pytest.mark.parametrize(
    "word",
    [
        "--data-parallel-sharding-strategy optim_grads",  # Megatron's FSDP
        "--main-grads-dtype bf16",
        "--loss_type nll",  # TRL's, which keeps the logits
        "--label_smoothing_factor 0.1",
        "--logits_to_keep 1",
        "--sync_ref_model true",
        "--split_batches true",
        "--deepspeed_ulysses true",  # no epsilon
        "CUDA_VISIBLE_DEVICES=0,1",
        "NPROC_PER_NODE=gpu",
    ],
)
def test_a_word_that_may_change_memory_is_not_called_unused(ask: Ask, word: str) -> None:
    is_variable = word.startswith(("C", "N"))
    command = ["python", "x.py", "--model", "gpt2"]
    line = [word, *command] if is_variable else [*command, *word.split()]
    name = re.split("[ =]", word)[0]
    assert ask("train", "--", *line).err == f"note: not read, and may change memory: {name}\n"


def test_gpus_of_a_command_are_a_part_of_a_node(ask: Ask) -> None:
    command = ["litgpt", "finetune_full", "gpt2", "--train.max_seq_length", "64"]
    one = ask("train", "--gpu", "8xh100", "--", *command, "--devices", "1")
    assert one == ask("train", "--gpu", "h100", "--", *command, "--devices", "1")
    assert "strategy fsdp" not in one.err
    # without --devices, all of the node
    all_of_it = ask("train", "--gpu", "8xh100", "--", *command)
    eight = ask("train", "--gpu", "h100", "--", *command, "--devices", "8")
    assert all_of_it.out.splitlines()[3:] == eight.out.splitlines()[3:]
    assert "strategy fsdp" in all_of_it.err


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        # the configuration's q, v, o and MLP
        ("", "q+v+o+mlp"),
        # the MLP stays, as apply_lora_to_mlp of the configuration is true
        ("model.lora_attn_modules=['q_proj','v_proj']", "q+v+mlp"),
        ("model.lora_attn_modules=[q_proj,output_proj] model.apply_lora_to_mlp=False", "q+o"),
        ("model.apply_lora_to_output=True", "q+v+o+mlp+lm_head"),
    ],
)
def test_a_list_of_torchtunes_matrices_replaces_that_of_attention_alone(
    ask: Ask, words: str, targets: str
) -> None:
    config = "llama3_1/8B_lora_single_device"
    command = ["tune", "run", "lora_finetune_single_device", "--config", config, *words.split()]
    figure = ["--get", "params_trained"]
    expected = ask("train", "llama3_1/8B", "--lora", f"r=8,targets={targets}", *figure).out
    assert ask("train", *figure, "--", *command).out == expected


@pytest.mark.parametrize(
    "command",
    ["litgpt evaluate gpt2", "axolotl inference x.yml", "llamafactory-cli chat", "trl env"],
)
def test_a_subcommand_that_trains_nothing_is_an_error(
    ask: Ask, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yml").write_text("base_model: gpt2", encoding="utf-8")
    assert "trains nothing" in ask("train", "--", *command.split()).error


def test_torchtunes_loss_is_given_as_its_configuration_has_it(ask: Ask) -> None:
    command = [
        "tune",
        "run",
        "full_finetune_single_device",
        "--config",
        "llama3_1/8B_full_single_device",
    ]
    chunked = ask("train", "--json", "--", *command)
    loss = "loss=torchtune.modules.loss.CEWithChunkedOutputLoss"
    same = ask("train", "--json", "--", *command, loss)
    assert same.code == 0
    assert same.document["values"] == chunked.document["values"]


def test_a_program_that_a_command_starts_has_a_note(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "a = TrainingArguments(gradient_checkpointing=True)", encoding="utf-8"
    )
    line = ["train", "gpt2", "--", "python", "mine.py"]
    assert (
        ask(*line).err
        == "note: mine.py itself is not read: 'attncalc train mine.py' reads its settings\n"
    )
    # its options are the settings
    assert ask("train", "--", "python", "mine.py", "--model", "gpt2").err == ""


def test_shards_within_a_node_have_a_note_on_several_nodes(ask: Ask) -> None:
    line = [
        "train",
        "gpt2",
        "--",
        "torchrun",
        "--nproc_per_node",
        "8",
        "x.py",
        "--fsdp",
        "hybrid_shard",
    ]
    assert ask(*line).err == ""
    on_two = [*line[:4], "--nnodes", "2", *line[4:]]
    assert (
        ask(*on_two).err
        == "note: hybrid_shard shards within a node, and is counted as over all GPUs\n"
    )
