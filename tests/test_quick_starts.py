"""The commands with which trainers' documentation begins are read, and counted as they are run.

The facts are those of the documentation; the lines and files are written from them.
"""

import json
import shlex
from pathlib import Path

import pytest
from asking import Ask
from tables import each

# What TRL's trainers have by default, as options of `train`.
TRL = "--recompute full --dtype bf16 --loss fused"
TRL_FP32 = f"{TRL} --param-dtype fp32"
# A model that is loaded in bf16: no fp32 copies, and moments of torch's AdamW in bf16.
IN_BF16 = "--dtype bf16 --param-dtype bf16 --no-master-weights --optimizer-dtype bf16"
# torchtune on one GPU.
TUNE = "--recompute full --loss chunked"
TUNE_LORA = f"{TUNE} --dtype bf16 --param-dtype bf16 --optimizer-dtype bf16"
TUNE_TARGETS = "targets=q+v+o+mlp"
UNSLOTH = "--weights-dtype nf4 --no-kbit-upcast --autocast --recompute full --loss fused"
UNSLOTH_TARGETS = "targets=q+k+v+o+gate+up+down,dropout=0"
FACTORY = "-c 2048 --dtype bf16 --recompute full"
AXOLOTL = "--dtype bf16 --recompute full --expandable-segments"

# {file: its settings}, of which 'a b; c.d e' is `a: b` and `c: {d: e}` of YAML, or of TOML.
FILES = {
    # Axolotl's examples/
    "lora-1b.yml": "base_model llama3.2-1b; adapter lora; lora_r 16; lora_alpha 32; lora_dropout 0.05; "
    "lora_target_modules [gate_proj, down_proj, up_proj, q_proj, v_proj, k_proj, o_proj]; sequence_len 2048; "
    "sample_packing true; micro_batch_size 2; gradient_accumulation_steps 2; optimizer adamw_8bit; bf16 auto; "
    "tf32 false; gradient_checkpointing true; attn_implementation flash_attention_2",
    "fft-8b.yml": "base_model NousResearch/Meta-Llama-3.1-8B; sequence_len 8192; micro_batch_size 1; "
    "gradient_accumulation_steps 8; optimizer paged_adamw_8bit; bf16 auto; gradient_checkpointing true; "
    "resume_from_checkpoint null",
    "qlora-8b.yml": "base_model llama3-8b; load_in_8bit false; load_in_4bit true; adapter qlora; lora_r 32; "
    "lora_dropout 0.05; lora_target_linear true; sequence_len 4096; micro_batch_size 2; "
    "gradient_accumulation_steps 4; optimizer paged_adamw_32bit; bf16 auto; gradient_checkpointing true",
    "lora-8bit.yml": "base_model NousResearch/Llama-2-7b-hf; load_in_8bit true; adapter lora; lora_r 32; "
    "lora_dropout 0.05; lora_target_linear true; sequence_len 4096; micro_batch_size 2; "
    "gradient_accumulation_steps 4; optimizer adamw_bnb_8bit; bf16 auto; gradient_checkpointing true",
    "dpo.yml": "base_model Qwen/Qwen2.5-0.5B; rl dpo; sequence_len 2048; micro_batch_size 2; "
    "gradient_accumulation_steps 4; optimizer adamw_bnb_8bit; bf16 auto; gradient_checkpointing true",
    "kto.yml": "base_model meta-llama/Llama-3.2-1B; rl kto; rl_beta 0.5; load_in_4bit true; adapter qlora; "
    "lora_r 32; lora_dropout 0.05; lora_target_linear true; sequence_len 2048; micro_batch_size 2; "
    "gradient_accumulation_steps 1; optimizer adamw_8bit; bf16 auto; gradient_checkpointing true",
    "reward.yml": "base_model Qwen/Qwen2.5-0.5B; reward_model true; sequence_len 2048; micro_batch_size 2; "
    "gradient_accumulation_steps 4; optimizer adamw_bnb_8bit; bf16 true; gradient_checkpointing true",
    "gemma2.yml": "base_model google/gemma-2-9b; load_in_4bit true; adapter qlora; lora_r 32; lora_dropout 0.05; "
    "lora_target_linear true; sequence_len 2048; micro_batch_size 1; gradient_accumulation_steps 4; "
    "optimizer adamw_bnb_8bit; bf16 auto; gradient_checkpointing true",
    "mistral.yml": "base_model mistralai/Mistral-7B-v0.1; sequence_len 8192; micro_batch_size 2; "
    "gradient_accumulation_steps 4; optimizer adamw_bnb_8bit; bf16 auto; gradient_checkpointing true",
    "phi2.yml": "base_model microsoft/phi-2; sequence_len 2048; micro_batch_size 2; "
    "gradient_accumulation_steps 1; optimizer adamw_torch_fused; bf16 auto; gradient_checkpointing true",
    "fsdp.yml": "base_model Qwen/Qwen3-8B; load_in_4bit true; adapter qlora; lora_r 32; lora_dropout 0.05; "
    "lora_target_linear true; sequence_len 2048; micro_batch_size 1; gradient_accumulation_steps 4; "
    "optimizer adamw_torch_fused; bf16 auto; gradient_checkpointing true; fsdp [full_shard, auto_wrap]; "
    "fsdp_config.fsdp_offload_params true; fsdp_config.fsdp_sharding_strategy FULL_SHARD",
    "gpt-oss.yml": "base_model openai/gpt-oss-20b; adapter lora; lora_r 8; lora_dropout 0.0; "
    "plugins [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]; lora_target_linear true; "
    "sequence_len 4096; micro_batch_size 1; gradient_accumulation_steps 8; optimizer adamw_torch_8bit; "
    "bf16 true; gradient_checkpointing true",
    # LLaMA-Factory's examples/
    "lora_sft.yaml": "model_name_or_path Qwen/Qwen3-4B-Instruct-2507; stage sft; do_train true; "
    "finetuning_type lora; lora_rank 8; lora_target all; cutoff_len 2048; per_device_train_batch_size 1; "
    "gradient_accumulation_steps 8; num_train_epochs 3.0; bf16 true; resume_from_checkpoint null",
    "lora_dpo.yaml": "model_name_or_path Qwen/Qwen3-4B-Instruct-2507; stage dpo; finetuning_type lora; "
    "lora_rank 8; lora_target all; pref_beta 0.1; pref_loss sigmoid; cutoff_len 2048; "
    "per_device_train_batch_size 1; gradient_accumulation_steps 8; bf16 true",
    "pretrain.yaml": "model_name_or_path Qwen/Qwen3-4B-Instruct-2507; stage pt; finetuning_type lora; "
    "lora_rank 8; lora_target all; cutoff_len 2048; per_device_train_batch_size 1; "
    "gradient_accumulation_steps 8; bf16 true",
    "qlora.yaml": "model_name_or_path Qwen/Qwen3-4B-Instruct-2507; quantization_bit 4; quantization_method bnb; "
    "stage sft; finetuning_type lora; lora_rank 8; lora_target all; cutoff_len 2048; "
    "per_device_train_batch_size 1; gradient_accumulation_steps 8; bf16 true",
    "full.yaml": "model_name_or_path Qwen/Qwen3-4B-Instruct-2507; stage sft; finetuning_type full; "
    "deepspeed examples/deepspeed/ds_z3_config.json; cutoff_len 2048; per_device_train_batch_size 1; "
    "gradient_accumulation_steps 2; bf16 true",
    # torchtitan's train_configs/
    "debug_model.toml": "model.name 'llama3'; model.flavor 'debugmodel'; optimizer.name 'AdamW'; "
    "training.local_batch_size 8; training.seq_len 2048; training.max_norm 1.0; "
    "parallelism.data_parallel_shard_degree -1; parallelism.tensor_parallel_degree 1; "
    "activation_checkpoint.mode 'selective'; activation_checkpoint.selective_ac_option '2'; compile.enable false",
    "llama3_8b.toml": "model.name 'llama3'; model.flavor '8B'; optimizer.name 'AdamW'; "
    "training.local_batch_size 1; training.seq_len 8192; parallelism.data_parallel_shard_degree -1; "
    "parallelism.tensor_parallel_degree 1; activation_checkpoint.mode 'selective'; "
    "activation_checkpoint.selective_ac_option 'op'; compile.enable false; compile.components ['model', 'loss']",
    # litgpt's config_hub/
    "litgpt.yaml": "checkpoint_dir checkpoints/meta-llama/Llama-3.2-1B; precision bf16-true; quantize bnb.nf4; "
    "devices 1; num_nodes 1; lora_r 32; lora_dropout 0.05; lora_query true; lora_key false; lora_value true; "
    "train.global_batch_size 2; train.micro_batch_size 2; train.max_seq_length 512",
    # QwenLM's finetune/
    "ds_zero2.json": "zero_optimization.stage 2; zero_optimization.overlap_comm true; "
    "zero_optimization.reduce_bucket_size 2e8; zero_optimization.sub_group_size 1e9",
    # Unsloth's notebooks
    "notebook.py": """
from unsloth import FastLanguageModel, is_bfloat16_supported
length = 2048
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/llama-3-8b-bnb-4bit", max_seq_length=length, dtype=None, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(
    model, r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    lora_dropout=0, bias="none", use_gradient_checkpointing="unsloth", random_state=3407)
args = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=60,
    bf16=is_bfloat16_supported(), optim="adamw_8bit", report_to="none")
""",
}


def command_of(line: str) -> list[str]:
    """Return a row's line as arguments of `train`: a notebook is MODEL, and others are pasted."""
    words = shlex.split(line)
    if words[0] == "notebook.py":
        return words
    return ["--", *words]


def write_files(folder: Path) -> None:
    """Write FILES."""
    for name, facts in FILES.items():
        text = facts
        if name.endswith(".toml"):
            text = "".join(f"{fact.strip().replace(' ', ' = ', 1)}\n" for fact in facts.split(";"))
        elif not name.endswith(".py"):
            text = as_yaml(facts)
        (folder / name).write_text(text, encoding="utf-8")


def as_yaml(facts: str) -> str:
    """Return YAML of 'a b; c.d e'."""
    sections: dict[str, list[str]] = {}
    lines = []
    for fact in facts.split(";"):
        key, _, value = fact.strip().partition(" ")
        section, _, name = key.rpartition(".")
        if section:
            sections.setdefault(section, []).append(f"  {name}: {value}\n")
        else:
            lines.append(f"{key}: {value}\n")
    for section, of_section in sections.items():
        lines += [f"{section}:\n", *of_section]
    return "".join(lines)


# (what is pasted, the options of `train` that count the same).
QUICK_STARTS = [
    # TRL: its README, and the docstrings of its scripts
    ("trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name a/b --output_dir o",
     f"qwen2.5-0.5b -b 8 -c 1024 {TRL_FP32}"),
    ("trl dpo --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --dataset_name a/b --output_dir o",
     f"qwen2.5-0.5b -b 8 -c 1024 --pairs --reference-model {TRL_FP32}"),
    ("trl kto --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --dataset_name a/b --output_dir o",
     f"qwen2.5-0.5b -b 8 -c 1024 --reference-model {TRL_FP32}"),
    ("trl reward --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --dataset_name a/b",
     "qwen2.5-0.5b -c 1024 -b 8 --pairs --recompute full --dtype bf16 --param-dtype fp32"),
    ("trl grpo --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name a/b --reward_funcs accuracy_reward",
     f"qwen2.5-0.5b -b 8 {TRL_FP32}"),
    ("python trl/scripts/sft.py --model_name_or_path Qwen/Qwen2-0.5B-Instruct --num_train_epochs 1 --packing "
     "--per_device_train_batch_size 2 --gradient_accumulation_steps 8 --eos_token '<|im_end|>' --eval_strategy "
     "steps --eval_steps 100 --use_peft --lora_r 32 --lora_alpha 16 --push_to_hub",
     f"qwen2.5-0.5b {TRL} -b 2 -c 1024 --gradient-accumulation 8 --lora r=32 --autocast"),
    ("python trl/scripts/dpo.py --model_name_or_path Qwen/Qwen2-0.5B-Instruct --per_device_train_batch_size 2 "
     "--max_steps 1000 --gradient_accumulation_steps 8 --no_remove_unused_columns",
     f"qwen2.5-0.5b {TRL_FP32} -b 2 -c 1024 --gradient-accumulation 8 --pairs --reference-model"),
    ("python trl/scripts/kto.py --model_name_or_path=qwen2.5-1.5b --per_device_train_batch_size 8 "
     "--lr_scheduler_type=cosine --gradient_accumulation_steps 1 --warmup_steps 0.1 --logging_first_step "
     "--use_peft --load_in_4bit --lora_target_modules=all-linear --lora_r=16",
     f"qwen2.5-1.5b {TRL} -b 8 -c 1024 --reference-model --weights-dtype nf4 --lora r=16"),
    ("accelerate launch --config_file=examples/accelerate_configs/deepspeed_zero3.yaml trl/scripts/grpo.py "
     "--model_name_or_path Qwen/Qwen2.5-0.5B --max_completion_length 1024",
     "qwen2.5-0.5b --gpus 8 -b 8 -c 1024 --zero 3 --recompute full --dtype bf16 --loss fused"),
    # Axolotl
    ("axolotl train lora-1b.yml",
     f"llama3.2-1b -b 2 -c 2048 --gradient-accumulation 2 --optimizer adamw_8bit {AXOLOTL} --autocast "
     "--lora r=16,targets=gate+down+up+q+v+k+o,dropout=0.05"),
    ("axolotl train fft-8b.yml",
     f"llama3.1-8b -b 1 -c 8192 --gradient-accumulation 8 {AXOLOTL} --optimizer paged_adamw_8bit "
     "--param-dtype bf16 --no-master-weights"),
    ("axolotl train qlora-8b.yml",
     f"llama3-8b -b 2 -c 4096 --gradient-accumulation 4 {AXOLOTL} --optimizer paged_adamw_32bit "
     "--weights-dtype nf4 --lora r=32,dropout=0.05"),
    ("axolotl train lora-8bit.yml",
     f"llama2-7b -b 2 -c 4096 --gradient-accumulation 4 {AXOLOTL} --optimizer adam8bit --weights-dtype int8 "
     "--lora r=32,dropout=0.05"),
    ("axolotl train dpo.yml",
     f"qwen2.5-0.5b -b 2 -c 2048 --gradient-accumulation 4 {AXOLOTL} --optimizer adam8bit --pairs "
     "--reference-model --param-dtype bf16 --no-master-weights"),
    ("axolotl train kto.yml",
     f"llama3.2-1b -b 2 -c 2048 {AXOLOTL} --optimizer adam8bit --reference-model --weights-dtype nf4 "
     "--lora r=32,dropout=0.05"),
    ("axolotl train reward.yml",
     f"qwen2.5-0.5b -b 2 -c 2048 --gradient-accumulation 4 {AXOLOTL} --optimizer adam8bit --pairs "
     "--param-dtype bf16 --no-master-weights"),
    ("axolotl train gemma2.yml",
     f"gemma2-9b -b 1 -c 2048 --gradient-accumulation 4 {AXOLOTL} --optimizer adam8bit --weights-dtype nf4 "
     "--lora r=32,dropout=0.05"),
    ("axolotl train mistral.yml",
     f"mistral-7b-v0.1 -b 2 -c 8192 --gradient-accumulation 4 {AXOLOTL} --optimizer adam8bit "
     "--param-dtype bf16 --no-master-weights"),
    ("axolotl train phi2.yml", f"phi-2 -b 2 -c 2048 {AXOLOTL} --param-dtype bf16 --no-master-weights --optimizer-dtype bf16"),
    ("accelerate launch -m axolotl.cli.train fsdp.yml",
     f"qwen3-8b -b 1 -c 2048 --gradient-accumulation 4 {AXOLOTL} --weights-dtype nf4 --lora r=32,dropout=0.05 "
     "--fsdp --offload optimizer,params"),
    ("axolotl train gpt-oss.yml",
     f"gpt-oss-20b -b 1 -c 4096 --gradient-accumulation 8 {AXOLOTL} --optimizer adam8bit --loss fused "
     "--lora r=8 --autocast"),
    # LLaMA-Factory
    ("llamafactory-cli train lora_sft.yaml",
     f"qwen3-4b {FACTORY} -b 1 --gradient-accumulation 8 --lora r=8 --autocast"),
    ("llamafactory-cli train lora_dpo.yaml",
     f"qwen3-4b {FACTORY} -b 1 --gradient-accumulation 8 --lora r=8 --autocast --pairs --reference-model"),
    ("llamafactory-cli train pretrain.yaml",
     f"qwen3-4b {FACTORY} -b 1 --gradient-accumulation 8 --lora r=8 --autocast"),
    ("llamafactory-cli train qlora.yaml",
     f"qwen3-4b {FACTORY} -b 1 --gradient-accumulation 8 --weights-dtype nf4 --no-kbit-upcast --double-quant "
     "--lora r=8 --autocast"),
    ("FORCE_TORCHRUN=1 llamafactory-cli train full.yaml",
     f"qwen3-4b {FACTORY} -b 1 --gradient-accumulation 2 --zero 3"),
    # torchtune
    ("tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device",
     f"llama3.1-8b -b 2 --gradient-accumulation 8 {TUNE_LORA} --lora r=8,{TUNE_TARGETS}"),
    ("tune run lora_finetune_single_device --config llama3_2/3B_qlora_single_device batch_size=1 "
     "tokenizer.max_seq_len=1024",
     f"llama3.2-3b -b 1 -c 1024 --gradient-accumulation 8 {TUNE_LORA} --weights-dtype nf4 --no-kbit-upcast "
     f"--lora r=64,{TUNE_TARGETS}"),
    ("tune run --nproc_per_node 2 full_finetune_distributed --config llama3_1/8B_full",
     f"llama3.1-8b --gpus 2 -b 2 {TUNE} {IN_BF16} --fsdp"),
    ("tune run full_finetune_single_device --config llama3_1/8B_full_single_device",
     f"llama3.1-8b -b 2 {TUNE} --dtype bf16 --param-dtype bf16 --no-master-weights --optimizer paged_adamw_8bit "
     "--optimizer-in-backward"),
    ("tune run lora_dpo_single_device --config llama3_1/8B_lora_dpo_single_device",
     "llama3.1-8b -b 4 -c 1024 --gradient-accumulation 8 --recompute full --dtype bf16 --param-dtype bf16 "
     f"--optimizer-dtype bf16 --pairs --reference-model --lora r=8,{TUNE_TARGETS}"),
    ("tune run full_finetune_single_device --config llama2/7B_full_low_memory",
     f"llama2-7b -b 2 {TUNE} --dtype bf16 --param-dtype bf16 --no-master-weights --optimizer paged_adamw_32bit "
     "--optimizer-in-backward --offload activations"),
    # torchtitan
    ("NGPU=1 CONFIG_FILE=./debug_model.toml ./run_train.sh",
     "--d-model 256 --layers 6 --heads 16 --d-ff 768 --vocab-size 2048 -b 8 -c 2048 --dtype bf16 "
     "--param-dtype fp32 --expandable-segments"),
    ("CONFIG_FILE=./llama3_8b.toml ./run_train.sh",
     "llama3-8b --gpus 8 -b 1 -c 8192 --dtype bf16 --fsdp --recompute op --expandable-segments"),
    ("torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b",
     "llama3-8b --gpus 8 -b 1 -c 8192 --dtype bf16 --fsdp --recompute op --loss chunked"),
    # litgpt
    ("litgpt finetune_lora microsoft/phi-2 --data JSON --data.json_path a.json --out_dir o",
     "phi-2 -b 1 --gradient-accumulation 16 --dtype bf16 --lora r=8,targets=q+v,dropout=0.05 --autocast "
     "--fused-gelu"),
    ("litgpt finetune_lora --config litgpt.yaml",
     "llama3.2-1b -b 2 -c 512 --dtype bf16 --param-dtype bf16 --optimizer-dtype bf16 --recompute none "
     "--weights-dtype nf4 --no-kbit-upcast --lora r=32,targets=q+v,dropout=0.05"),
    ("litgpt pretrain EleutherAI/pythia-160m --tokenizer_dir EleutherAI/pythia-160m --data TextFiles "
     "--data.train_data_path t/ --train.max_tokens 10_000_000 --out_dir o",
     "pythia-160m -b 4 --gradient-accumulation 128 --dtype bf16 --param-dtype fp32 --compile"),
    # Unsloth
    ("notebook.py",
     f"llama3-8b -b 2 -c 2048 --gradient-accumulation 4 {UNSLOTH} --optimizer adam8bit "
     f"--lora r=16,{UNSLOTH_TARGETS}"),
    ("python unsloth-cli.py --model_name unsloth/llama-3-8b --max_seq_length 8192 --load_in_4bit --r 64 "
     "--lora_dropout 0.1 --bias none --use_rslora --random_state 3407 --per_device_train_batch_size 4",
     f"llama3-8b -b 4 -c 8192 --gradient-accumulation 4 {UNSLOTH} --optimizer adam8bit "
     "--lora r=64,targets=q+k+v+o+gate+up+down,dropout=0.1"),
    # DeepSpeed-Chat, the first step
    ("deepspeed --num_gpus 1 main.py --model_name_or_path facebook/opt-1.3b --gradient_accumulation_steps 8 "
     "--lora_dim 128 --zero_stage 0 --enable_tensorboard --tensorboard_path o --deepspeed --output_dir o",
     "opt-1.3b -b 16 -c 512 --gradient-accumulation 8 --dtype fp16 --zero 0"),
    ("deepspeed --num_gpus 8 main.py --data_path a b c --data_split 2,4,4 --model_name_or_path facebook/opt-13b "
     "--per_device_train_batch_size 4 --max_seq_len 512 --num_train_epochs 16 --gradient_checkpointing "
     "--zero_stage 3 --lora_dim 128 --lora_module_name decoder.layers. --deepspeed --output_dir o",
     "opt-13b --gpus 8 -b 4 -c 512 --dtype fp16 --zero 3 --recompute full"),
    ("deepspeed --num_gpus 8 main.py --model_name_or_path llama2-7b --per_device_train_batch_size 8 "
     "--max_seq_len 512 --gradient_checkpointing --zero_stage 3 --offload --deepspeed --lora_dim 0",
     "llama2-7b --gpus 8 -b 8 -c 512 --dtype fp16 --zero 3 --recompute full --offload optimizer,params"),
    ("deepspeed --num_gpus 1 main.py --actor_model_name_or_path facebook/opt-1.3b --critic_model_name_or_path "
     "facebook/opt-350m --actor_zero_stage 0 --critic_zero_stage 0 --num_padding_at_beginning 1 "
     "--gradient_accumulation_steps 2 --deepspeed --actor_lora_dim 128 --enable_hybrid_engine "
     "--actor_gradient_checkpointing --output_dir o",
     "opt-1.3b -b 16 -c 512 --gradient-accumulation 2 --dtype fp16 --zero 0 --recompute full"),
    ("deepspeed --num_gpus 4 finetune.py --deepspeed ds_zero2.json --model_name_or_path qwen3-8b --use_lora "
     "--lora_r 64 --modules_to_save embed_tokens lm_head",
     "qwen3-8b --gpus 4 --zero 2 --lora r=64 --modules-to-save embedding+lm_head --reduce-bucket-size 2e8 "
     "--overlap-comm"),
    # Megatron-LM
    ("torchrun --nproc_per_node 8 pretrain_gpt.py --model qwen3-30b-a3b --tensor-model-parallel-size 2 "
     "--sequence-parallel --use-distributed-optimizer --bf16 --seq-length 4096 --micro-batch-size 1 "
     "--recompute-granularity selective --recompute-modules core_attn moe_act layernorm",
     "qwen3-30b-a3b --gpus 8 --tp 2 --sequence-parallel --zero 1 --dtype bf16 -c 4096 -b 1 --recompute selective "
     "--recompute-modules core_attn+moe_act+layernorm"),
    ("torchrun --nproc_per_node 8 pretrain_gpt.py --model llama3-8b --tensor-model-parallel-size 4 "
     "--pipeline-model-parallel-size 2 --bf16 --seq-length 4096 --micro-batch-size 1 --recompute-granularity full "
     "--recompute-method block --recompute-num-layers 8",
     "llama3-8b --gpus 8 --tp 4 --pp 2 --dtype bf16 -c 4096 -b 1 --recompute full --recompute-method block "
     "--recompute-num-layers 8"),
    # Megatron-Bridge
    ("./scripts/training/train.sh --nodes 1 --gpus-per-node 8 --account a --partition p --container-image i "
     "--recipe llama32_1b_pretrain_config --mode pretrain --dataset mock",
     "llama3.2-1b --gpus 8 -b 1 -c 8192 --global-batch 512 --dtype bf16 --zero 1 --grad-dtype fp32"),
    ("torchrun --nproc_per_node 2 scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config "
     "train.global_batch_size=64",
     "llama3-8b --gpus 2 --cp 2 -b 1 -c 8192 --global-batch 64 --dtype bf16 --zero 1 --grad-dtype fp32"),
]  # fmt: skip


@each(("line", "options"), QUICK_STARTS)
def test_a_quick_start_has_the_figures_of_its_options(
    line: str, options: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    command = command_of(line)
    answer = ask("train", "--json", "--gpu", "h200", *command)
    assert answer.code != 2, answer.err
    assert "not understood" not in answer.err
    same = ask("train", "--json", "--gpu", "h200", *options.split())
    assert same.code != 2, same.err
    assert answer.document["run"] == same.document["run"]
    assert answer.document["parallel"] == same.document["parallel"]
    assert answer.document["values"] == same.document["values"]


# (how a line of QUICK_STARTS begins, its figures in bytes).
GOLDEN = [
    (
        "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B",
        # 494,032,768 parameters in fp32: 4 B, and gradients as many; two moments of 4 B.
        # Under autocast the residual stream is in fp32: inputs of 24 layers, 8 x 1,024 tokens of 896 elements of 4 B.
        # The chunked head keeps no logits.
        {"weights": 1_976_131_072, "gradients": 1_976_131_072, "optimizer_states": 3_952_262_144,
         "activations_attention": 704_643_072, "logits": 0},
    ),
    (
        "axolotl train fft-8b.yml",
        # 8,030,261,248 parameters in bf16, gradients too. Moments of 8 bits: 2 B, and 8 B of scales per 256.
        # Inputs of 32 layers, 8,192 tokens of 4,096 elements of 2 B.
        {"weights": 16_060_522_496, "gradients": 16_060_522_496, "optimizer_states": 16_311_468_160,
         "activations_attention": 2_147_483_648},
    ),
    (
        "llamafactory-cli train lora_sft.yaml",
        # Adapters of rank 8 of a layer: q and o 8 (2,560 + 4,096) each, k and v 8 (2,560 + 1,024), gate, up and down
        # 8 (2,560 + 9,728): 458,752, of 36 layers 16,515,072, in fp32. Frozen: 4,022,468,096 in bf16.
        # Inputs of 36 layers, 2,048 tokens of 2,560 elements of 2 B.
        {"weights": 2 * 4_022_468_096 + 66_060_288, "gradients": 66_060_288, "optimizer_states": 132_120_576,
         "activations_attention": 377_487_360},
    ),
    (
        "tune run lora_finetune_single_device --config llama3_1/8B",
        # Adapters of rank 8 of a layer: q and o 8 (4,096 + 4,096), v 8 (4,096 + 1,024), gate, up and down
        # 8 (4,096 + 14,336): 614,400, of 32 layers 19,660,800. Everything is in bf16, moments too.
        # Inputs of 32 layers, 2 x 4,096 tokens of 4,096 elements of 2 B.
        {"weights": 2 * (8_030_261_248 + 19_660_800), "gradients": 39_321_600, "optimizer_states": 78_643_200,
         "activations_attention": 2_147_483_648},
    ),
    (
        "tune run --nproc_per_node 2 full_finetune_distributed",
        # Half of 8,030,261,248 parameters on each GPU: 2 B each, and two moments of 2 B. The chunks' logits are freed.
        {"weights": 8_030_261_248, "optimizer_states": 16_060_522_496, "logits": 0},
    ),
    (
        "NGPU=1 CONFIG_FILE=./debug_model.toml",
        # Embedding and head 2 x 2,048 x 256; of a layer q, k, v and o 4 x 256^2, the MLP 3 x 256 x 768, norms 2 x 256;
        # the last norm 256: 6,163,712 parameters in fp32. Logits of 8 x 2,048 tokens and 2,048 words in fp32.
        {"weights": 24_654_848, "gradients": 24_654_848, "optimizer_states": 49_309_696, "logits": 134_217_728},
    ),
    (
        "CONFIG_FILE=./llama3_8b.toml",
        # An eighth of 8,030,261,248 parameters, in fp32, and of two moments.
        {"weights": 4_015_130_624, "gradients": 4_015_130_624, "optimizer_states": 8_030_261_248},
    ),
    (
        "litgpt pretrain EleutherAI/pythia-160m",
        # 162,322,944 parameters in fp32, and two moments.
        {"weights": 649_291_776, "gradients": 649_291_776, "optimizer_states": 1_298_583_552},
    ),
    (
        "notebook.py",
        # Matrices of a layer: q and o 4,096^2, k and v 4,096 x 1,024, MLP 3 x 4,096 x 14,336: 218,103,808; of 32 layers
        # 6,979,321,856, in nf4 half a byte, a scale of 4 B per 64, and 64 B of codes for each of 224 matrices. The
        # other 1,050,939,392 in bf16. Adapters of rank 16: 41,943,040 in fp32, with moments of 8 bits.
        {"weights": 3_489_660_928 + 436_207_616 + 224 * 64 + 2_101_878_784 + 167_772_160,
         "gradients": 167_772_160, "optimizer_states": 85_196_800, "logits": 0},
    ),
    (
        "deepspeed --num_gpus 1 main.py --model_name_or_path facebook/opt-1.3b",
        # 1,315,758,080 parameters in fp16, gradients too; fp32 copies and two moments, 12 B.
        {"weights": 2_631_516_160, "gradients": 2_631_516_160, "optimizer_states": 15_789_096_960},
    ),
    (
        "./scripts/training/train.sh --nodes 1 --gpus-per-node 8",
        # 1,235,814,400 parameters in bf16, gradients in fp32; an eighth of 12 B per parameter.
        {"weights": 2_471_628_800, "gradients": 4_943_257_600, "optimizer_states": 1_853_721_600},
    ),
]  # fmt: skip


@each(("beginning", "figures"), GOLDEN)
def test_a_quick_start_has_the_figures_by_hand(
    beginning: str,
    figures: dict[str, int],
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    (line,) = [line for line, _ in QUICK_STARTS if line.startswith(beginning)]
    command = command_of(line)
    values = ask("train", "--json", "--gpu", "h200", *command).document["values"]
    assert {name: values[name] for name in figures} == figures


@each(
    ("line", "note"),
    [
        (
            "tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device",
            "torchtune finds tokenizer.max_seq_len in the data or on the machine",
        ),
        ("python sft.py --model_name_or_path qwen3-0.6b", "sft.py is read as the script of TRL"),
        ("axolotl train fft-8b.yml", "NousResearch/Meta-Llama-3.1-8B is counted as llama3.1-8b"),
        (
            "NGPU=1 CONFIG_FILE=./debug_model.toml ./run_train.sh",
            "of every 2 layers one is recomputed, but the activations of all are counted",
        ),
        (
            "deepspeed main.py --model_name_or_path opt-1.3b --lora_dim 128 --deepspeed",
            "adapters of rank 128 beside the trained weights are not counted",
        ),
        (
            "torchrun pretrain_gpt.py --model llama3-8b --recompute-granularity selective "
            "--recompute-method block --recompute-num-layers 4",
            "recompute_method and recompute_num_layers need each other",
        ),
        (
            "tune run qat_distributed --config llama3_1/8B_qat_full",
            "of llama3_1/8B_qat_full only the name is known: not its settings",
        ),
        ("python x.py --model qwen3-0.6b --num_train_epochs 3", "not used: --num-train-epochs"),
        (
            "python unsloth-cli.py --model_name unsloth/llama-3-8b --load_in_4bit",
            "inputs of layers that move to host memory are counted on the GPU",
        ),
        ("litgpt finetune_lora llama3.2-1b --devices auto", "may change memory: --devices"),
        ("trl rloo --model qwen3-0.6b", "what trl rloo does by default is not known here"),
        ("python x.py --model qwen3-0.6b --modules_to_save lm_head", "there are no adapters"),
        (
            "python x.py --model qwen3-0.6b --activation_offloading true",
            "activations that are offloaded without checkpointing are counted on the GPU",
        ),
    ],
)
def test_what_is_counted_otherwise_is_named(
    line: str, note: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    answer = ask("train", "--gpu", "h200", "--", *line.split())
    assert answer.code != 2, answer.err
    assert note in answer.err


@each(
    ("line", "error"),
    [
        ("litgpt finetune_adapter_v2 meta-llama/Llama-3.2-1B", "what LLaMA-Adapter's layers need"),
        (
            "torchrun -m torchtitan.train --module llama3 --config llama3_9b",
            "torchtitan's configuration llama3_9b is not known here",
        ),
        (
            "torchrun run_recipe.py --recipe foo_config",
            "megatron-bridge's configuration foo_config",
        ),
        ("axolotl train broken.yml", "broken.yml:2: not YAML"),
        ("broken.toml", "broken.toml is no file of a trainer that is known here"),
        ("NGPU=abc ./run_train.sh", "NGPU: 'abc' is not a whole number"),
        ("./train.sh --recipe", "--recipe needs a value"),
        ("trl sft --model qwen3-8b --deepspeed", "--deepspeed needs a value"),
        ("deepspeed main.py --lora_dim x --model opt-1.3b", "lora_dim: 'x' is not a whole number"),
        ("python e2e_rlhf.py --actor-model facebook/opt-13b", "a model is required"),
    ],
)
def test_a_launch_that_is_not_known_is_one_error(
    line: str, error: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.yml").write_text("base_model: [", encoding="utf-8")
    Path("broken.toml").write_text("[model", encoding="utf-8")
    assert f"error: {error}" in ask("train", "--", *line.split()).err


@each(
    ("name", "text", "error"),
    [
        (
            "nb.py",
            "model = FastLanguageModel.from_pretrained('llama3-8b', max_seq_length=n + 1)",
            "nb.py:1: max_seq_length is computed, and no program is run",
        ),
        ("nb.py", "def f(:", "nb.py cannot be read as Python"),
        ("nb.py", "print(1)", "nb.py sets up no training that is known here"),
        ("nb.ipynb", "{}", "nb.ipynb cannot be read as Python"),
        (
            "nb.ipynb",
            '{"cells": [{"cell_type": "code", "source": 5}]}',
            "nb.ipynb cannot be read as Python",
        ),
    ],
)
def test_a_program_whose_settings_are_not_written_out_is_one_error(
    name: str, text: str, error: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text, encoding="utf-8")
    assert ask("train", name).error.startswith(f"error: {error}")


def test_a_notebook_is_read_without_its_shell_commands(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    code = FILES["notebook.py"]
    cells = [
        {"cell_type": "code", "source": ["%%capture\n", "!pip install unsloth"]},
        {"cell_type": "markdown", "source": ["# A title ("]},
        {"cell_type": "code", "source": code.splitlines(keepends=True)},
    ]
    Path("notebook.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert ask("train", "notebook.ipynb").out == ask("train", "notebook.py").out


@each(
    ("line", "keys"),
    [
        ("axolotl train mistral.yml", "sequence_len: "),
        ("trl sft --model_name_or_path qwen3-8b", "--num_processes 4 --zero_stage 3"),
        (
            "trl sft --model_name_or_path qwen3-8b --gradient_checkpointing false",
            "--gradient_checkpointing true",
        ),
        ("llamafactory-cli train full.yaml", "finetuning_type: lora, lora_rank: 16"),
        (
            "python x.py --model qwen3-8b --per_device_train_batch_size 4 --torch_dtype bfloat16",
            "--gradient_checkpointing true",
        ),
        (
            "tune run full_finetune_single_device --config llama3_2/1B_full_single_device",
            "enable_activation_checkpointing=True",
        ),
        (
            "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config qwen3_14b",
            "--training.local_batch_size 1",
        ),
        ("notebook.py", "per_device_train_batch_size = 1"),
    ],
)
def test_what_makes_a_launch_fit_is_offered_in_its_own_keys(
    line: str, keys: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    command = command_of(line)
    gpus = ["h100", "a100-40gb", "rtx-4090", "12GB", "10GB", "9GB"]
    offered = []
    for gpu in gpus:
        for one in ask("train", "--json", "--gpu", gpu, *command).document["suggestions"]:
            offered.append(one["launch_keys"])
            assert not {"--recompute", "-b", "-c"} & set(one["launch_keys"].split())
    assert any(keys in one for one in offered), offered


def test_options_that_are_typed_are_answered_in_options(ask: Ask) -> None:
    answer = ask("train", "llama3-8b", "--gpu", "h100", "--json").document
    assert [one["launch_keys"] for one in answer["suggestions"]] == [None] * len(
        answer["suggestions"]
    )


@each(
    ("text", "error"),
    [
        # an argument that two calls have with different values
        (
            "a = TrainingArguments(per_device_train_batch_size=4)\n"
            "b = TrainingArguments(per_device_train_batch_size=2)",
            "x.py:2: per_device_train_batch_size has two values",
        ),
        (
            "m = AutoModel.from_pretrained('gpt2')\nr = AutoModel.from_pretrained('qwen3-0.6b')",
            "x.py:2: model_name has two values",
        ),
        # a variable that changes later
        ("N = 2\nN += 1\na = TrainingArguments(per_device_train_batch_size=N)", "x.py:3: per_device_train"),
        ("N = 2\ndef f():\n  global N\n  N = 3\na = TrainingArguments(r=N)", "x.py:5: r is computed"),
    ],
)  # fmt: skip
def test_a_setting_of_a_program_with_two_values_is_one_error(
    text: str, error: str, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.py").write_text(text, encoding="utf-8")
    assert ask("train", "x.py").error.startswith(f"error: {error}")


def test_what_a_program_computes_is_named(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    program = "m = AutoModel.from_pretrained(NAME)\na = TrainingArguments(r=8, **more)"
    Path("x.py").write_text(program, encoding="utf-8")
    assert "note: not read of x.py: model_name, **more\n" in ask("train", "x.py").err
