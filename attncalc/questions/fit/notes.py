"""The notes of `attncalc fit`: warnings, assumptions, and how parallelism divides the cache and the
experts.
"""

import dataclasses
from collections.abc import Iterator
from itertools import islice

from ...hardware import DESKTOP, Gpu
from ...model import plural
from ...quantity import Quantity
from ...serving.answer import Answer
from ...serving.fit import Deployment, FitResult, budget_without_kv_memory, possible_verdict
from ...serving.launch import launch_command
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.suggestions import narrower_weights
from ...show.notes import WARNING, context_notes, device_notes, model_notes
from ...units import BYTES, GIB, count, human, long_option
from .tiers import tier_notes


def fit_notes(answer: Answer) -> tuple[str, ...]:
    """Return the notes, each once; those of the engine and of the model are last."""
    result = answer.result
    resolved = answer.resolved
    model = resolved.model
    # the verdict, on the first line
    stated = f"{WARNING}{result.refusal.reason}." if result.refusal else ""
    notes = [note for note in context_notes(model, resolved.workload) if note != stated]
    if resolved.divides_experts:
        notes += _expert_notes(result)
    elif resolved.replicas > 1:
        notes.append(
            f"{count(resolved.replicas)} replicas of {plural(resolved.devices, 'GPU')} divide "
            "the batch: all figures are per replica."
        )
    notes += _node_notes(resolved)
    notes += _memory_notes(result)
    if resolved.has_cache:
        notes += _cache_dtype_notes(resolved)
    else:
        notes += _share_notes(resolved)
    notes += resolved.engine.host_notes(resolved.args)
    notes += _host_memory_notes(result)
    notes += _old_file_notes(resolved)
    if resolved.gpu:
        notes += _gpu_notes(result, resolved.gpu)
    has_types = (
        resolved.engine.typed_files
        and model.stored is None
        and resolved.request.weights_dtype is None
    )
    if has_types and result.verdict != "fits":
        notes.append("--quants lists types of GGUF files by the context that they hold.")
    notes += [*_whole_notes(result), *tier_notes(answer), *_command_notes(resolved)]
    if result.layout.bound == "lower":
        notes.append(
            "Bytes are a lower bound: the tokens themselves, without pages and fragmentation."
        )
    notes += [*_latent_notes(answer), *result.layout.notes]
    # an engine that gives each GPU whole layers replicates no KV heads, and --dcp divides the
    # tokens of the copies
    if not resolved.engine.splits_by_layer and resolved.args.dcp == 1:
        notes += device_notes(model)
    return tuple(dict.fromkeys((*notes, *model_notes(model))))


def _gpu_notes(result: FitResult, gpu: Gpu) -> Iterator[str]:
    """Yield what is known of the memory that software sees, and of one that the host shares."""
    resolved = result.resolved
    if resolved.share and not gpu.measured:
        reason = "no log shows how much memory software sees, so a conservative figure is used."
        if not gpu.vendor:
            reason = (
                "software sees so much of most such cards. One with ECC in GDDR memory (L4, A10) "
                "has less: name it."
            )
        yield f"{gpu.title}: {reason}"
    share = resolved.engine.share_of_unified
    is_default = share and resolved.request.gpu_memory_utilization == share
    if gpu.counts_host_memory and is_default:
        yield (
            f"The host uses the same memory: with its default share {resolved.engine.title} may "
            f"not start, and with {share} it does."
        )
    if resolved.share and gpu.unified and not gpu.shares_with_host:
        yield (
            f"Metal lets the GPU use {human(gpu.memory, BYTES)} of the Mac's {gpu.memory_gb} GB by "
            "default. Newer systems may allow more; 'sudo sysctl iogpu.wired_limit_mb=N' raises it."
        )
        yield from _wired_limit_notes(result.verdict, result.request, gpu)


def _wired_limit_notes(verdict: str, request: FitRequest, mac: Gpu) -> Iterator[str]:
    """Yield the limit of Metal with which it fits, if that leaves macOS an eighth of the memory."""
    limit = mac.memory_gb * GIB * 7 // 8
    if verdict == "fits" or limit <= mac.memory:
        return
    raised = dataclasses.replace(request, gpu=dataclasses.replace(mac, memory=limit, is_own=True))
    if possible_verdict(raised) == "fits":
        size = f"{limit / GIB:g}GiB"
        yield (
            f"--gpu {mac.name}:{size} fits: 'sudo sysctl iogpu.wired_limit_mb={limit // 2**20}' "
            f"gives the GPU {size}."
        )


def _host_memory_notes(result: FitResult) -> Iterator[str]:
    """Yield how much of the host's memory is used. If that is this machine's, the note is on the
    default screen.
    """
    gpu = result.resolved.gpu
    source = "" if result.request.ram_is_given else ", this machine's,"
    if gpu and gpu.is_cpu and gpu.other_memory is None:
        yield (
            f"--ram {human(gpu.memory, BYTES)}{source} is for llama.cpp alone: --other-memory "
            "SIZE is for others."
        )
    if result.host and result.host_needed is not None and not result.host.is_shared:
        used = human(result.host_needed, BYTES)
        there = human(result.host.limit, BYTES)
        if result.request.ram_is_given:
            what = f"{there} of host memory"
        else:
            what = f"--ram {there}{source}"
        yield (
            f"{what} is the limit of what is not on GPUs, {used} here. Other programs are not "
            "counted."
        )


def _whole_notes(result: FitResult) -> Iterator[str]:
    """Yield the context and the weights with which all layers fit on the GPUs, if some are on the
    host now.
    """
    resolved = result.resolved
    request = result.request
    engine = result.resolved.engine
    placed = [name for name in engine.offload_options if request.engine_args.get(name)]
    if not placed or not result.fits:
        return
    whole = request.with_engine_args(**dict.fromkeys(placed))
    gpus = "GPUs" if resolved.gpus > 1 else "the GPU"
    deployment = Deployment(resolve(whole))
    size = (resolved.workload.batch, resolved.workload.context)
    # -ngl 99 puts nothing on the host, and -ngl 20 does without need
    if deployment.verdict(*size) == "fits":
        if deployment.limits(*size, "low") != Deployment(resolved).limits(*size, "low"):
            yield (
                f"{' and '.join(map(long_option, placed))} can be left out: all layers fit on "
                f"{gpus}."
            )
        return
    longest = deployment.limits(*size, "low").max_context
    if resolved.gpu and resolved.gpu.vendor == "Apple":
        yield from _wired_limit_notes(deployment.verdict(*size) or "", whole, resolved.gpu)
    ways = [change.flag for change in islice(narrower_weights(whole), 1)]
    if longest and longest < resolved.workload.context:
        ways += [f"--context {longest} or less"]
    else:
        ways += []
    if ways:
        yield f"{' or '.join(ways)} keeps all layers on {gpus}."


def _command_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield how the engine gets weights to which it cannot convert others: it has no command
    then.
    """
    request = resolved.request
    if request.weights_dtype is None or launch_command(resolved) is not None:
        return
    if resolved.engine.typed_files:
        yield (
            f"No GGUF file has weights in {request.weights_dtype}; --weights-dtype q4_0 is a type "
            "of such files."
        )
        return
    as_released = dataclasses.replace(request, weights_dtype=None)
    if launch_command(resolved._replace(request=as_released)) is not None:
        yield (
            f"--weights-dtype {request.weights_dtype} needs a checkpoint in "
            f"{request.weights_dtype}, since "
            f"{resolved.engine.title} cannot convert these weights while it loads them. "
            "'attncalc fit org/name-AWQ' "
            "reads its config.json; --served-model org/name-AWQ only names it in the command."
        )


def _node_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield that tensor parallelism crosses nodes, where the links are slower, and what keeps it in
    one.
    """
    gpu = resolved.gpu
    tp = resolved.args.tp
    pp = resolved.args.pp
    if gpu is None or tp <= gpu.per_node or resolved.engine.splits_by_layer:
        return
    nodes = f"{plural(-(-tp // gpu.per_node), 'node')} of {plural(gpu.per_node, 'GPU')}"
    text = f"{WARNING}--tp {tp} crosses {nodes}, whose links are slower"
    if tp % gpu.per_node == 0:
        split = f"--tp {gpu.per_node} --pp {pp * tp // gpu.per_node}"
        yield f"{text}: {split} keeps each layer in one."
    else:
        yield f"{text}."


def _expert_notes(result: FitResult) -> Iterator[str]:
    """Yield how the experts are divided, and what all ranks hold together."""
    resolved = result.resolved
    devices = resolved.expert_devices
    experts = max(
        layers.mlp.n_experts or 0 for _, layers in resolved.request.model.groups() if layers.mlp
    )
    here = f"each GPU has a part of all {count(experts)} experts"
    copies = resolved.request.engine_args.get("num_redundant_experts") or 0
    if copies:
        each = (experts + copies) // devices
        here = f"a GPU has {count(each)} of {count(experts)} experts and {count(copies)} copies"
    elif resolved.request.enable_expert_parallel:
        here = (
            f"a GPU has at most {count(-(-experts // devices))} of {count(experts)} experts of a "
            "layer"
        )
    yield (
        f"The routed experts are divided over {plural(devices, 'GPU')}: {here}. Router and "
        "attention are not."
    )
    if resolved.replicas > 1:
        together = count(result.requests_of_all_replicas or 0)
        yield (
            f"{plural(resolved.replicas, 'data-parallel rank')} of "
            f"{plural(resolved.devices // resolved.args.attn_dp, 'GPU')} divide the batch: all "
            f"figures are per rank. All ranks together hold {together} concurrent requests."
        )
        if resolved.engine.ranks_share_tp:
            yield (
                "The experts' workspace is that for one rank's tokens. Backends that gather the "
                "tokens of all ranks need more."
            )


def _old_file_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield that Ollama's files of DeepSeek-V2 and V3, most of which are from before llama.cpp
    stored latents, cache K and V of every head.
    """
    model = resolved.request.model.plain()
    is_old = str(model.model_type).startswith(("deepseek_v2", "deepseek_v3"))
    if not (resolved.request.ollama and is_old and model.stored is None):
        return
    for layers in model.main.layers:
        roles = {cached.role: int(cached.width) for cached in layers.attention.cache()}
        if "latent" in roles:
            widths = layers.attention.widths()
            times = widths.n_heads * (widths.d_qk + widths.d_v) / roles["latent"]
            yield (
                f"{WARNING}a file from before April 2025, as most of Ollama's of this model, "
                f"caches K and V of every head, {times:.1f} times as much: --attention mha counts "
                "them, and the file itself instead of its name."
            )
            return


def _reported_memory_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield that an engine reported memory for the cache, of which the estimated weights leave
    none.
    """
    estimated = budget_without_kv_memory(resolved)
    if estimated is None or estimated.kv_memory_high or not estimated.weights:
        return
    weights = human(estimated.weights.total, BYTES)
    assert resolved.gpu is not None
    yield (
        f"{WARNING}by the estimate, weights of {weights} leave no cache in "
        f"{human(resolved.gpu.memory, BYTES)}. The figures are those of the memory that the engine "
        "reported: --gpu, --tp or --weights-dtype may differ from the engine's."
    )


def _memory_notes(result: FitResult) -> Iterator[str]:
    """Yield the notes on weights and runtime memory, and whether the verdict depends on the
    latter.
    """
    engine = result.resolved.engine
    budget = result.budget
    if budget.weights:
        yield from budget.weights.notes
    if result.refusal:
        yield f"{WARNING}{engine.title} does not start. {result.refusal.tip}"
    elif result.verdict == "may_not_fit":
        yield f"{WARNING}the runtime memory is an estimate, and whether this fits depends on it."
    yield from _reported_memory_notes(result.resolved)
    gpu = result.resolved.gpu
    if gpu and budget.facts:
        yield from _other_memory_notes(result, gpu)
    if gpu and gpu.more_memory and budget.facts:
        yield (
            f"Other drivers, and WSL, show up to {human(gpu.memory + gpu.more_memory, BYTES)} of "
            "this GPU. The upper "
            f"bound has that; --gpu {gpu.name}:{gpu.memory / GIB:.2f}GiB sets what your machine "
            "shows."
        )
    if budget.reserve:
        yield from budget.reserve.runtime.notes
        if budget.reserve.runtime.missed > GIB:
            off = human(Quantity(budget.reserve.runtime.missed), BYTES)
            yield (
                f"Blind predictions of such start-ups were up to {off} off, and the range has "
                "that. --log narrows it."
            )
        if engine.whole_prompts and budget.reserve.runtime.parts:
            yield (
                "A forward pass takes the whole batch, so a larger batch leaves less memory for "
                "the cache; 'concurrent requests' is computed for the memory shown."
            )


def _share_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield what the engine's share of the GPU is for a model without a cache: the memory that must
    be free at its start.
    """
    share = resolved.share_at_start
    gpu = resolved.gpu
    if share is None or gpu is None or share.numerator == share.denominator:
        return
    free = human(share.of(gpu.memory), BYTES)
    yield (
        f"{share.option} {share.text}: {free} must be free when {resolved.engine.title} starts. It "
        "allocates no cache for this model, and a smaller share changes nothing else."
    )


def _other_memory_notes(result: FitResult, gpu: Gpu) -> Iterator[str]:
    """Yield what is assumed of other programs' memory, and the option that sets it."""
    resolved = result.resolved
    share = result.resolved.share
    engine = resolved.engine
    counts = resolved.engine.counts_others(resolved.args)
    if gpu.other_memory:
        if not counts and share:
            yield (
                f"{engine.title} starts only if its share is free: other programs leave up to "
                f"{gpu.free_share(1)}."
            )
    elif gpu.other_memory is None and counts and gpu.shares_with_host:
        yield (
            f"--other-memory SIZE narrows the range: what the host uses when {engine.title} starts."
        )
    elif (
        gpu.other_memory is None
        and counts
        and gpu.shows_desktop
        and resolved.is_alone
        and resolved.gpus == 1
    ):
        size = human(DESKTOP, BYTES)
        if result.budget.kv_memory_low - int(result.needed) >= DESKTOP:
            yield f"A desktop that uses {size} of this GPU changes no verdict, and is not counted."
        else:  # a note that starts with an option is on the default screen
            yield f"--other-memory 1GiB counts a desktop that uses {size} of this GPU."
    elif gpu.other_memory is None and not counts and gpu.shows_desktop and share and result.fits:
        left = dataclasses.replace(gpu, other_memory=DESKTOP).free_share(
            share.numerator / share.denominator
        )
        if left:
            yield (
                f"{WARNING}with a desktop of {human(DESKTOP, BYTES)} on this GPU, {engine.title} "
                "starts with "
                f"{share.option} {left} or less. --other-memory 0 says that there is none."
            )


def _cache_dtype_notes(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield which dtype the cache has, if it is not the model's and no option sets it."""
    stored = resolved.args.kv_dtype.name
    computed = resolved.args.dtype.name
    engine = resolved.engine
    given = resolved.request.engine_args
    is_given = any(given.get(name) is not None for name in ("kv_dtype_k", "kv_dtype_v"))
    if resolved.request.workload.kv_dtype is None and not is_given and stored != computed:
        if not (engine.cache_dtype or resolved.request.model.kv_dtype):
            yield f"The cache is in {stored}, {engine.title}'s default for this model."
            return
        if engine.cache_dtype:
            reason = f"{engine.title}'s default for every model"
        else:
            reason = "as the checkpoint asks"
        yield f"The cache is in {stored}, {reason}; --kv-dtype {computed} is the model's own dtype."


def _latent_notes(answer: Answer) -> list[str]:
    """Return the bytes of latents that tensor-parallel GPUs store as copies, and what DP attention
    would give.
    """
    result = answer.result
    resolved = answer.resolved
    tp = resolved.args.tp // resolved.args.attn_dp
    dcp = resolved.args.dcp
    if (
        tp == dcp
        or "MLA" not in resolved.args.attentions
        or resolved.share is None
        or not resolved.gpu
    ):
        return []
    note = (
        f"Copies of the latents on the other {plural(tp - dcp, 'GPU')} take "
        f"{human(int(result.needed) * (tp - dcp), BYTES)} for this batch: --tp does not divide "
        "MLA's cache."
    )
    ranks = answer.attention_ranks
    split = answer.with_dcp
    before = result.requests_of_all_replicas or 0
    ways = []
    if ranks and ranks.result and (ranks.result.requests_of_all_replicas or 0) > before:
        ways.append(
            f"DP attention ({ranks.flags}) {_gives(ranks.result)} on all GPUs instead of "
            f"{count(before)}."
        )
    elif ranks and not ranks.result:
        note = (
            f"{note} DP attention ({ranks.flags}) does not fit: each GPU would need all weights "
            "of attention."
        )
    if split and split.requests_of_all_replicas:
        ways.append(f"--dcp {tp} {_gives(split)}.")
    # a note that starts with an option is on the default screen
    return [
        *(
            [" ".join([f"--tp {resolved.args.tp} stores copies of MLA's latents.", *ways])]
            if ways
            else []
        ),
        note,
    ]


def _gives(result: FitResult) -> str:
    """Return how many requests another setting runs: 'would give 72 concurrent requests', or 'may
    give' if unsure.
    """
    verb = "would" if result.verdict == "fits" else "may"
    return f"{verb} give {count(result.requests_of_all_replicas or 0)} concurrent requests"
