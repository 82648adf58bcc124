"""Measure whole training steps of transformers' classes on a GPU, next to what `attncalc train`
predicts.

    python tools/measure_training.py -o docs/measured/h100-training.json

Each run builds the class of a config of tests/data/huggingface.json with random weights, at its
full number of layers unless a run has fewer, and trains it for three steps in a process of its own.
It needs transformers, peft for LoRA, and bitsandbytes for nf4 and its optimizers.
"""

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import training_oracle

from attncalc.verify.transformers.training_check import shortened

ROOT = Path(__file__).parent.parent
STEPS = 3
# Decides cuBLAS's workspaces, which all Hopper GPUs have in common.
GPU = "h100-80gb"
# Rows from which a matrix of these models is an embedding.
VOCABULARY = 60_000
# Seconds for a run.
LIMIT = 150
# The runs: a config, with fewer layers where it is large, and the options of `attncalc train`.
#
# Words of `mode`: kbit (peft's prepare_model_for_kbit_training), autocast, compile model or layers,
# all kernels (SDPA chooses), varied (lengths).
KNOWN = ROOT / "tests" / "data" / "training" / "h200.json"
# The sizes of https://huggingface.co/meta-llama/Llama-3.2-1B/blob/main/config.json.
EXTRA = {
    "llama-3.2-1b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-05,
        "torch_dtype": "bfloat16",
    }
}
# peft's names of the matrices that a run names; a run that names none has all linear layers.
TARGETS = {"W_q": "q_proj", "W_v": "v_proj"}


def config_of(name: str) -> dict[str, Any]:
    """Return the config of a run.

    'olmo2-7b --layers 4' has 4 layers, 'laguna --layers 2 --num_experts 16' other fields too; a
    name without a released config is a model_type, whose class has defaults.
    """
    name, *changes = name.split(" --")
    config = dict(EXTRA.get(name) or training_oracle.config_of(name))
    for field, value in (change.split() for change in changes):
        if field == "layers":
            config = shortened(config, int(value))
        else:
            config[field] = int(value)
    return config


def predicted(config: dict[str, Any], options: str) -> dict[str, Any]:
    """Return the answer of `attncalc train`: its facts, and its figures by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        command = [
            sys.executable,
            "-m",
            "attncalc",
            "train",
            str(path),
            *options.split(),
            "--gpu",
            GPU,
            "--json",
        ]
        answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if not answer.stdout:
        raise RuntimeError(answer.stderr.strip())
    document: dict[str, Any] = json.loads(answer.stdout)
    return document | {row["name"]: row["value"] for row in document["results"]}


def measure(
    config: dict[str, Any], run: dict[str, Any], workload: dict[str, Any], limit: int | None = None
) -> dict[str, Any]:
    """Train for some steps on the GPU, and return the memory at the peak of the last one.

    With a limit, the allocator reserves at most so many bytes.
    """
    import torch

    mode = run["mode"]
    if "--expandable-segments" in run["options"]:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    free, total = torch.cuda.mem_get_info()
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit / total)
    context = total - free - torch.cuda.memory_reserved()
    kernel = run["kernel"]
    dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32}
    is_mixed = not run["lora_rank"] and run["param_dtype"] != workload["dtype"]
    dtype = dtypes[run["param_dtype"] if is_mixed else workload["dtype"]]
    model = _built(config, run, dtype)
    trained = [p for p in model.parameters() if p.requires_grad]
    if "--optimizer-in-backward" in run["options"]:
        optimizers = []
        for parameter in trained:
            own = _optimizers([parameter], run)[0]
            parameter.register_post_accumulate_grad_hook(
                lambda _, own=own: (own.step(), own.zero_grad())
            )
    else:
        optimizers = _optimizers(trained, run)
    batch = workload["batch"]
    tokens = workload["context"]
    _allow(["flash", "efficient"] if {"kernels", "model"} & set(mode) else [kernel])
    called = _compiled(model, mode)
    seconds = []
    after_loading = torch.cuda.memory_stats()["requested_bytes.all.current"]
    for length in _lengths(tokens, mode):
        ids = torch.randint(config["vocab_size"], (batch, length), device="cuda")
        torch.cuda.synchronize()
        if length == tokens:
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        for _ in range(run["gradient_accumulation"]):
            with torch.autocast("cuda", torch.bfloat16, enabled=is_mixed or "autocast" in mode):
                output = called(input_ids=ids, labels=ids, use_cache=False)
            loss = output.loss
            if "--hold-logits" not in run["options"]:
                del output
            loss.backward()
            del loss
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    return {
        "gpu": torch.cuda.get_device_name(),
        "class": type(model.get_base_model() if run["lora_rank"] else model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained": sum(p.numel() for p in trained),
        "loaded": after_loading,
        "requested": stats["requested_bytes.all.peak"],
        "allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "between_steps": stats["requested_bytes.all.current"],
        "driver": total - free,
        "cuda_context": context,
        "retries": stats["num_alloc_retries"],
        "seconds": round(min(seconds[1:]), 4),
    }


def _allow(kernels: list[str]) -> None:
    """Let SDPA choose among kernels: not in a context, since recomputed layers and the compiler
    must see it too.
    """
    import torch

    torch.backends.cuda.enable_flash_sdp("flash" in kernels or "eager" in kernels)
    torch.backends.cuda.enable_mem_efficient_sdp("efficient" in kernels)
    torch.backends.cuda.enable_math_sdp("math" in kernels)
    torch.backends.cuda.enable_cudnn_sdp("cudnn" in kernels)


def _compiled(model: Any, mode: list[str]) -> Any:
    """Return the model with its layers compiled, or compiled whole, or as it is."""
    import torch

    if "layers" in mode:
        for layer in next(
            module for name, module in model.named_modules() if name.endswith(("layers", ".h"))
        ):
            layer.compile(dynamic=False)
    if "model" in mode:
        return torch.compile(model, dynamic=False)
    return model


def _lengths(tokens: int, mode: list[str]) -> list[int]:
    """Return the tokens of each step: random ones up to the longest, which come twice, if they
    vary.
    """
    if "varied" not in mode:
        return [tokens] * STEPS
    draw = random.Random(0)
    lengths = [draw.randint(tokens // 8, tokens) for _ in range(18)]
    lengths[5] = lengths[13] = tokens
    return lengths


def _optimizers(trained: list[Any], run: dict[str, Any]) -> list[Any]:
    """Return the optimizers of a run: torch's, and bitsandbytes' for 8-bit AdamW and Lion."""
    import torch

    # Not keywords of one call: torch takes fused or foreach, and neither for its loop.
    how = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}[
        run["optimizer_step"]
    ]
    name = run["optimizer"]
    if name in ("adam8bit", "lion"):
        import bitsandbytes

        return [
            (bitsandbytes.optim.AdamW8bit if name == "adam8bit" else bitsandbytes.optim.Lion32bit)(
                trained, lr=1e-6
            )
        ]
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return [
            Adafactor(
                trained, lr=1e-6, relative_step=False, scale_parameter=False, warmup_init=False
            )
        ]
    if name == "muon":
        hidden = [p for p in trained if p.ndim == 2 and max(p.shape) < VOCABULARY]
        rest = [p for p in trained if not any(p is other for other in hidden)]
        return [torch.optim.Muon(hidden, lr=1e-6), torch.optim.AdamW(rest, lr=1e-6, **how)]
    if name == "adamw":
        return [torch.optim.AdamW(trained, lr=1e-6, **how)]
    return [torch.optim.SGD(trained, lr=1e-6, momentum=0.9 if name == "momentum" else 0, **how)]


def _built(config: dict[str, Any], run: dict[str, Any], dtype: Any) -> Any:
    """Return the class of a config on the GPU, with random weights, without dropout, with the
    adapters of the run.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    model_type = config["model_type"]
    hf_config = AutoConfig.for_model(
        model_type, **{k: v for k, v in config.items() if k != "model_type"}
    )
    for field in [name for name in vars(hf_config) if "dropout" in name or "pdrop" in name]:
        if isinstance(getattr(hf_config, field), float):
            setattr(hf_config, field, 0.0)
    attention = "eager" if run["kernel"] == "eager" else "sdpa"
    is_nf4 = "nf4" in run["options"]
    with torch.device("meta" if is_nf4 else "cuda"), no_init_weights():
        model = AutoModelForCausalLM.from_config(
            hf_config, dtype=dtype, attn_implementation=attention
        ).train()
    if is_nf4:
        _quantize(model, hf_config, dtype, double_quant="--double-quant" in run["options"])
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.normal_(std=0.02)
        del parameter  # or what is tied below would be held
    model.tie_weights()
    if run["recompute"] == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if run["lora_rank"]:
        return _with_adapters(model, run)
    return model


def _with_adapters(model: Any, run: dict[str, Any]) -> Any:
    """Return the model with LoRA's adapters, which are in 16 bits if the run says so."""
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    is_all = len(run["lora_targets"]) > len(TARGETS)
    targets = "all-linear" if is_all else [TARGETS[name] for name in run["lora_targets"]]
    is_recomputed = run["recompute"] == "full"
    if "kbit" in run["mode"]:
        model.is_loaded_in_4bit = True
        how = {"use_reentrant": False} if is_recomputed else None
        model = prepare_model_for_kbit_training(model, is_recomputed, how)
    elif is_recomputed:
        model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=run["lora_rank"], target_modules=targets))
    for parameter in model.parameters():
        in_16_bits = parameter.requires_grad and run["param_dtype"] == "bf16"
        parameter.data = parameter.data.to("cuda", torch.bfloat16 if in_16_bits else None)
    return model


def _quantize(model: Any, hf_config: Any, dtype: Any, *, double_quant: bool) -> None:
    """Give a model without memory matrices in nf4, and other weights, on the GPU; no weight is
    trained.
    """
    import torch
    from bitsandbytes.nn import Linear4bit, Params4bit

    def replace(name: str, value: Any) -> None:
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, value)

    head = model.get_output_embeddings()
    how = {"compress_statistics": double_quant, "quant_type": "nf4"}
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and module is not head:
            size = (module.in_features, module.out_features)
            new = Linear4bit(
                *size, module.bias is not None, compute_dtype=dtype, device="meta", **how
            )
            weight = torch.randn(size[::-1], dtype=dtype, device="cuda")
            new.weight = Params4bit(weight, requires_grad=False, module=new, **how).to("cuda")
            replace(name, new)
        elif "RotaryEmbedding" in type(module).__name__:
            with torch.device("cuda"):
                replace(name, type(module)(hf_config))
    for name, parameter in list(model.named_parameters()):
        if parameter.is_meta:
            replace(name, torch.nn.Parameter(torch.empty_like(parameter, device="cuda")))
    model.requires_grad_(False)


def least(name: str, options: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the fewest reserved bytes with which a run ends, within 0.4 % of what it allocates."""
    row = run_in_a_process(name, options, answer)
    if "error" in row:
        return row
    below = row["measured"]["requested"]
    enough = row["measured"]["reserved"]
    while enough - below > 0.004 * row["measured"]["requested"]:
        limit = (below + enough) // 2
        failed = "error" in run_in_a_process(name, options, answer, limit)
        below, enough = (limit, enough) if failed else (below, limit)
    return {**row, "least": enough}


def run_in_a_process(
    name: str, options: str, answer: dict[str, Any], limit: int | None = None
) -> dict[str, Any]:
    """Return one run, predicted and measured, or the error that it ended in.

    The process is forked before this one has used the GPU, so that it need not import transformers
    again.
    """
    step = options.partition("--optimizer-step ")[2].split()
    facts = {
        "optimizer_step": step[0] if step else "fused",
        "options": options.split(),
        "mode": answer["mode"],
    }
    run = {**answer["run"], **facts}
    named = (
        "allocated",
        "weights",
        "optimizer_states",
        "activations",
        "logits",
        "temporary",
        "flops_per_step",
    )
    row: dict[str, Any] = {"model": name, "options": options}
    row["predicted"] = {key: answer[key] for key in (*named, "peak")}
    processes = multiprocessing.get_context("fork")
    queue = processes.SimpleQueue()

    def child() -> None:
        try:
            queue.put({"measured": measure(config_of(name), run, answer["workload"], limit)})
        except Exception as error:
            queue.put({"error": f"{type(error).__name__}: {error}"[:300]})

    process = processes.Process(target=child)
    process.start()
    process.join(LIMIT)
    if process.is_alive():
        process.kill()
        return {**row, "error": f"more than {LIMIT} s"}
    return {
        **row,
        **(queue.get() if not queue.empty() else {"error": f"exit code {process.exitcode}"}),
    }


def main() -> None:
    """Measure every run, each in a process of its own, and write them after each one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="the JSON to write")
    parser.add_argument("--only", default="", help="runs whose words contain this")
    parser.add_argument(
        "--least", action="store_true", help="the least memory in which the runs of 'least' end"
    )
    arguments = parser.parse_args()
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    known = json.loads(KNOWN.read_text())["least" if arguments.least else "runs"]
    rows = [
        row
        for row in known
        if arguments.only in f"{row['model']} {row['options']} {row.get('mode', '')}"
    ]
    with ThreadPoolExecutor() as pool:
        answers = list(
            pool.map(lambda row: predicted(config_of(row["model"]), row["options"]), rows)
        )
    import transformers  # noqa: F401 - once, before the processes are forked; peft would start CUDA

    facts = {name: metadata.version(name) for name in ("torch", "transformers", "peft")}
    document: dict[str, Any] = {"command": "python tools/measure_training.py", **facts, "runs": []}
    for known_row, answer in zip(rows, answers, strict=True):
        name = known_row["model"]
        options = known_row["options"]
        answer["mode"] = known_row.get("mode", "").split()
        row = (least if arguments.least else run_in_a_process)(name, options, answer)
        document["runs"].append(row)
        text = row.get("error", "")
        if not text:
            wanted = row["predicted"]["allocated"]
            seen = row["measured"]["requested"]
            text = (
                f"{wanted / 2**30:7.2f} GiB predicted, {seen / 2**30:7.2f} measured, "
                f"{wanted / seen - 1:+.2%}"
            )
        sys.stdout.write(f"{name:23} {options:66} {text}\n")
        sys.stdout.flush()
        if arguments.output:
            arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
