"""The estimated times of a load: by hand, and that they are continuous in the requests."""

import math
import random
from statistics import mean, quantiles

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each
from test_load_bounds import on, one_layer

from attncalc import load
from attncalc.config.gpus import gpu
from attncalc.questions.plan.space import Split
from attncalc.serving.load_bounds import Load, bounds_of_load
from attncalc.serving.request import FitRequest, ResolvedRequest, resolve
from attncalc.serving.step_times import Constants, Work, best_case, served_load, times_of
from attncalc.workload import Workload

KNOWN = Constants(
    gpus="",
    model="",
    memory=0.5,
    compute=0.25,
    layer=1e-3,
    request=2e-3,
    low=1.0,
    high=1.0,
    runs=0,
    sources=(),
    first=0.05,
)
# Four requests with 11 output tokens: a prefill of 4.5 s and a step of 0.628 s with KNOWN.
WORK = Work(
    prefill=1.0,
    prefill_memory=0.5,
    prefill_sent=0.5,
    stages=1,
    compute=0.1,
    memory=0.3,
    sent=0.01,
    layers=10,
    requests=4.0,
    requests_of_copy=4,
    output=11,
)


def test_the_times_of_a_load_by_hand() -> None:
    """A prefill takes 1 / 0.25 + 0.5 = 4.5 s.

    A step takes max(0.3 / 0.5, 0.1 / 0.25) = 0.6 s in kernels, 10 x 0.001 s of launches, 0.01 s of
    communication and 4 x 0.002 s of requests: 0.628 s.

    Four prefills and ten steps take 18 + 6.28 = 24.28 s, in which 44 tokens are computed.
    """
    found = times_of(WORK, KNOWN)
    assert found.prefill == pytest.approx(4.5)
    assert found.decode_step == pytest.approx(0.628)
    assert found.tokens_per_second == pytest.approx(44 / 24.28)
    assert found.utilization == pytest.approx(18 / 24.28)
    # in the ten steps of a request the three others are prefilled once
    assert found.tpot == pytest.approx(0.628 + 3 * 4.5 / 10)
    # the prefill, the launches, and what is before a prefill
    assert found.idle_ttft == pytest.approx(4.5 + 0.01 + 0.05)


def test_a_step_is_bound_by_memory_or_by_compute() -> None:
    """0.2 / 0.25 = 0.8 s of FLOPs are longer than 0.3 / 0.5 = 0.6 s of bytes."""
    assert times_of(WORK._replace(compute=0.2), KNOWN).decode_step == pytest.approx(0.828)


def test_a_prompt_waits_for_those_before_it() -> None:
    """The three others prefill in 13.5 of 24.28 s: by Pollaczek and Khinchine the mean wait of
    arrivals at 3 / 24.28 per second is rate x 4.5^2 / 2 / (1 - 13.5 / 24.28).

    The prompt also waits for half of the step that runs, and shares one: 3 / 4 of 1.5 x 0.628 s.
    """
    found = times_of(WORK, KNOWN)
    u = 13.5 / 24.28
    wait = 3 / 24.28 * 4.5**2 / 2 / (1 - u)
    shared = 3 / 4 * 1.5 * 0.628
    assert found.ttft == pytest.approx(4.56 + shared + wait)
    # an exponential tail: u of the prompts wait, and on average wait / u
    late = wait / u * math.log(u / 0.05)
    assert found.ttft_p95 == pytest.approx(4.56 + shared + late)


def test_a_prompt_alone_waits_for_none() -> None:
    found = times_of(WORK._replace(requests=1.0, requests_of_copy=1), KNOWN)
    assert found.ttft == found.ttft_p95 == found.idle_ttft


def test_the_wait_is_that_of_a_simulated_queue() -> None:
    """Lindley's recursion: a prompt waits for the wait and the service before it, less the time
    since it came. The exponential tail is up to 15 % longer.
    """
    found = times_of(WORK, KNOWN)
    numbers = random.Random(1)
    waits = [0.0]
    for _ in range(100_000):
        waits.append(max(0.0, waits[-1] + 4.5 - numbers.expovariate(3 / 24.28)))
    before = found.idle_ttft + 3 / 4 * 1.5 * 0.628
    assert found.ttft - before == pytest.approx(mean(waits), rel=0.05)
    assert 1 < (found.ttft_p95 - before) / quantiles(waits, n=20)[-1] < 1.15


def test_a_prompt_passes_all_stages_before_its_first_token() -> None:
    found = times_of(WORK._replace(stages=3), KNOWN)
    assert found.idle_ttft == pytest.approx(3 * 4.5 + 0.01 + 0.05)
    assert found.tokens_per_second == times_of(WORK, KNOWN).tokens_per_second


def test_a_short_prompt_reads_all_weights() -> None:
    """5 / 0.5 = 10 s of reading are longer than 4.5 s."""
    found = times_of(WORK._replace(prefill_memory=5.0), KNOWN)
    assert found.idle_ttft == pytest.approx(10 + 0.01 + 0.05)


def test_an_output_of_one_token_has_no_decode_step() -> None:
    """4 tokens in four prefills of 4.5 s."""
    found = times_of(WORK._replace(output=1), KNOWN)
    assert found.tokens_per_second == pytest.approx(4 / 18)
    assert found.utilization == 1
    assert found.tpot == found.decode_step


def test_a_benchmark_scales_all_times_of_the_gpu() -> None:
    """What takes place before a prefill is not the GPU's."""
    found = times_of(WORK, KNOWN._replace(scale=0.5))
    whole = times_of(WORK, KNOWN)
    assert found.tokens_per_second == pytest.approx(whole.tokens_per_second / 2)
    assert found.tpot == pytest.approx(2 * whole.tpot)
    assert found.ttft - 0.05 == pytest.approx(2 * (whole.ttft - 0.05))
    assert found.utilization == pytest.approx(whole.utilization)


def test_an_efficiency_of_1_is_the_planning_figure() -> None:
    """Prefills and decode steps one after the other, as `test_load_bounds.py` has by hand."""
    resolved = on(one_layer())
    bounds = bounds_of_load(resolved, Load(2, 3, 3))
    found = served_load(resolved, Load(2, 3, 3), best_case(1.0))
    assert found
    assert bounds.planning_tpot
    assert bounds.planning_tokens_per_second
    assert found.tpot == pytest.approx(float(bounds.planning_tpot))
    assert found.tokens_per_second == pytest.approx(float(bounds.planning_tokens_per_second))
    assert found.idle_ttft == pytest.approx(float(bounds.planning_ttft))


# Deployments with ranks and stages, of all families

DEPLOYMENTS = (
    ("qwen3-8b", "l40s", "vllm", Split(1)),
    ("qwen3-8b", "rtx-4090", "llamacpp", Split(1)),
    ("qwen3-8b", "m3-max-128gb", "llamacpp", Split(1)),
    ("llama3.1-70b", "h100-80gb", "vllm", Split(8, 4, 2)),
    ("llama3.1-70b", "mi300x", "sglang", Split(4, 1, 4)),
    ("gpt-oss-120b", "h200", "vllm", Split(2, 2)),
    ("gpt-oss-120b", "h200", "vllm", Split(8, 2, 1, 4, expert_parallel=True)),
    ("deepseek-v3", "h200", "vllm", Split(8, 8)),
    ("deepseek-v3", "h200", "vllm", Split(32, 1, 1, 32, expert_parallel=True)),
    ("deepseek-v3", "h200", "sglang", Split(16, 16, 1, 1, 16, expert_parallel=True)),
    ("deepseek-v3", "mi300x", "vllm", Split(16, 8, 2)),
)


def deployment(name: str, device: str, engine: str, split: Split) -> ResolvedRequest:
    request = FitRequest(load(name), Workload.decode(1, 8192), engine, gpu=gpu(device))
    return resolve(split.of(request))


@given(
    st.sampled_from(DEPLOYMENTS),
    st.integers(1, 3000),
    st.integers(0, 300),
    st.sampled_from((1, 500, 7000)),
    st.sampled_from((1, 2, 200, 1000)),
)
@settings(max_examples=60, deadline=None)
def test_times_never_fall_when_requests_rise(
    asked: tuple[str, str, str, Split], requests: int, more: int, prompt: int, output: int
) -> None:
    resolved = deployment(*asked)
    few = served_load(resolved, Load(requests, prompt, output))
    many = served_load(resolved, Load(requests + more, prompt, output))
    assert few
    assert many
    same = 1 - 1e-9
    for name in ("tpot", "decode_step", "ttft", "ttft_p95", "utilization"):
        assert getattr(many, name) >= same * getattr(few, name), name
    assert many.ttft_p95 >= many.ttft >= many.idle_ttft


@each(("asked", "requests"), [(one, n) for one in DEPLOYMENTS for n in (8, 32, 128, 512)])
def test_one_request_more_changes_no_time_by_a_border(
    asked: tuple[str, str, str, Split], requests: int
) -> None:
    """Times change by at most 2 % from 128 requests to 129, and by less than the requests from 8
    to 9.
    """
    resolved = deployment(*asked)
    few = served_load(resolved, Load(requests, 2000, 500))
    more = served_load(resolved, Load(requests + 1, 2000, 500))
    assert few
    assert more
    most = max(0.02, 1.1 / requests)
    for name in ("tpot", "tokens_per_second", "ttft", "utilization"):
        assert getattr(more, name) == pytest.approx(getattr(few, name), rel=most), name


@given(
    st.sampled_from(DEPLOYMENTS),
    st.integers(1, 600),
    st.sampled_from((1, 100, 4000)),
    st.sampled_from((2, 400)),
)
@settings(max_examples=40, deadline=None)
def test_no_estimate_is_faster_than_the_bounds(
    asked: tuple[str, str, str, Split], requests: int, prompt: int, output: int
) -> None:
    resolved = deployment(*asked)
    bounds = bounds_of_load(resolved, Load(requests, prompt, output))
    assert bounds.tpot
    assert bounds.tokens_per_second
    for known in (None, best_case(1.0)):
        found = served_load(resolved, Load(requests, prompt, output), known)
        assert found
        same = 1 - 1e-9
        assert found.idle_ttft >= same * float(bounds.ttft)
        assert found.tpot >= same * float(bounds.tpot)
        assert same * found.tokens_per_second <= float(bounds.tokens_per_second)
