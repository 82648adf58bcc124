"""From the options of `attncalc train` to a Training."""

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from ...config import ModelLike
from ...config.gpus import check_number, gpus_of
from ...cost.training.activations import check_kinds
from ...cost.training.classes import class_math
from ...cost.training.fits import ALL_LINEAR, Asked, largest_batch, longest_context
from ...cost.training.optimizers import OPTIMIZERS
from ...cost.training.selective import has_experts, has_latents, has_shared_experts
from ...cost.training.setup import Lora, Training
from ...cost.training.tensors import stage_tensors
from ...cost.training.work import duration, work
from ...errors import AttncalcError, BadValueError, NotSupportedError, clash, did_you_mean
from ...hardware import Gpu
from ...model import ModelSpec, plural
from ...options import parsed
from ...records import NamedTuple
from ...units import count, is_auto, long_option, parse_count, truncate
from ...workload import Workload
from ..inputs import DEFAULT_CONTEXT, read_model, read_source
from ..options import ModelOptions
from .options import TRAINED, TrainOptions

# The share of the peak FLOP/s by default. Llama 3 had 38 to 43 % (arXiv:2407.21783, table 4).
USUAL_MFU = 0.4
# Tokens of a sequence by default, if the model has as many.
USUAL_CONTEXT = 4096
_MLP = ("W_gate", "W_up", "W_down")
_PROJECTIONS = re.compile(r"^(?:w_)?(.+?)(?:_proj)?$")


class TrainRequest(NamedTuple):
    """A run, and how long it is to be."""

    run: Training  # the run
    auto: str = ""  # what was searched for: 'context' or 'batch'; '' for neither
    all_gpus: bool = False  # whether one row per GPU is asked for
    tokens: int | None = None  # tokens to train on; None if not asked
    mfu: float | None = None  # the share of the peak FLOP/s
    price: float | None = None  # the price of a GPU-hour
    # the seconds that it may take, and how many GPUs are enough; None if open
    within: tuple[float, int] | None = None
    options: Mapping[str, Any] = {}  # {option: its parsed value}, without --gpu all
    launcher: str = ""  # as in Answer

    @property
    def asked(self) -> Asked:
        """The run with its options, for which changes are found. What was searched for is one of
        them.
        """
        run = self.run
        options = dict(self.options)
        if self.auto and not self.all_gpus:
            if self.auto == "context":
                options[self.auto] = run.workload.context
            else:
                options[self.auto] = run.batch
        return Asked(run, options, partial(_described, run.model), _named_gpus(options))

    def searched(self, asked: Asked) -> Asked:
        """Return a changed run with the longest context or the largest micro-batch, if one was
        searched for.
        """
        if not self.auto:
            return asked
        return asked._replace(
            run=_described(asked.run.model, {**asked.options, self.auto: "auto"}, self.auto)
        )

    def at(self, batch: int, context: int) -> "TrainRequest":
        """Return the request with another micro-batch. Raises AttncalcError as `read_train_request`
        does.
        """
        options = {**self.options, "batch": batch, "context": context}
        run = _described(self.run.model, options)
        tokens = _tokens(options, run, all_gpus=self.all_gpus)
        return self._replace(run=run, tokens=tokens, options=options)


def asks_for_models(options: Mapping[str, Any], *, has_model: bool) -> bool:
    """Return whether `attncalc train` is asked which built-in models a GPU can train.

    `has_model` is whether a model is named, or described by its sizes.
    """
    if has_model or options.get("gpu") in (None, "all"):
        return False
    needs_model = {"tokens", "samples"} & options.keys()
    return not needs_model and "auto" not in map(str, options.values())


def read_train_request(model: ModelLike | None, options: TrainOptions) -> TrainRequest:
    """Return the request that the options of `attncalc train` describe.

    Raises AttncalcError if there is no such model, or an option is not valid or cannot be combined
    with another.
    """
    values = parsed(options, TrainOptions)
    if values.get("weights_dtype") == "auto":
        del values["weights_dtype"]
    spec = read_model(model, options, ModelOptions)
    all_gpus = values.get("gpu") == "all"
    auto = _auto(values, all_gpus)
    described = dict(values)
    if all_gpus:
        del described["gpu"]
    run = _described(spec, described, "" if all_gpus else auto)
    mfu = values.get("mfu")
    price = values.get("price")
    tokens = _tokens(values, run, all_gpus)
    within = _within(run, values, tokens)
    if within and "gpus" not in values and _named_gpus(values) is None:
        within = within[0], run.gpus
    priced = run.gpu.rented_gpus if run.gpu else 1  # GPUs that the price is of
    price_of_one = price and float(price) / priced
    return TrainRequest(
        run, auto, all_gpus, tokens, mfu and float(mfu), price_of_one, within, described
    )


def _described(spec: ModelSpec, values: Mapping[str, Any], auto: str = "") -> Training:
    """Return the run that parsed options describe, on the GPUs that are enough for --days.

    Raises AttncalcError as `read_train_request` does.
    """
    run = _training(spec, values)
    run = with_auto(run, auto) if auto else run
    check_kinds(run)
    if "days" not in values or "gpus" in values or run.gpu is None:
        return run
    within = _within(run, values, _tokens(values, run, all_gpus=False))
    if within is None or _named_gpus(values) is not None:
        return run
    run = _training(spec, {**values, "gpus": within[1]})
    if auto:
        return with_auto(run, auto)
    return run


def _named_gpus(values: Mapping[str, Any]) -> int | None:
    """Return the number of GPUs that --gpu has, as 8 of 8xh100; None if it has none."""
    given = values.get("gpu")
    if given is None or isinstance(given, Gpu):
        return None
    return gpus_of(str(given))[0]


def _within(
    run: Training, values: Mapping[str, Any], tokens: int | None
) -> tuple[float, int] | None:
    """Return the seconds of --days, and the GPUs that are enough for the tokens; None if not
    asked.
    """
    if "days" not in values or not tokens or run.gpu is None:
        return None
    peak = run.gpu.peak(run.dtype)
    copy = run.tp * run.pp * run.cp
    mfu = float(values.get("mfu") or USUAL_MFU)
    of_one = duration(run, work(run), tokens, mfu, peak, None).seconds * run.gpus
    return values["days"], copy * math.ceil(of_one / values["days"] / copy)


def _tokens(values: Mapping[str, Any], run: Training, all_gpus: bool) -> int | None:
    """Return the tokens to train on; None if not asked. Raises AttncalcError if another option is
    missing.
    """
    name, *more = [name for name in ("tokens", "samples") if name in values] or [""]
    if more:
        raise clash("--tokens", "--samples", "give one of them")
    for other in () if name else ("mfu", "price", "epochs", "days"):
        if other in values:
            raise AttncalcError(
                f"--{other} needs --tokens", "give the tokens to train on, as --tokens 15T"
            )
    if name and all_gpus:
        raise clash(f"--{name}", "--gpu all", "give one GPU: --gpu h100-80gb")
    if name and run.gpu is None:
        raise AttncalcError(f"--{name} needs --gpu", "give the GPU, as --gpu 8xh100")
    each: int = run.workload.context * (1 + run.pairs) if name == "samples" else 1
    return each * values[name] * values.get("epochs", 1) if name else None


def with_auto(run: Training, auto: str) -> Training:
    """Return the run with the longest context or the largest micro-batch that fits; unchanged if
    none does.
    """
    found = longest_context(run) if auto == "context" else largest_batch(run)
    if found:
        return run.with_workload(**{auto: found})
    return run.with_workload(**{auto: 1 if auto == "batch" else 128})


def usual_context(spec: ModelSpec) -> int:
    """Return the tokens of a sequence by default."""
    return min(spec.max_context or DEFAULT_CONTEXT, USUAL_CONTEXT)


def _auto(values: Mapping[str, Any], all_gpus: bool) -> str:
    found = [name for name in ("context", "batch") if is_auto(values.get(name))]
    if len(found) > 1:
        raise clash("--context auto", "--batch auto", "give one of them as a number")
    if found and "gpu" not in values:
        raise AttncalcError(f"--{found[0]} auto needs --gpu", "give the GPU, as --gpu h100-80gb")
    if all_gpus and "gpus" in values and str(values["gpus"]) == "auto":
        raise AttncalcError("--gpu all needs a number of --gpus", "give it, as --gpus 8")
    if found:
        return found[0]
    return ""


def _number(values: Mapping[str, Any], name: str, default: int) -> int:
    text = str(values.get(name, default))
    if is_auto(text):
        return default
    return parse_count(text, f"--{name}")


def _training(spec: ModelSpec, values: Mapping[str, Any]) -> Training:
    """Return the run that parsed options describe. Raises AttncalcError if they exclude each
    other.
    """
    given = values.get("gpu")
    number = None
    gpu = None
    if isinstance(given, Gpu):
        gpu = given
    elif given is not None:
        number, gpu = gpus_of(str(given))
    check_number(str(given), number, values.get("gpus"), gpu.rented_gpus if gpu else 1)
    split = {name: values.get(name, 1) for name in ("tp", "pp", "cp", "ep")}
    of_one = split["tp"] * split["pp"] * split["cp"]
    gpus = values.get("gpus") or number or of_one
    context = _number(values, "context", usual_context(spec))
    _check_positions(spec, context)
    batch = _number(values, "batch", 1)
    asked = values.get("dtype")
    computes = gpu.math_dtype(asked, spec.dtype) if gpu else asked or spec.dtype
    workload = Workload.train(
        2 * batch if "pairs" in values else batch,
        context,
        source=read_source(spec, values.get("source_context")),
        dtype=computes if computes != spec.dtype else asked,
        # as peft's prepare_model_for_kbit_training(use_gradient_checkpointing=True), Unsloth and
        # torchtune have it
        recompute=values.get("recompute", "full" if "weights_dtype" in values else "none"),
    )
    zero = _zero(values)
    lora = _lora(values["lora"], spec) if "lora" in values else None
    _check(values, spec, lora, computes)
    buffers = _buffers(values, spec, zero)
    is_split = split["tp"] > 1 or split["pp"] > 1
    is_split = is_split or "recompute_modules" in values or "recompute_method" in values
    is_megatron = is_split and zero <= 1
    of_weights = _dtypes_of_weights(
        values, computes, zero=zero, has_lora=lora is not None, is_megatron=is_megatron
    )
    fields = Training.__dataclass_fields__
    as_given = {name: value for name, value in values.items() if name in fields}
    read = {
        "gpu": gpu,
        "gpus": gpus,
        "zero": zero,
        "gradient_accumulation": _accumulation(values, batch, gpus // max(1, of_one)),
        "kernel": values.get("kernel", _usual_kernel(spec, gpu)),
        "lora": lora,
        "references": int("reference_model" in values),
        "kbit_upcast": "no_kbit_upcast" not in values,
        "autocast": _autocast(values, computes, of_weights["param_dtype"]),
        **of_weights,
        **buffers,
    }
    return Training(spec, workload, **as_given | read)


def _check(values: Mapping[str, Any], spec: ModelSpec, lora: Lora | None, computes: str) -> None:
    """Raise AttncalcError if options exclude each other, or have no effect on the model."""
    _check_quantization(values)
    _check_saved_modules(values, spec, lora)
    _check_recompute_modules(values, spec)
    _check_recompute_method(values, spec)
    _check_fused_softmax(values, spec, computes)
    if "fused_gelu" in values and class_math(spec.model_type).activation != "gelu_new":
        raise AttncalcError(
            f"--fused-gelu has no effect on {spec.title}: its class has no gelu_new", "leave it out"
        )
    if computes not in TRAINED:
        raise NotSupportedError(
            f"activations cannot be in {computes}",
            "give --dtype bf16, and --fp8 inputs for Transformer Engine",
        )


def _usual_kernel(spec: ModelSpec, gpu: Gpu | None) -> str:
    """Return the attention kernel by default: SDPA's, if the model's class has it."""
    if not class_math(spec.model_type).has_sdpa:
        return "eager"
    # With gradients, SDPA on MPS computes the scores in single operations
    # (aten/src/ATen/native/transformers/attention.cpp, case SDPBackend::math).
    if gpu is not None and gpu.vendor == "Apple":
        return "math"
    # SDPA's flash needs capability 8.0 too
    if gpu is None or gpu.has_bf16:
        return "flash"
    return "efficient"


def _dtypes_of_weights(
    values: Mapping[str, Any], computes: str, *, zero: int, has_lora: bool, is_megatron: bool
) -> dict[str, Any]:
    """Return the dtypes of parameters and gradients, and whether there is an fp32 copy.

    Raises AttncalcError if --master-weights or --fp8 cannot be combined with them.
    """
    wide = "fsdp" in values or has_lora or computes == "fp32"
    param = values.get("param_dtype", "fp32" if wide else computes)
    master = values.get("master_weights")
    if master and param == "fp32":
        raise AttncalcError("--master-weights has no effect on weights in fp32", "leave it out")
    if master is None:
        in_place = OPTIMIZERS[values.get("optimizer", "adamw")].in_place
        master = not has_lora and (zero > 0 or not in_place)
    fp8 = values.get("fp8", "none")
    if fp8 != "none" and not (master and param != "fp32"):
        raise NotSupportedError(
            f"--fp8 {fp8} needs 16-bit weights with an fp32 copy, as in Megatron",
            "leave it out: torchao's float8 and LoRA keep inputs in 16 bits",
        )
    return {
        "param_dtype": param,
        "grad_dtype": values.get("grad_dtype", "fp32" if is_megatron and master else param),
        "master_weights": param != "fp32" and master,
    }


def _accumulation(values: Mapping[str, Any], batch: int, dp: int) -> int:
    """Return the micro-batches of a step. Raises AttncalcError if they do not make
    --global-batch.
    """
    number: int = values.get("gradient_accumulation", 1)
    if "global_batch" not in values:
        return number
    if "gradient_accumulation" in values:
        other = "--gradient-accumulation"
    else:
        other = "--batch auto"
    if other == "--gradient-accumulation" or is_auto(values.get("batch")):
        raise clash("--global-batch", other, "give one of them")
    asked = values["global_batch"]
    sequences = batch * max(1, dp)
    if asked % sequences:
        problem = (
            f"--global-batch {count(asked)} is no multiple of --batch {batch} on "
            f"{plural(dp, 'data-parallel GPU')}"
        )
        raise BadValueError(problem, f"give --global-batch {-(-asked // sequences) * sequences}")
    return int(asked // sequences)


def _check_positions(spec: ModelSpec, context: int) -> None:
    if spec.max_context and context > spec.max_context and spec.main.learned_positions:
        problem = f"--context {context} is beyond the {spec.max_context} positions of {spec.title}"
        raise AttncalcError(problem, f"give -c {spec.max_context} or fewer tokens")


def _zero(values: Mapping[str, Any]) -> int:
    zero: int = values.get("zero", 3 if "fsdp" in values else 0)
    if zero not in range(4):
        raise BadValueError(f"--zero cannot be {zero}", "give 0, 1, 2 or 3")
    if "fsdp" in values and zero != 3:
        raise clash("--fsdp", f"--zero {zero}")
    return zero


def _buffers(values: Mapping[str, Any], spec: ModelSpec, zero: int) -> dict[str, Any]:
    """Return the sizes of DeepSpeed's buffers that are given.

    transformers turns 'auto' of reduce_bucket_size into the hidden size squared
    (integrations/deepspeed.py, trainer_config_finalize). Raises AttncalcError if the stage of ZeRO
    has no such buffer.
    """
    stages = {
        "reduce_bucket_size": (1, 2, 3),
        "overlap_comm": (1, 2),
        "stage3_max_live_parameters": (3,),
        "sub_group_size": (3,),
    }
    found: dict[str, Any] = {}
    for name, known in stages.items():
        if name not in values:
            continue
        if zero not in known or "fsdp" in values:
            needed = " or ".join(str(stage) for stage in known)
            raise AttncalcError(
                f"{long_option(name)} needs --zero {needed}", "give it, or leave the option out"
            )
        found[name] = values[name]
        if found[name] == "auto" and name != "reduce_bucket_size":
            raise BadValueError(f"{long_option(name)} cannot be auto", "give elements, as 1e9")
        if found[name] == "auto":
            found[name] = int(spec.main.d_model) ** 2
    return found


def _check_quantization(values: Mapping[str, Any]) -> None:
    for name in ("weights_dtype", "double_quant") if "lora" not in values else ():
        if name in values:
            option = long_option(name)
            raise AttncalcError(
                f"{option} needs --lora: quantized weights cannot be trained", "give --lora r=16"
            )
    if "no_kbit_upcast" in values and "weights_dtype" not in values:
        raise AttncalcError(
            "--no-kbit-upcast needs --weights-dtype: nothing is quantized",
            "give --weights-dtype nf4",
        )
    for name in ("double_quant", "bitsandbytes") if values.get("weights_dtype") != "nf4" else ():
        if name in values:
            raise AttncalcError(
                f"{long_option(name)} needs --weights-dtype nf4", "give both, or neither"
            )


def _check_fused_softmax(values: Mapping[str, Any], spec: ModelSpec, computes: str) -> None:
    """Raise NotSupportedError if Megatron's fused softmax does not run: it is for 16 bits
    (is_kernel_available in megatron/core/fusions/fused_softmax.py), without sinks and soft caps.
    """
    if values.get("kernel") != "eager-fused":
        return
    if computes == "fp32":
        problem = "--kernel eager-fused cannot compute in fp32: Megatron's softmax is for 16 bits"
        raise NotSupportedError(problem, "give --dtype bf16, or --kernel eager")
    has_sinks = any(getattr(of.attention, "sinks", False) for _, of in spec.groups())
    if has_sinks or class_math(spec.model_type).caps_scores:
        problem = f"--kernel eager-fused has neither sinks nor soft caps, as {spec.title} needs"
        raise NotSupportedError(problem, "give --kernel eager")


def _check_recompute_modules(values: Mapping[str, Any], spec: ModelSpec) -> None:
    """Raise AttncalcError if --recompute-modules names what the model does not have, or nothing
    would recompute it.
    """
    modules = values.get("recompute_modules", ())
    if not modules:
        return
    if values.get("recompute") != "selective":
        raise AttncalcError(
            "--recompute-modules needs --recompute selective", "give both, or neither"
        )
    layers = [layers for _, layers in spec.groups()]
    present = {
        "mlp": any(of.mlp and not has_experts(of) for of in layers),
        "moe": any(has_experts(of) for of in layers),
        "moe_act": any(has_experts(of) for of in layers),
        "shared_experts": any(has_shared_experts(of) for of in layers),
        "mla_up_proj": any(has_latents(of) for of in layers),
    }
    for module in modules:
        if not present.get(module, True):
            problem = f"--recompute-modules {module} has no effect on {spec.title}"
            raise AttncalcError(problem, "leave it out: no layer has such a module")


def _check_recompute_method(values: Mapping[str, Any], spec: ModelSpec) -> None:
    """Raise AttncalcError if --recompute-method or --recompute-num-layers would have no effect."""
    given = [name for name in ("recompute_method", "recompute_num_layers") if name in values]
    if not given:
        return
    if values.get("recompute") != "full":
        raise AttncalcError(f"{long_option(given[0])} needs --recompute full", "give both")
    if len(given) == 1:
        missing = {"recompute_method": "--recompute-num-layers 1"}
        tip = f"give {missing.get(given[0], '--recompute-method uniform')}, as Megatron needs it"
        raise AttncalcError(f"{long_option(given[0])} alone does not say what is recomputed", tip)
    if values.get("virtual_stages", 1) > 1:
        tip = "give --recompute full alone, which recomputes all layers"
        raise clash(long_option(given[0]), "--virtual-stages", tip)
    if spec.encoder:
        raise NotSupportedError(f"{long_option(given[0])}: {spec.title} has an encoder")


def _check_saved_modules(values: Mapping[str, Any], spec: ModelSpec, lora: Lora | None) -> None:
    """Raise AttncalcError if --modules-to-save names what is trained anyway, or is not there."""
    modules = values.get("modules_to_save", ())
    if not modules:
        return
    if lora is None:
        raise AttncalcError(
            "--modules-to-save needs --lora: without adapters everything is trained",
            "give --lora r=16, or leave it out",
        )
    if "lm_head" in modules and "lm_head" in lora.targets:
        tip = "peft trains the head whole, or an adapter of it: leave one of them out"
        raise clash("--modules-to-save lm_head", "--lora targets=lm_head", tip)
    if "lm_head" in modules and (spec.head is None or spec.head.kind != "lm"):
        raise AttncalcError(f"--modules-to-save: {spec.title} has no lm_head", "leave it out")
    if "embedding" in modules and not spec.vocab_size:
        raise AttncalcError(f"--modules-to-save: {spec.title} has no embedding", "leave it out")


def _autocast(values: Mapping[str, Any], computes: str, param: str) -> bool:
    """Return whether --autocast is given. Raises AttncalcError if it would change nothing."""
    if "autocast" not in values:
        return False
    if "lora" not in values:
        raise AttncalcError(
            "--autocast needs --lora", "give --param-dtype fp32: without adapters it is autocast"
        )
    if param != "fp32" or computes == "fp32":
        raise AttncalcError(
            "--autocast has no effect: adapters have the dtype of the activations", "leave it out"
        )
    if "weights_dtype" in values and "no_kbit_upcast" not in values:
        raise AttncalcError(
            "--autocast has no effect: --weights-dtype is counted with it", "leave it out"
        )
    return True


def _lora(text: str, spec: ModelSpec) -> Lora:
    """Return the adapters of 'r=16' or 'r=8,targets=q+v,dropout=0.05'.

    Raises AttncalcError if a key is not known or there is no such matrix.
    """
    text = "r=16" if text in ("-", "True") else text  # --lora without a value, or lora=True
    keys = _keys_of_lora(text)
    rank = keys.get("r", keys.get("rank"))
    if rank is None:
        raise BadValueError("--lora needs a rank", "give --lora r=16")
    targets = _targets(keys.get("targets", "all"), spec)
    dropout = keys.get("dropout", "0")
    if not re.fullmatch(r"(?a)0?\.\d{1,9}|0", dropout):
        raise BadValueError(
            f"--lora: dropout cannot be '{truncate(dropout)}'",
            "give a share below 1, as dropout=0.05",
        )
    return Lora(parse_count(rank, "--lora r"), targets, float(dropout) > 0)


def _keys_of_lora(text: str) -> dict[str, str]:
    """Return {key: value} of 'r=8,targets=q+v'; a number alone is the rank."""
    keys: dict[str, str] = {}
    for part in re.split(r",(?=[a-z]+=)", text.strip()) if "=" in text else [f"r={text}"]:
        key, value = map(str.strip, part.partition("=")[::2])
        if key in keys:
            raise BadValueError(
                f"--lora has {key} twice", "join targets with a plus: r=16,targets=q+v"
            )
        keys[key] = value
    unknown = keys.keys() - {"r", "rank", "targets", "dropout", "alpha"}
    if unknown:
        tip = "give r, targets and dropout: r=16,targets=q+v,dropout=0.05"
        raise BadValueError(f"--lora has no key '{truncate(min(unknown))}'", tip)
    return keys


def _targets(text: str, spec: ModelSpec) -> tuple[str, ...]:
    """Return the names of the matrices of 'q+v' or 'all', each once."""
    plain = Training(spec, Workload.train(1, 1, source=read_source(spec, None)))
    names = set()
    for tensor in stage_tensors(plain, plain.stages[0], spec.plain()):
        is_matrix = tensor.name.startswith("W_") or tensor.name == "lm_head"
        if is_matrix and tensor.part != "experts":
            names.add(tensor.name)
    found: list[str] = []
    for target in filter(None, re.split(r"[+,;\s]+", text)):
        if target in ("all", "all-linear"):
            found += [name for name in ALL_LINEAR if name in names]
            continue
        in_mlp = [name for name in _MLP if name in names]
        if target == "mlp" and in_mlp:
            found += in_mlp
            continue
        name = target
        match = _PROJECTIONS.match(target.lower())
        if match and target not in names:
            name = f"W_{match[1]}"
        if name not in names:
            known = [n.removeprefix("W_") for n in sorted(names)]
            tip = f"{did_you_mean(target, known)}give all, or some of {', '.join(known)}"
            raise BadValueError(f"--lora: {spec.title} has no matrix '{truncate(target)}'", tip)
        found.append(name)
    if not found:
        raise BadValueError(
            "--lora has no targets", "leave them out for all linear layers, or give targets=q+v"
        )
    return tuple(dict.fromkeys(found))
