"""Whether a training run fits on its GPUs, and changes that make it fit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, get_args

from ...attention.saved import KEEP_SCORES
from ...errors import AttncalcError
from ...hardware import Gpu
from ...model import plural
from ...records import NamedTuple
from ...search import first_true
from ...units import GIB, MIB, count, long_option
from .classes import class_math
from .setup import Training
from .step import Cached, StageBudget, budgets, most_loaded

Verdict = Literal["fits", "may_not_fit", "does_not_fit"]
# How sure it is that a run fits: by the top of the range, by what is expected, by its bottom, or
# not.
Likelihood = Literal["sure", "likely", "unlikely", "no"]
LIKELIHOODS: tuple[Likelihood, ...] = get_args(Likelihood)
# Percent of the allocated bytes that the caching allocator reserves: none more, the expected and
# the most.
#
# Five runs that Megatron-Bridge publishes reserve 2.5, 3.1, 3.4, 7.8 and 10.9 % more than they
# allocate (its model verification cards). On an H200 with a limit of memory, 10 runs needed 0.3 to
# 6 % more, and three with large logits 13 to 25 % (tests/data/training/h200.json); runs with
# expandable segments 0.5 to 9 %, with varied lengths too.
ALLOCATOR = (100, 103, 111)
EXPANDABLE = (100, 102, 109)
# The most with a large tensor: percent of the allocated bytes, and of the largest tensor. Tensors
# that are alive lie in the segments from which the allocator would have to make one for it.
AROUND_LARGEST = (105, 120)
# The most with batches of varied lengths: 5 to 34 % more than is allocated, on an H200 with a limit
# of memory.
VARIED = 134
# Bytes of the CUDA context with cuBLAS: 140.875 MiB in fitcheck-llm's runs on a T4; 0.45, 0.30 to
# 0.75 GiB, around llama.cpp's buffers in posted logs.
CONTEXT = (141 * MIB, 45 * GIB // 100, 75 * GIB // 100)
# Bytes of NCCL's buffers with several GPUs: 0.03 to 0.25 GiB over PCIe, 1.4 to 2.1 over NVLink in
# vLLM's logs.
NCCL = (GIB // 10, GIB, 21 * GIB // 10)
MAX_CONTEXT = 2**24
MAX_BATCH = 2**16


class TrainResult(NamedTuple):
    run: Training  # the run
    budget: StageBudget  # the memory of one GPU of the most loaded stage
    low: int  # the least that a GPU needs, with allocator and CUDA context
    expected: int  # what it is expected to need
    high: int  # the most
    verdict: Verdict | None  # the answer; None without a GPU

    @property
    def needs_one_length(self) -> bool:
        """Return whether a run that fits may not fit if its batches have varied lengths."""
        gpu = self.run.gpu
        most = self.budget.allocated_in_step * VARIED // 100 + overhead(self.run)[2]
        return (
            self.verdict == "fits"
            and not self.run.expandable_segments
            and gpu is not None
            and most > gpu.memory
        )

    @property
    def likelihood(self) -> Likelihood | None:
        """How sure it is that the run fits; None without a GPU."""
        return _likelihood(self.run, (self.low, self.expected, self.high))

    @property
    def likelihood_with_expandable_segments(self) -> Likelihood | None:
        """The same if the allocator's segments grow, which fragments less; None without a GPU."""
        run = dataclasses.replace(self.run, expandable_segments=True)
        budget = self.budget
        sizes = reserved(
            run, budget.allocated_in_step, budget.largest, budget.cached, budget.loading
        )
        low, expected, high = (
            size + outside for size, outside in zip(sizes, overhead(run), strict=True)
        )
        return _likelihood(run, (low, expected, high))

    @property
    def fits(self) -> bool | None:
        """Whether it fits or may fit; None without a GPU."""
        if self.verdict is None:
            return None
        return self.verdict != "does_not_fit"


def _likelihood(run: Training, needed: tuple[int, int, int]) -> Likelihood | None:
    """Return how sure it is that a run fits that needs so many bytes: the least, the expected and
    the most.
    """
    if run.gpu is None:
        return None
    low, expected, high = needed
    if high <= run.gpu.memory:
        return "sure"
    if expected <= run.gpu.memory:
        return "likely"
    if low <= run.gpu.memory:
        return "unlikely"
    return "no"


def overhead(run: Training) -> tuple[int, int, int]:
    """Return the bytes of CUDA context and NCCL: the least, the expected and the most.

    An Apple GPU has neither, and what Metal takes instead is not known.
    """
    if run.is_mps:
        return 0, 0, 0
    if run.gpus == 1:
        return CONTEXT
    low, expected, high = (context + nccl for context, nccl in zip(CONTEXT, NCCL, strict=True))
    return low, expected, high


def reserved(
    run: Training, allocated: int, largest: int, cached: Cached, loading: int = 0
) -> tuple[int, int, int]:
    """Return the bytes that the allocator reserves: the least, the expected and the most.

    Short of memory, it frees blocks that it only holds, if nothing lies in their segments.

    Args:
        run: The run.
        allocated: Bytes that tensors hold in a step.
        largest: Bytes of the largest tensor of a step.
        cached: What the allocator holds besides in a step.
        loading: Bytes that tensors hold while a checkpoint is loaded.
    """
    grows = run.expandable_segments and not run.is_mps  # Metal has no such segments
    percents = EXPANDABLE if grows else ALLOCATOR
    low, expected, high = (allocated * percent // 100 for percent in percents)
    if not grows:
        of_all, of_largest = AROUND_LARGEST
        around_largest = of_all * int(allocated) + of_largest * int(largest)
        if around_largest > ALLOCATOR[2] * int(allocated):
            high = (of_all * allocated + of_largest * largest) // 100
    for more in filter(None, cached[:2]):
        expected += more
    for more in filter(None, cached[1:]):
        high += more
    if int(loading) > int(allocated):
        at_loading = (loading * percent // 100 for percent in percents)
        in_step = (low, expected, high)
        low, expected, high = (max(pair, key=int) for pair in zip(at_loading, in_step, strict=True))
    if grows:  # short of memory, they give back the pages of freed logits
        expected = min((expected, high), key=int)
    return low, expected, high


def train_result(run: Training, *, plain: bool = False) -> TrainResult:
    budget = most_loaded(run, plain=plain)
    reserves = reserved(
        run, budget.allocated_in_step, budget.largest, budget.cached, budget.loading
    )
    needed = [size + outside for size, outside in zip(reserves, overhead(run), strict=True)]
    verdict: Verdict | None = None
    if run.gpu:
        if needed[2] <= run.gpu.memory:
            verdict = "fits"
        elif needed[0] <= run.gpu.memory:
            verdict = "may_not_fit"
        else:
            verdict = "does_not_fit"
    return TrainResult(run, budget, needed[0], needed[1], needed[2], verdict)


def stage_sizes(run: Training) -> list[int]:
    """Return the allocated bytes of one GPU of each stage."""
    return [budget.allocated for budget in budgets(run, plain=True)]


# Limits


def longest_context(run: Training) -> int | None:
    """Return the longest context that is sure to fit, a multiple of 128 and of what the parallelism
    needs.

    None if not even the shortest fits.
    """
    step = context_step(run)
    maximum = run.model.max_context or MAX_CONTEXT
    most = max(1, min(MAX_CONTEXT, maximum) // step)
    found = _most(lambda n: _fits(run.with_workload(context=n * step)), most)
    return found and found * step


def context_step(run: Training) -> int:
    """Return the tokens by which a context that is searched for grows."""
    return 128 * run.cp * (run.tp if run.sequence_parallel else 1)


def largest_batch(run: Training) -> int | None:
    """Return the largest micro-batch that is sure to fit, in examples; None if not even one
    does.
    """
    return _most(lambda n: _fits(run.with_workload(batch=n)), MAX_BATCH)


def _most(fits: Callable[[int], bool], most: int) -> int | None:
    if not fits(1):
        return None
    if fits(most):
        return most
    return first_true(lambda n: not fits(n), 1, most) - 1


def _fits(run: Training) -> bool:
    return train_result(run, plain=True).verdict == "fits"


# Changes


class Asked(NamedTuple):
    """A run, and the options that describe it: a change of it is a change of options.

    Defaults that depend on an option, such as the dtype of gradients on that of the weights, are
    derived again.
    """

    run: Training  # the run
    options: Mapping[str, Any]  # {option: its value}
    resolve: Callable[[Mapping[str, Any]], Training]  # returns the run of other options
    named_gpus: int | None = None  # the number that --gpu has, as 8 of 8xh100; None if it has none

    def changed(self, **options: Any) -> Asked:
        """Return the run with these options, instead of its own of that name. Raises AttncalcError
        if it cannot be.
        """
        changed = {**self.options, **options}
        if changed.get("recompute") != "selective":  # whose modules they are
            changed.pop("recompute_modules", None)
        if changed.get("recompute") != "full":
            changed.pop("recompute_method", None)
            changed.pop("recompute_num_layers", None)
        return self._replace(run=self.resolve(changed), options=changed)


class Change(NamedTuple):
    options: Mapping[str, Any]  # the changed options, in the order in which they are shown
    cost: str  # what it costs, in words
    asked: Asked  # the changed run

    @property
    def flag(self) -> str:
        """The options to type: '--gpus 4 --zero 3'."""
        return " ".join(typed(self.options))

    @property
    def run(self) -> Training:
        return self.asked.run

    @property
    def result(self) -> TrainResult:
        """Whether the changed run fits, and what it needs."""
        return train_result(self.run, plain=True)

    @property
    def costs(self) -> str:
        """What it costs, with the host's memory."""
        on_host = int(self.result.budget.states.on_host) * self.run.gpus
        if on_host:
            return f"{self.cost}, {count(-(-on_host // GIB))} GiB RAM"
        return self.cost


def changes(asked: Asked) -> tuple[Change, ...]:
    """Return changes that are sure to make a run fit, the cheapest first; () if it fits already, or
    no two do.

    Each kind is tried alone. If none that keeps what is trained, and how long it is, is enough, the
    cheapest two of these are tried together, and one of these with each of the others, such as more
    GPUs; then two of the others without more GPUs.
    """
    if asked.run.gpu is None or _fits(asked.run):
        return ()
    found: dict[tuple[_Kind, ...], Change] = {}
    for kind in _KINDS:
        alone = next((change for change in _try(kind, asked) if _is_enough(change)), None)
        if alone:
            found[(kind,)] = alone
    if any((kind,) in found for kind in _SAME_RESULT):
        return tuple(found.values())
    found |= _first_pair(asked, combinations(_SAME_RESULT, 2))
    for kind in _OTHERS[:-1]:
        if (kind,) not in found:
            found |= _first_pair(asked, ((one, kind) for one in _SAME_RESULT))
    if (_more_gpus,) not in found:
        found |= _fewest_gpus_of_pairs(asked)
    if not any(_more_gpus not in kinds for kinds in found):
        found |= _first_pair(asked, combinations(_OTHERS[:-1], 2))
    return tuple(found[kinds] for kinds in sorted(found, key=_cost))


def _cost(kinds: Sequence[_Kind]) -> tuple[int, ...]:
    """Return what changes of these kinds are sorted by: the dearest first."""
    return tuple(sorted(map(_KINDS.index, kinds), reverse=True))


def _is_enough(change: Change) -> bool:
    """Return whether a change makes a run fit, and is not too many at once."""
    return number_of_changes(change.options) <= MOST_TOGETHER and _fits(change.run)


def number_of_changes(options: Mapping[str, Any]) -> int:
    """Return the number of changes that options are: GPUs and their sharding are one."""
    return len({_PART_OF.get(name, name) for name in options})


def _first_pair(
    asked: Asked, pairs: Iterable[tuple[_Kind, _Kind]]
) -> dict[tuple[_Kind, ...], Change]:
    """Return the cheapest pair of changes that is enough; {} if none is."""
    for pair in sorted(pairs, key=_cost):
        if _fits(_all_of(asked, pair[::-1]).run):
            enough = next(filter(_is_enough, _both(asked, *pair)), None)
            if enough:
                return {pair: enough}
    return {}


def _fewest_gpus_of_pairs(asked: Asked) -> dict[tuple[_Kind, ...], Change]:
    """Return the fewest GPUs that are enough with one change that keeps the training; {} if 1,024
    are not.
    """
    # more GPUs need no other optimizer
    pairs = [_first_pair(asked, [(one, _more_gpus)]) for one in _SAME_TRAINING]
    enough = [pair for pair in pairs if pair]
    return min(enough, key=lambda pair: next(iter(pair.values())).run.gpus, default={})


def _both(asked: Asked, cheaper: _Kind, dearer: _Kind) -> Iterator[Change]:
    """Yield each change of one kind with each of another, the least first.

    A context is the longest with the other change.
    """
    if dearer is _shorter:
        for one in [*_try(cheaper, asked)][-1:]:
            for then in _try(dearer, one.asked):
                yield _joined(one, then)
        return
    for one in _try(dearer, asked):
        for then in _try(cheaper, one.asked):
            yield _joined(one, then, then, one)._replace(cost=one.cost)


def fewest_gpus(asked: Asked, gpu: Gpu) -> Change | None:
    """Return the fewest GPUs of a kind, of 1 and USUAL_GPUS, that are enough with changes that keep
    the training.

    None if not even these are.
    """
    try:
        one = asked.changed(gpu=gpu)
    except AttncalcError:
        return None
    for more in (Change({}, "", one), *_try(_more_gpus, one)):
        with_all = _all_of(more.asked, _SAME_TRAINING)
        if _fits(with_all.run):
            return _joined(more, with_all, with_all, more)
    return None


def widest_tuned(asked: Asked) -> Change | None:
    """Return the changes that keep the training in the first way to tune in which it fits; None if
    it does in none.

    They include those of the way.
    """
    for way in ways_to_tune(asked).values():
        change = _joined(way, _all_of(way.asked, _SAME_TRAINING))
        if _fits(change.run):
            return change
    return None


def ways_to_tune(asked: Asked) -> dict[str, Change]:
    """Return {name: change}: as asked, and cheaper ways with adapters: full, LoRA, QLoRA."""
    return {change.run.way: change for change in (Change({}, "", asked), *_try(_adapters, asked))}


def sharded(asked: Asked) -> Change | None:
    """Return the run with everything sharded; None if it cannot be."""
    return next(_try(lambda one: iter([(_sharding(one, 3), "more communication")]), asked), None)


def all_changes(asked: Asked) -> Change:
    """Return the cheapest changes that are enough together, however many; if none are, every kind
    of change, with more GPUs or without, whichever needs less.
    """
    for others in ((), *((kind,) for kind in _OTHERS)):
        enough = next(_together(asked, others), None)
        if enough:
            return enough
    rest = _OTHERS[::-1]
    with_more_gpus = _all_of(asked, (*rest, *_SAME_RESULT))
    without = _all_of(asked, (*rest[1:], *_SAME_RESULT))
    return min(with_more_gpus, without, key=lambda change: change.result.high)


def _together(asked: Asked, others: Sequence[_Kind]) -> Iterator[Change]:
    """Yield the least changes of these kinds that are enough with those that keep the result.

    More GPUs need no other optimizer.
    """
    kinds = _SAME_TRAINING if _more_gpus in others else _SAME_RESULT
    options = _combined(asked, others[::-1])  # a context is the longest with the other changes
    if not options or not _fits(_all_of(options[-1].asked, kinds).run):
        return
    for change in options:
        found = _fewest(change.asked, kinds)
        if _fits(found.run):
            joined = _joined(change, found, found, change)
            yield joined._replace(cost=change.cost or found.cost)
            return


def _combined(asked: Asked, kinds: Sequence[_Kind]) -> list[Change]:
    """Return every combination of the changes of these kinds, the last of each kind at the end."""
    if not kinds:
        return [Change({}, "", asked)]
    combined = []
    for one in [*_try(kinds[0], asked)]:
        combined += [_joined(one, more) for more in _combined(one.asked, kinds[1:])]
    return combined


def _joined(one: Change, then: Change, *shown: Change) -> Change:
    """Return two changes, of which the second is one of the first's run and replaces what both
    have.

    `shown` has both in the order in which their options are shown, if it is another one.
    """
    options = {**one.options, **then.options}
    ordered = {}
    for change in shown or (one, then):
        for name in change.options:
            ordered[name] = options[name]
    return Change(ordered, then.cost or one.cost, then.asked)


def _fewest(asked: Asked, kinds: Sequence[_Kind]) -> Change:
    """Return as few changes of these kinds as make a run fit together, without the dearest if
    possible; or all.
    """
    found = _all_of(asked, kinds)
    if not _fits(found.run):
        return found
    for kind in reversed(kinds):
        fewer = [one for one in kinds if one is not kind]
        change = _all_of(asked, fewer)
        if _fits(change.run):
            kinds = fewer
            found = change
    return found


def _all_of(asked: Asked, kinds: Sequence[_Kind]) -> Change:
    found = Change({}, "", asked)
    for kind in kinds:
        for change in [*_try(kind, found.asked)][-1:]:
            found = _joined(found, change)
    return found


_Options = dict[str, Any]
# Returns the changed options of each change of a kind, and what it costs.
_Kind = Callable[[Asked], Iterator[tuple[_Options, str]]]


def _try(kind: _Kind, asked: Asked) -> Iterator[Change]:
    """Yield the changes of one kind that are possible."""
    for options, cost in kind(asked):
        with contextlib.suppress(AttncalcError):
            yield Change(options, cost, asked.changed(**options))


def typed(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield each option as the command line has it: '--recompute full'."""
    short = {"batch": "-b", "context": "-c", "master_weights": "--no-master-weights"}
    for name, value in options.items():
        option = short.get(name, long_option(name))
        if isinstance(value, frozenset):
            yield f"{option} {','.join(sorted(value))}"
        elif isinstance(value, bool):
            yield option
        else:
            yield f"{option} {value}"


def _recompute(asked: Asked) -> Iterator[tuple[_Options, str]]:
    if asked.run.workload.recompute != "full":
        # a forward pass more, of 3, or of 2 without gradients of the weights
        yield {"recompute": "full"}, "half more FLOPs" if asked.run.lora else "a third more FLOPs"


def _chunked_loss(asked: Asked) -> Iterator[tuple[_Options, str]]:
    if asked.run.loss == "full":
        yield {"loss": "chunked"}, "the same result"
    if asked.run.loss != "fused":
        yield {"loss": "fused"}, "the same result"


def _expandable(asked: Asked) -> Iterator[tuple[_Options, str]]:
    # they are those of CUDA's allocator
    if not asked.run.expandable_segments and not asked.run.is_mps:
        yield {"expandable_segments": True}, "set PYTORCH_ALLOC_CONF"


def _no_upcast(asked: Asked) -> Iterator[tuple[_Options, str]]:
    run = asked.run
    if run.weights_dtype and run.kbit_upcast:
        # --no-kbit-upcast alone would leave out the autocast of adapters in fp32
        autocasts = run.param_dtype == "fp32" and run.autocasts_adapters
        more = {"autocast": True} if autocasts else {}
        yield {"no_kbit_upcast": True, **more}, "embedding and head in 16 bits"


def _flash(asked: Asked) -> Iterator[tuple[_Options, str]]:
    # an Apple GPU has no flash kernel with gradients
    if asked.run.kernel in KEEP_SCORES and not asked.run.is_mps:
        has_sdpa = class_math(asked.run.model.model_type).has_sdpa
        yield (
            {"kernel": "flash"},
            "the same result, faster" if has_sdpa else "a kernel from the hub",
        )


def _smaller_batch(asked: Asked) -> Iterator[tuple[_Options, str]]:
    batch = asked.run.batch
    if batch == 1:
        return
    for parts in (*range(2, min(64, batch) + 1), batch):
        if batch % parts:
            continue
        options = {"batch": batch // parts}
        # --global-batch has the micro-batches already
        if "global_batch" not in asked.options:
            options["gradient_accumulation"] = asked.run.gradient_accumulation * parts
        yield options, "smaller matmuls, the same result"


def _eight_bit(asked: Asked) -> Iterator[tuple[_Options, str]]:
    run = asked.run
    if run.optimizer == "adamw" and run.lora is None:
        if run.zero or not run.master_weights:
            yield {"optimizer": "adam8bit"}, "8-bit moments"
        else:
            yield (
                {"optimizer": "adam8bit", "master_weights": False},
                "8-bit moments, weights of 16 bits",
            )


def _double_quant(asked: Asked) -> Iterator[tuple[_Options, str]]:
    if asked.run.weights_dtype == "nf4" and not asked.run.double_quant:
        yield {"double_quant": True}, "scales in 8 bits"


def _sharding(asked: Asked, zero: int) -> _Options:
    """Return the options of a stage of ZeRO; with adapters that of all is FSDP, unless --zero is
    given.
    """
    if zero == asked.run.zero:
        return {}
    is_fsdp = zero == 3 and asked.run.lora and "zero" not in asked.options
    if is_fsdp:
        return {"fsdp": True}
    return {"zero": zero}


def _more_sharding(asked: Asked) -> Iterator[tuple[_Options, str]]:
    if asked.run.ranks > 1:
        for zero in range(asked.run.zero + 1, 4):
            yield _sharding(asked, zero), "more communication"


def _shorter(asked: Asked) -> Iterator[tuple[_Options, str]]:
    """Yield the longest context that fits; without one, the shortest that is useful, which may fit
    with other changes: a quarter of what was asked for, and 1,024 tokens at least.
    """
    context = asked.run.workload.context
    step = context_step(asked.run)
    least = -(-max(SHORTEST_CONTEXT, -(-context // SHORTEST_PART)) // step) * step
    longest = longest_context(asked.run)
    shorter = least if longest is None else longest
    if least <= shorter < context:
        yield {"context": shorter}, "shorter sequences"


def _lora(asked: Asked) -> Iterator[tuple[_Options, str]]:
    recomputes = asked.run.workload.recompute != "none"
    for options, cost in _adapters(asked):
        if "weights_dtype" in options and not recomputes:
            yield {"recompute": "full", **options}, cost
        else:
            yield options, cost


def _adapters(asked: Asked) -> Iterator[tuple[_Options, str]]:
    adapters = {"lora": "r=16"} if asked.run.lora is None else {}
    if adapters:
        yield adapters, "adapters only"
    if asked.run.weights_dtype is None:
        yield {**adapters, "weights_dtype": "nf4"}, "adapters only, 4-bit"


def _offload(asked: Asked) -> Iterator[tuple[_Options, str]]:
    run = asked.run
    if run.is_mps:
        return
    if "optimizer" not in run.offload and run.lora is None:
        yield {"offload": run.offload | {"optimizer"}}, "slow steps"
    if "params" not in run.offload and run.ranks > 1 and run.pp == 1:
        parts = run.offload | ({"params"} if run.lora else {"optimizer", "params"})
        yield {**_sharding(asked, 3), "offload": parts}, "slow steps"


def _more_gpus(asked: Asked) -> Iterator[tuple[_Options, str]]:
    """Yield more GPUs that shard everything, up to 1,024."""
    run = asked.run
    copy = asked.run.tp * asked.run.pp * asked.run.cp
    sharding = _sharding(asked, max(run.zero, 1 if run.pp > 1 else 3))
    for gpus in USUAL_GPUS:
        if gpus > run.gpus and gpus % copy == 0:
            yield {**_number(asked, gpus), **sharding}, plural(gpus - run.gpus, "more GPU")


def _number(asked: Asked, gpus: int) -> _Options:
    """Return the options of a number of GPUs, which is part of --gpu if that has one: 8xh100 are no
    16.
    """
    if asked.run.gpu is None or asked.named_gpus is None or gpus <= asked.named_gpus:
        return {"gpus": gpus}
    several = {"gpu": f"{gpus}x{asked.run.gpu.name}"}
    if "gpus" in asked.options:
        return several | {"gpus": gpus}
    return several


# The most changes that are suggested together: nobody tries more at once.
MOST_TOGETHER = 2
# The shortest context that is suggested: so many tokens, and this part of what was asked for.
# Shorter sequences would cut most examples.
SHORTEST_CONTEXT = 1024
SHORTEST_PART = 4
# {option: the option with which it is one change}.
_PART_OF = {
    "zero": "gpus",
    "fsdp": "gpus",
    "gpu": "gpus",
    "offload": "gpus",
    "gradient_accumulation": "batch",
    "master_weights": "optimizer",
    "autocast": "no_kbit_upcast",
    "weights_dtype": "lora",
}
# Numbers of GPUs that people have: whole machines of 8 from 8 on.
USUAL_GPUS = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
# The matrices of attention and MLPs that LoRA adapts by default: all linear layers, as in QLoRA
# (arXiv:2305.14314).
ALL_LINEAR = (
    "W_q",
    "W_k",
    "W_v",
    "W_o",
    "W_qkv",
    "W_q_a",
    "W_q_b",
    "W_kv_a",
    "W_kv_b",
    "W_gate",
    "W_up",
    "W_down",
)
# The kinds of changes, the cheapest first.
_KINDS: tuple[_Kind, ...] = (
    _expandable,
    _flash,
    _chunked_loss,
    _no_upcast,
    _double_quant,
    _smaller_batch,
    _recompute,
    _more_sharding,
    _eight_bit,
    _shorter,
    _lora,
    _offload,
    _more_gpus,
)
# Those after which the same is trained, on sequences of the same length.
_SAME_RESULT = _KINDS[: _KINDS.index(_shorter)]
# Those with the same optimizer too.
_SAME_TRAINING = tuple(kind for kind in _SAME_RESULT if kind is not _eight_bit)
# Those that change what is trained, or need other machines.
_OTHERS = _KINDS[len(_SAME_RESULT) :]
