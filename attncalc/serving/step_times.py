"""The times of a load that published runs suggest: an estimate, and no bound.

    served_load(resolved: ResolvedRequest, load: Load) -> ServedLoad | None

One continuous model of a step has four constants per family of GPUs and of models:

    decode step = max(bytes / (memory * bandwidth), FLOPs / (compute * peak))
                  + layers * layer + communication + requests * request
    prefill     = FLOPs / (compute * peak) + communication

`memory` and `compute` are the parts of the bandwidth and of the peak that kernels reach, `layer` is
the seconds in which a layer's kernels are launched, and `request` those that the engine spends on
each request of a step. While R requests of O output tokens pass, a copy computes R prefills and
O - 1 decode steps, one after the other, as in `load_bounds.py`.

The time to the first token is the sum of

- 60 ms for HTTP, tokenizer and scheduler;
- the prefill of the prompt in all pipeline stages, one after the other, and the launches of its
  layers;
- with other requests the decode step that it shares, and half of the one that is running;
- the wait for the prompts before it, in a queue with one server, Poisson arrivals and equal service
  times (M/D/1, Pollaczek and Khinchine). With the utilization u, the part of the time in which
  other prompts are prefilled, the mean is u / (1 - u) * prefill / 2. The 95th percentile is that of
  an exponential tail with the same mean, ln(u / 0.05) / (1 - u) * prefill / 2.

The constants are in step_constants.json, which tools/serving_constants.py fits to
tests/data/serving/measurements.json.
"""

import json
import math
from bisect import bisect_left
from functools import cache
from pathlib import Path

from ..errors import AttncalcError
from ..quantity import Ratio
from ..records import NamedTuple
from .cache_read import ServingConfig
from .load_bounds import Load, Steps, steps_of
from .request import ResolvedRequest

# Sequences of a step: all up to 8, and then four in each doubling, up to 2^20.
_GRID = (*range(1, 9), *(n << octave for octave in range(1, 18) for n in range(5, 9)))
# Seconds of HTTP, tokenizer and scheduler before a prefill.
#
# With it the median of 46 published times to the first token of SGLang's cookbook is 0.99 of the
# estimate; docs/accuracy.md has those of others.
_FIRST = 0.06
# The part of requests that wait longer than the 95th percentile.
_LATE = 0.05
# The family whose constants stand for those of another kind of GPU without runs.
_USUAL_GPUS = "NVIDIA, data center"


class Constants(NamedTuple):
    """What published runs of a family of GPUs and of models reached.

    Attributes:
        gpus: The family of GPUs.
        model: The family of models.
        memory: The part of the bandwidth.
        compute: The part of the peak.
        layer: Seconds per layer of a decode step.
        request: Seconds per concurrent request of a decode step.
        low: Measured / planned tokens/s below most runs.
        high: Measured / planned tokens/s above most runs.
        runs: The number of runs.
        sources: The repositories and pages that published them.
        first: Seconds before a prefill.
        scale: What all times but `first` are divided by: measured / planned tokens/s of a benchmark
            of one's own, or --efficiency.
    """

    gpus: str
    model: str
    memory: float
    compute: float
    layer: float
    request: float
    low: float
    high: float
    runs: int
    sources: tuple[str, ...]
    first: float = _FIRST
    scale: float = 1.0

    def __str__(self) -> str:
        return f"{self.model} on {self.gpus}"


class ServedLoad(NamedTuple):
    """The estimated times of one copy of a model under a load.

    Attributes:
        ttft: Mean seconds to the first token, with the wait for other prompts.
        ttft_p95: The 95th percentile of them.
        tpot: Seconds per output token, while all other requests are prefilled once.
        tokens_per_second: Output tokens/s of all the load's requests.
        utilization: The part of the time in which prompts are prefilled.
        prefill: Seconds of a device for the prefill of a prompt.
        idle_ttft: Seconds to the first token on an idle copy.
        decode_step: Seconds of a decode step of all requests.
        constants: The constants of its family.
    """

    ttft: float
    ttft_p95: float
    tpot: float
    tokens_per_second: float
    utilization: float
    prefill: float
    idle_ttft: float
    decode_step: float
    constants: Constants


class Work(NamedTuple):
    """What one device does under a load, in seconds at its peak and bandwidth."""

    prefill: float  # FLOPs of a prompt's prefill at the peak
    prefill_memory: float  # bytes that it reads in all stages, at the bandwidth
    prefill_sent: float  # its communication
    stages: int  # pipeline stages that a prompt passes one after the other
    compute: float  # FLOPs of a decode step at the peak
    memory: float  # bytes of a decode step at the bandwidth
    sent: float  # communication of a decode step
    layers: int  # layers that a token passes
    requests: float  # concurrent requests of the device's rank, on average
    requests_of_copy: int  # those of all ranks
    output: int  # output tokens of a request


def best_case(efficiency: float) -> Constants:
    """Return the constants of a deployment that reaches that part of the speed of the best case, in
    which kernels reach the bandwidth and the peak, and nothing is launched.
    """
    return Constants("", "", 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0, (), first=0.0, scale=efficiency)


def served_load(
    resolved: ResolvedRequest,
    load: Load,
    known: Constants | None = None,
    computed: dict[int, Steps] | None = None,
) -> ServedLoad | None:
    """Return the estimated times of a load; None with drafts, and without the GPU's FLOP/s.

    Args:
        resolved: The deployment.
        load: The load of one copy.
        known: The constants; None for those of its family.
        computed: {sequences of a step: the passes} of loads that differ in the requests only, which
            the function reads and adds to.
    """
    if resolved.args.speculative_tokens:
        return None
    try:
        work = work_of(resolved, load, {} if computed is None else computed)
    except AttncalcError:
        return None
    return times_of(work, known or constants_of(resolved))


def work_of(resolved: ResolvedRequest, load: Load, computed: dict[int, Steps]) -> Work:
    """Return what one device does under a load; `computed` as in `served_load`.

    A decode step is computed at the next loads of _GRID below and above, and interpolated: all
    splits and GPUs ask for the same loads, and its work is continuous, also where the requests are
    no multiple of ranks and stages. With 33 requests on 4 ranks each has 8.25. Raises AttncalcError
    as `steps_of` does.
    """
    together = resolved.ranks * ServingConfig.of(resolved).stages
    batch = max(1.0, load.requests / together)
    above = min(bisect_left(_GRID, batch), len(_GRID) - 1)
    below = above if _GRID[above] == batch else above - 1
    for batch_of_grid in {_GRID[below], _GRID[above]} - computed.keys():
        requests = batch_of_grid * together
        computed[batch_of_grid] = steps_of(resolved, load._replace(requests=requests), "expected")
    less = computed[_GRID[below]]
    more = computed[_GRID[above]]
    part = 0.0
    if above != below:
        part = (batch - _GRID[below]) / (_GRID[above] - _GRID[below])

    def between(low: Ratio, high: Ratio) -> float:
        return float(low) + part * (float(high) - float(low))

    return Work(
        prefill=float(more.prompt.by_compute),
        prefill_memory=float(more.alone.by_memory),
        prefill_sent=float(more.prompt_sent),
        stages=more.stages,
        compute=between(less.decode.by_compute, more.decode.by_compute),
        memory=between(less.decode.by_memory, more.decode.by_memory),
        sent=between(less.decode_sent, more.decode_sent),
        layers=resolved.request.model.main.n_layers,
        requests=max(1.0, load.requests / resolved.ranks),
        requests_of_copy=load.requests,
        output=load.output_tokens,
    )


def times_of(work: Work, known: Constants) -> ServedLoad:
    """Return the times of some work with the constants of its family."""
    prefill = (work.prefill / known.compute + work.prefill_sent) / known.scale
    in_kernels = max(work.memory / known.memory, work.compute / known.compute)
    launched = work.layers * known.layer
    step = (in_kernels + launched + work.sent + work.requests * known.request) / known.scale
    decodes = work.output - 1
    seconds = work.requests * prefill + decodes * step
    in_stages = max(work.stages * prefill, work.prefill_memory / known.memory / known.scale)
    alone = known.first + in_stages + launched / known.scale
    others = (work.requests - 1) / work.requests
    by_others = others * work.requests * prefill / seconds
    # half of the running step, and the one that the prefill shares
    shared = others * 1.5 * step
    in_line = prefill / 2 / (1 - by_others)
    wait = by_others * in_line
    late = wait
    if by_others > _LATE:
        late = max(wait, math.log(by_others / _LATE) * in_line)
    tpot = step
    if decodes:
        tpot += (work.requests - 1) * prefill / decodes
    return ServedLoad(
        ttft=alone + shared + wait,
        ttft_p95=alone + shared + late,
        tpot=tpot,
        tokens_per_second=work.requests_of_copy * work.output / seconds,
        utilization=work.requests * prefill / seconds,
        prefill=prefill,
        idle_ttft=alone,
        decode_step=step,
        constants=known,
    )


def family_of(resolved: ResolvedRequest) -> tuple[str, str]:
    """Return the families of the GPU and of the model with its GPUs."""
    gpu = resolved.gpu
    assert gpu is not None
    gpus = _USUAL_GPUS
    if gpu.vendor == "Apple":
        gpus = "Apple"
    elif gpu.vendor == "AMD":
        gpus = "AMD"
    elif gpu.runs_files:
        gpus = "a desktop's card"
    if not resolved.model.has_experts:
        return gpus, "dense"
    if resolved.devices * resolved.ranks == 1:
        return gpus, "mixture on one GPU"
    return gpus, "mixture on several GPUs"


def constants_of(resolved: ResolvedRequest) -> Constants:
    """Return the constants of a deployment's family, or of the usual GPUs without runs of it."""
    gpus, model = family_of(resolved)
    return _table().get((gpus, model)) or _table()[_USUAL_GPUS, model]


@cache
def _table() -> dict[tuple[str, str], Constants]:
    text = Path(__file__).with_name("step_constants.json").read_text(encoding="utf-8")
    rows = [
        Constants(**{**row, "sources": tuple(row["sources"])})
        for row in json.loads(text)["families"]
    ]
    return {(row.gpus, row.model): row for row in rows}
