"""Changes of a request that may make it fit: a narrower cache, fewer running requests, another
split of its GPUs.

`suggestions.py` tries them, alone and together, and `more_gpus.py` has those of the number of GPUs.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import AttncalcError
from ..model import plural
from ..records import NamedTuple
from ..units import count, dtype, long_option
from .fit import possible_verdict, sure_limits, with_other_gpus
from .offload import with_least_offload
from .request import FitRequest, ResolvedRequest, Share, file_type, half_dtype, parse_share, resolve
from .weight_format import weight_bits

# What changes cost, from the cheapest to the dearest: suggestions have this order.
#
# Nothing that users notice, such as fewer tokens per step.
UNNOTICED = 0
# A narrower cache, or a dtype of 16 bits to compute in.
CACHE = 1
# Narrower weights.
WEIGHTS = 2
# Less work: a shorter context or fewer sequences.
WORK = 3
# Layers in host memory, which are slow.
HOST = 4
# So few bits that answers suffer: a cache of 4, or weights of fewer.
ROUGH = 5
# Further or other GPUs.
HARDWARE = 6


class Change(NamedTuple):
    """A change of a request, which may be enough or not: an option, or several together.

    Example: "weights in fp8", "--weights-dtype fp8", fields={"weights_dtype": "fp8"}, cost=WEIGHTS
    """

    words: str  # the change in words
    flag: str  # the options to type
    fields: Mapping[str, Any] = {}  # fields of the FitRequest with their new values
    workload: Mapping[str, Any] = {}  # fields of its workload
    engine_args: Mapping[str, Any] = {}  # the engine's arguments
    cost: int = UNNOTICED  # one of the constants above; that of several changes is the largest

    def apply(self, request: FitRequest) -> FitRequest:
        """Return the changed request."""
        changed = request.with_workload(**self.workload).with_engine_args(**self.engine_args)
        return dataclasses.replace(changed, **self.fields)


# Returns the changes of one kind that a request can have, from the smallest to the largest:
# narrower weights in fp8, then in int4.
Kind = Callable[[ResolvedRequest], Iterator[Change]]


def works(change: Change, request: FitRequest) -> bool:
    """Return whether a request fits for sure with a change."""
    return possible_verdict(change.apply(request)) == "fits"


def both(one: Change, other: Change) -> Change:
    """Return two changes as one. Of a field that both change, the second decides."""
    return Change(
        words=f"{one.words}, {other.words}",
        flag=f"{one.flag} {other.flag}",
        fields={**one.fields, **other.fields},
        workload={**one.workload, **other.workload},
        engine_args={**one.engine_args, **other.engine_args},
        cost=max(one.cost, other.cost),
    )


def each_with(changes: Sequence[Change], kind: Kind, request: FitRequest) -> Iterator[Change]:
    """Yield each of the changes together with every change of a kind that is possible after it."""
    for change in changes:
        try:
            for other in kind(resolve(change.apply(request))):
                yield both(change, other)
        except AttncalcError:  # this engine or this model does not support it
            continue


def is_smaller_share(one: Share, other: Share) -> bool:
    """Return whether a share of the GPU's memory is smaller than another one."""
    return one.numerator * other.denominator < other.numerator * one.denominator


# The kinds of changes on the same GPUs


def smaller_steps(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield smaller passes: they hold fewer logits and activations."""
    if resolved.gpu is None:
        return
    for step in resolved.engine.smaller_steps(resolved.args, resolved.workload.batch):
        yield Change(step.words, step.flag, engine_args=step.args)


def larger_steps(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield a step that takes all texts of the batch, for a model without a cache."""
    option = resolved.engine.step_option
    if resolved.has_cache or option is None:
        return
    name, flag = option
    tokens = resolved.workload.batch * int(resolved.workload.context)
    yield Change(f"{count(tokens)} tokens per step", f"{flag} {tokens}", engine_args={name: tokens})


def fewer_requests(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield fewer running requests, not fewer than the batch of all ranks, if each of them takes
    memory of its own.
    """
    for requests in resolved.engine.fewer_requests(resolved.args):
        if resolved.workload.batch * resolved.args.attn_dp <= requests:
            args = {"max_running_requests": requests}
            yield Change(
                plural(requests, "running request"),
                f"--max-running-requests {requests}",
                engine_args=args,
            )


def without_graphs(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield the engine without CUDA graphs, which take memory and make steps quicker."""
    option = resolved.engine.without_graphs
    if option and resolved.gpu and not getattr(resolved.args, option):
        yield _with_flag("no CUDA graphs", option)


def text_only(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield the model without its towers, which changes nothing for users who send text."""
    option = resolved.engine.text_only(resolved.args)
    if option and resolved.gpu and resolved.model.towers:
        yield _with_flag("text only", option)


def _with_flag(words: str, option: str) -> Change:
    """Return the change that sets an option of the engine without a value."""
    return Change(words, long_option(option), engine_args={option: True})


def larger_share(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield larger shares of the GPU's memory for the engine."""
    if resolved.gpu and resolved.gpu.shares_with_host:  # even the default share may not start
        return
    share = resolved.share
    for text in resolved.engine.larger_shares:
        if share and is_smaller_share(share, parse_share(text, "")):
            yield Change(
                f"{text} of the GPU's memory",
                f"{share.option} {text}",
                fields={"gpu_memory_utilization": text},
            )


def narrow_cache(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield narrower dtypes of the cache, for K and V together."""
    bits = max(each.bits for each in resolved.engine.cache_dtypes(resolved.args))
    for name in resolved.engine.narrower_cache_dtypes:
        if dtype(name).bits < bits:
            yield Change(
                f"a cache in {name}",
                f"--kv-dtype {name}",
                workload={"kv_dtype": name},
                engine_args={"kv_dtype_k": None, "kv_dtype_v": None},
                cost=CACHE if dtype(name).bits >= 8 else ROUGH,
            )


def narrow_weights(
    resolved: ResolvedRequest, names: Sequence[str] | None = None
) -> Iterator[Change]:
    """Yield weights in narrower dtypes: in those of `names`, by default the engine's.

    Kernels of quantized weights compute in 16 bits. A model that computes in fp32 is changed to
    that first, alone and with each of the dtypes.
    """
    # the memory for the cache was given: smaller weights do not change it
    if resolved.share is None:
        return
    stored = resolved.request.model.stored
    # other files have other weights
    if (stored and stored.kind == "GGUF") or resolved.request.weights_size is not None:
        return
    in_half = None
    if resolved.args.dtype.name == "fp32":
        half = half_dtype(resolved.request, resolved.engine)
        if half:
            in_half = Change(
                f"computing in {half}", f"--dtype {half}", workload={"dtype": half}, cost=CACHE
            )
            yield in_half
    current = file_type(resolved.model) or resolved.weights_dtype or resolved.args.dtype.name
    if names is None:
        names = resolved.engine.narrower_weight_dtypes
    for name in names:
        bits = weight_bits(name)
        if bits < weight_bits(current):
            change = Change(
                f"weights in {name}",
                f"--weights-dtype {name}",
                fields={"weights_dtype": name},
                cost=WEIGHTS if bits >= 4 else ROUGH,
            )
            if in_half:
                change = both(in_half, change)
            yield change


def on_host(resolved: ResolvedRequest, option: str) -> Iterator[Change]:
    """Yield the least on the host that is enough.

    Args:
        resolved: The request.
        option: The engine's option that places it: its layers, or the experts of layers.
    """
    if option not in resolved.engine.offload_options or not resolved.share:
        return
    if resolved.gpu is not None and resolved.gpu.unified:  # its memory is the host's
        return
    changed = with_least_offload(resolved.request, option)
    if changed:
        layers = changed.engine_args[option]
        words = resolved.engine.offload_options[option].format(plural(layers, "layer"))
        flag = f"{long_option(option)} {layers}"
        yield Change(words, flag, engine_args={option: layers}, cost=HOST)


# The kinds of changes that need no other GPUs, in the order in which they are tried, with their
# words. A larger share is last: the engine may run out of memory later. Layers in host memory are
# tried after all of these, since they are slow.
ON_THE_SAME_GPUS: dict[Kind, str] = {
    smaller_steps: "fewer sequences or tokens per step",
    larger_steps: "more tokens per step",
    fewer_requests: "fewer running requests",
    without_graphs: "no CUDA graphs",
    text_only: "text only",
    narrow_cache: "a narrower cache",
    narrow_weights: "narrower weights",
    larger_share: "a larger share of the GPU's memory",
}
# Those that users do not notice: they change no answer and no length.
UNNOTICED_KINDS = frozenset(
    {smaller_steps, larger_steps, fewer_requests, without_graphs, text_only, larger_share}
)


# The kinds of changes that are tried after those


def other_split(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield other splits of the same GPUs: whole experts if the engine refuses parts of them,
    attention on ranks of its own, then fewer copies of the model.
    """
    request = resolved.request
    args = resolved.args
    gpus = resolved.gpus
    if resolved.gpu is None or resolved.whole_layers or gpus == 1 or args.attn_dp > 1:
        return
    # --tp may cut their blocks of FP8
    if resolved.refusal and request.model.has_experts and not request.enable_expert_parallel:
        words = "whole experts on each GPU"
        yield Change(words, "--enable-expert-parallel", {"enable_expert_parallel": True})
    # the ranks share the experts
    if resolved.engine.ranks_share_tp and resolved.dp > 1 and request.model.has_experts:
        tp = args.tp * resolved.dp
        fields = {"tp": tp, "attn_dp": resolved.dp, "dp": 1}
        flag = f"--tp {tp} --enable-dp-attention"
        yield Change("DP attention instead of replicas", flag, fields)
    if "MLA" in args.attentions:  # tensor parallelism only makes copies of latents
        ranks = resolved.engine.attention_ranks(args, resolved.dp)
        if ranks and request.model.has_experts:
            yield Change("DP attention", ranks.flags, fields={**ranks.fields, "gpus": gpus})
        if "dcp" in resolved.engine.splits and args.dcp == 1 < args.tp:
            yield Change("decode context parallelism", f"--dcp {args.tp}", fields={"dcp": args.tp})
    if resolved.copies > 1:
        yield from _fewer_copies(resolved)


def _fewer_copies(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield splits of the same GPUs with fewer copies of the model, on more GPUs each."""
    gpus = resolved.gpus
    for other in with_other_gpus(resolved):
        tp = other.tp or 1
        copy = tp * other.pp
        if resolved.devices < copy <= gpus and gpus % copy == 0:
            fields = {"tp": tp, "pp": other.pp}
            flag = f"--tp {tp}"
            if other.pp != resolved.args.pp:
                flag += f" --pp {other.pp}"
            if resolved.dp > 1:
                fields["dp"] = gpus // copy
                flag += f" --dp {gpus // copy}"
            yield Change(plural(gpus // copy, "replica"), flag, {**fields, "gpus": gpus})


def smaller_workload(resolved: ResolvedRequest) -> Iterator[Change]:
    """Yield a shorter context, and a smaller batch."""
    context, batch = sure_limits(resolved)
    if context:
        words = f"{count(context)} tokens of context"
        yield Change(words, f"--context {context}", workload={"context": context}, cost=WORK)
    if batch:
        batch *= resolved.replicas
        yield Change(
            plural(batch, "sequence"), f"--batch {batch}", workload={"batch": batch}, cost=WORK
        )
