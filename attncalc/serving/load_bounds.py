"""The bounds of a load: how fast one copy of a model can serve concurrent requests with a prompt
and an output.

    bounds_of_load(resolved: ResolvedRequest, load: Load) -> LoadBounds

A load is a mixture of prefills and decode steps. While R concurrent requests of O output tokens
pass, a device computes R prefills, reads its weights and their cache in each of O - 1 decode steps
(a prefill yields the first token), and computes these steps. Prefills and decode steps can share a
pass, so that one computes while the other reads. Two figures follow:

- `tokens_per_second`, an upper bound: R * O tokens in the longer of all compute time and all memory
  time;
- `planning_tokens_per_second`: in the prefills' compute time plus the time of the decode steps, one
  after the other, with the expected number of experts, the all-reduces between tensor-parallel
  devices, and the tokens that data-parallel ranks send to experts and back.

Pipeline stages' communication is not counted, nor what a scheduler does. The steps are those of
`roofline.py`. Decode steps have the average context, the prompt and half of the output, as in
`traffic.py`.
"""

import dataclasses
from collections.abc import Callable

from ..cost.experts import Routing
from ..engines.expert_parallel import with_ranks
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import Constant, Quantity, Ratio, ceil_div, maximum, named, quantity, ratio, symbol
from ..records import NamedTuple
from ..workload import Workload
from .cache_read import ServingConfig
from .host_read import host_step, uses_host
from .request import ResolvedRequest
from .roofline import Bound, Step, decode_step, machine_of, prefill_step
from .traffic import Traffic

# Bytes/s of one GPU's network between nodes: 400 Gb/s, as NVIDIA's DGX and HGX nodes have for each
# GPU.
NETWORK = 400 * 10**9 // 8


class Load(NamedTuple):
    """Concurrent requests of one copy of the model, on `ResolvedRequest.copies` of which all
    requests are divided.
    """

    # requests that run concurrently, divided over the data-parallel ranks of the copy
    requests: int
    prompt_tokens: int  # tokens of a prompt
    output_tokens: int  # tokens of an output
    # The share of prompt tokens that are in the cache already, 0 to 1; at least the last token of a
    # prompt is computed
    prefix_hit_rate: float = 0.0
    network: int = NETWORK  # bytes/s that one GPU sends to another node

    @property
    def cached_tokens(self) -> int:
        """Tokens of a prompt that are not prefilled."""
        return min(int(self.prompt_tokens * self.prefix_hit_rate), self.prompt_tokens - 1)

    @property
    def average_tokens(self) -> int:
        """Tokens of a request on average while it decodes, the new one included."""
        return int(Traffic(self.prompt_tokens, self.output_tokens).average_tokens)


class LoadBounds(NamedTuple):
    """What bounds one copy of a model under a load. Bounds read as few experts as one token picks.

    With drafts, of which an unknown number is accepted, all figures per output token are None.
    """

    ttft: Ratio  # seconds to the first token of a request that waits for no other; a lower bound
    tpot: Ratio | None  # seconds per output token; a lower bound
    tokens_per_second: Ratio | None  # output tokens/s of all the load's requests; an upper bound
    bound_by: Bound  # what all the load's work takes longer for, with the expected experts
    planning_ttft: Ratio  # as `ttft`, with the expected experts and all-reduces
    # Seconds per output token with these, while all other requests are prefilled once
    planning_tpot: Ratio | None
    # Output tokens/s of prefills and decode steps one after the other, with these. Not a bound, but
    # no published run without drafts and cached prefixes exceeds it.
    planning_tokens_per_second: Ratio | None


class Steps(NamedTuple):
    """The passes of a load on one device."""

    alone: Step  # the prefill of one prompt on an idle copy
    prompt: Step  # the prefill of one prompt while all other ranks compute one too
    decode: Step  # the decode step of all requests
    prompt_sent: Ratio  # seconds of the communication of a prefill
    decode_sent: Ratio  # seconds of that of a decode step
    # pipeline stages that a prompt passes one after the other; llama.cpp's devices compute parts of
    # it
    stages: int

    @property
    def ttft(self) -> Ratio:
        """Seconds of a prefill on an idle copy."""
        if self.stages == 1:
            return _sum(self.alone.seconds, self.prompt_sent)
        stages = symbol("stages", self.stages, "pipeline stages")
        compute, sent = (
            ratio(one.numerator * stages, one.denominator)
            for one in (self.alone.by_compute, self.prompt_sent)
        )
        # a step's FLOPs are those of one stage, and its weights are those of all
        return _sum(self.alone._replace(by_compute=compute).seconds, sent)

    @property
    def tpot(self) -> Ratio:
        """Seconds of a decode step."""
        return _sum(self.decode.seconds, self.decode_sent)


# vLLM's kernel takes 8.5 to 11.8 us for 512 B to 32 KB on 2 to 8 H100, SGLang's 3.7 to 7.8
# (sgl-project/sglang#2904).
#
# The planning figures of published runs on several GPUs differ less with all-reduces, those of
# Llama 3 70B on 4 A100 with and without NVLink too: 0.6 and 0.4 of the figure, and 0.5 and 0.2
# without all-reduces.
_ALL_REDUCE = Constant(10, "us of an all-reduce without data")


def bounds_of_load(resolved: ResolvedRequest, load: Load) -> LoadBounds:
    """Return the bounds of a load.

    Raises AttncalcError without a GPU, if it has no FLOP/s for the dtype, for an encoder, and if a
    number of the load is not possible.
    """
    _check(resolved, load)
    steps = steps_of(resolved, load, "fewest")
    if resolved.model.has_experts:
        expected = steps_of(resolved, load, "expected")
    else:
        expected = steps
    requests = symbol(
        "requests", resolved.requests_of_rank(load.requests)[0], "concurrent requests on one device"
    )
    output = symbol("output", load.output_tokens, "tokens of an output")
    tokens = symbol("requests_of_copy", load.requests, "concurrent requests of the copy") * output
    _, busy = _busiest(steps, requests, output - 1)
    decodes = maximum(output - 1, 1)
    all_of = _in_series(expected, requests, output - 1)
    others = _in_series(expected, requests - 1, decodes)
    drafts = resolved.args.speculative_tokens
    return LoadBounds(
        ttft=steps.alone.seconds,
        tpot=None if drafts else steps.decode.seconds,
        tokens_per_second=None if drafts else ratio(tokens * busy.denominator, busy.numerator),
        bound_by=_busiest(expected, requests, output - 1)[0],
        planning_ttft=expected.ttft,
        planning_tpot=None if drafts else ratio(others.numerator, decodes * others.denominator),
        planning_tokens_per_second=None
        if drafts
        else ratio(tokens * all_of.denominator, all_of.numerator),
    )


def _check(resolved: ResolvedRequest, load: Load) -> None:
    if resolved.gpu is None:
        raise AttncalcError(
            "bounds of time need --gpu",
            "give the GPU, as --gpu h100-80gb: its FLOP/s and bandwidth bound the times",
        )
    if not resolved.model.main.has_cache:
        raise AttncalcError("an encoder has no output tokens", "give a decoder")
    if min(load[:3]) < 1:
        raise AttncalcError(
            "requests, prompt and output must be at least 1", "give --prompt 4K --output-len 1K"
        )


def steps_of(resolved: ResolvedRequest, load: Load, routing: Routing) -> Steps:
    """Return the passes of a load. Raises AttncalcError if the GPU has no FLOP/s for the dtype."""
    assert resolved.gpu is not None
    config = ServingConfig.of(resolved)
    on_rank, ranks = resolved.requests_of_rank(load.requests)
    # a bound has as few ranks with as many requests as possible; an estimate has all
    if routing == "expected":
        ranks = min(resolved.ranks, load.requests)
    workload = dataclasses.replace(resolved.workload, lengths=None)
    prompt = dataclasses.replace(workload, batch=1, context=load.prompt_tokens)
    decode = dataclasses.replace(
        workload, batch=max(1, on_rank // config.stages), context=load.average_tokens
    )
    alone = with_ranks(resolved.model, 1)
    shared = with_ranks(resolved.model, ranks)
    machine, _ = machine_of(shared, workload, resolved.gpu, resolved.weights_dtype, config)

    def kept(phase: str, model: ModelSpec, passed: Workload, compute: Callable[[], Step]) -> Step:
        # a plan asks for the same pass on many GPUs, of which only the times differ
        key = (phase, passed, load.cached_tokens, routing, machine.weights_dtype, config)
        return model.kept(key, compute).on(machine)

    def of_prompt(model: ModelSpec) -> Step:
        return kept(
            "prefill",
            model,
            prompt,
            lambda: prefill_step(model, prompt, machine, routing, cached=load.cached_tokens),
        )

    of_one = of_prompt(alone)
    step = kept("decode", shared, decode, lambda: decode_step(shared, decode, machine, routing))
    if uses_host(resolved):
        step, _ = host_step(resolved, step, decode, config, routing)
    return Steps(
        alone=of_one,
        prompt=of_one if ranks == 1 else of_prompt(shared),
        decode=step,
        prompt_sent=_sent(resolved, load, load.prompt_tokens - load.cached_tokens, config.stages),
        decode_sent=_sent(resolved, load, decode.batch, 1),
        stages=1 if resolved.whole_layers else config.stages,
    )


def _sent(resolved: ResolvedRequest, load: Load, tokens: int, stages: int) -> Ratio:
    """Return the seconds of a pass's communication for so many tokens of each rank; `stages` share
    the layers.
    """
    return _sum(
        _all_reduces(resolved, load, tokens, stages), _of_experts(resolved, load, tokens, stages)
    )


def _link(resolved: ResolvedRequest, load: Load, devices: int) -> Quantity:
    """Return the bytes/s of the slowest hop between so many devices: the network's over several
    nodes.
    """
    assert resolved.gpu is not None
    link = resolved.gpu.link_symbol
    if devices > resolved.gpu.per_node and load.network < link:
        return symbol("network", load.network, "bytes/s of a GPU to other nodes")
    return link


def _of_experts(resolved: ResolvedRequest, load: Load, tokens: int, stages: int) -> Ratio:
    """Return the seconds in which data-parallel ranks send tokens to the experts of other ranks,
    and get their outputs.

    Each token goes to top_k experts, of which (devices - 1) / devices are on other devices, in 16
    bits both ways. Over several nodes it is sent to each node once, and passed on inside (DeepEP's
    README): with 8 experts on 4 nodes 4 times, of which 3 / 4 are other nodes.
    """
    assert resolved.gpu is not None
    devices = resolved.expert_devices
    if resolved.ranks == 1 or not resolved.model.has_experts:
        return ratio(0, 1)
    nodes = ceil_div(devices * resolved.args.pp, resolved.gpu.per_node)
    places = int(nodes) if nodes > 1 else devices
    elements = quantity(0)
    layers_with_experts = quantity(0)
    for stack, layers in resolved.request.model.groups():
        if layers.mlp is None or not layers.mlp.n_experts:
            continue
        number = symbol("L_moe", layers.count, "layers with experts")
        picked = layers.mlp.n_experts_per_token or 0
        top_k = symbol("top_k", min(picked, places), "places with a token's experts, at most")
        elements = elements + number * top_k * symbol("d_model", stack.d_model, "hidden size")
        layers_with_experts = layers_with_experts + number
    link = _link(resolved, load, devices * resolved.args.pp)
    all_places = symbol("places", places, "devices, or nodes, that divide the experts")
    others = all_places - 1
    # the devices of a rank send a part of its tokens each
    of_device = ceil_div(tokens, devices // resolved.ranks)
    sent = symbol("sent", of_device, "tokens that a device sends") * elements
    data = sent * Constant(2, "bytes") * Constant(2, "both ways") * others
    micro = Constant(10**6, "us of a second")
    waits = layers_with_experts * Constant(2, "exchanges of a layer") * _ALL_REDUCE
    return ratio(data * micro + waits * all_places * link, all_places * link * micro * stages)


def _all_reduces(resolved: ResolvedRequest, load: Load, tokens: int, stages: int) -> Ratio:
    """Return the seconds in which tensor-parallel devices add up their parts of so many tokens: two
    sums per layer.

    Each device sends 2 * (tp - 1) / tp of the activations, in 16 bits (a ring). `stages` share the
    layers.
    """
    model = resolved.model
    if model.tp == 1:
        return ratio(0, 1)
    link = _link(resolved, load, model.tp)
    tp = symbol("tp", model.tp, "tensor-parallel devices")
    width = symbol("d_model", model.main.d_model, "hidden size")
    sums = symbol("L", model.main.n_layers, "layers") * Constant(2, "all-reduces of a layer")
    sent = (
        symbol("sent", tokens, "tokens of the pass") * width * Constant(2, "bytes") * 2 * (tp - 1)
    )
    micro = Constant(10**6, "us of a second")
    return ratio(sums * (sent * micro + _ALL_REDUCE * tp * link), tp * link * micro * stages)


def _sum(a: Ratio, b: Ratio) -> Ratio:
    """Return a + b; a itself if b is 0."""
    if not b.numerator:
        return a
    return ratio(
        a.numerator * b.denominator + b.numerator * a.denominator, a.denominator * b.denominator
    )


def _busiest(steps: Steps, requests: int, decodes: int) -> tuple[Bound, Ratio]:
    """Return what all the prefills and decode steps of a device take longer for, and the seconds of
    it.

    It is 'compute' if both take as long.
    """
    decode = named(steps.decode.flops, "flops", "FLOP of a decode step")
    # bytes over bytes/s; with layers on the host both times its bandwidth
    by_memory = steps.decode.by_memory
    read = named(by_memory.numerator, "bytes_read", "bytes that a decode step reads")
    compute, peak = _of_prompt(steps)
    seconds = ratio(requests * compute + decodes * decode, peak)
    reading = ratio(
        decodes * read, named(by_memory.denominator, "bandwidth", "bytes/s of the memory")
    )
    if reading.numerator * seconds.denominator > seconds.numerator * reading.denominator:
        return "memory", reading
    return "compute", seconds


def _in_series(steps: Steps, prompts: int, decodes: int) -> Ratio:
    """Return the seconds of so many prefills and decode steps, one after the other."""
    prefill = _sum(ratio(*_of_prompt(steps)), steps.prompt_sent)
    decode = steps.tpot
    return ratio(
        prompts * prefill.numerator * decode.denominator
        + decodes * decode.numerator * prefill.denominator,
        prefill.denominator * decode.denominator,
    )


def _of_prompt(steps: Steps) -> tuple[Quantity, Quantity]:
    """Return the FLOP of a prompt's prefill, and the FLOP/s."""
    peak = named(steps.decode.by_compute.denominator, "peak", "dense FLOP/s")
    return named(steps.prompt.flops, "flops_prompt", "FLOP of the prefill of a prompt"), peak
