"""Whether a training run fits on its GPUs, and changes that make it fit."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, Literal

from ...errors import AttncalcError
from ...hardware import Gpu
from ...model import plural
from ...records import NamedTuple
from ...search import first_true
from ...units import GIB, MIB, count
from .classes import class_math
from .setup import Lora, Training
from .step import Cached, StageBudget, budgets, most_loaded

Verdict = Literal["fits", "may_not_fit", "does_not_fit"]
ALLOCATOR, EXPANDABLE = (100, 103, 111), (100, 102, 109)
"""Percent of the allocated bytes that the caching allocator reserves: none more, the expected and the most.

Five runs that Megatron-Bridge publishes reserve 2.5, 3.1, 3.4, 7.8 and 10.9 % more than they allocate (its model
verification cards). On an H200 with a limit of memory, 10 runs needed 0.3 to 6 % more, and three with large logits 13
to 25 % (tests/data/training/h200.json); runs with expandable segments 0.5 to 9 %, with varied lengths too.
"""
AROUND_LARGEST = (105, 120)
"""The most with a large tensor: percent of the allocated bytes, and of the largest tensor. Tensors that are alive lie
in the segments from which the allocator would have to make one for it."""
VARIED = 134
"""The most with batches of varied lengths: 5 to 34 % more than is allocated, on an H200 with a limit of memory."""
CONTEXT = (141 * MIB, 45 * GIB // 100, 75 * GIB // 100)
"""Bytes of the CUDA context with cuBLAS: 140.875 MiB in fitcheck-llm's runs on a T4; 0.45, 0.30 to 0.75 GiB, around
llama.cpp's buffers in posted logs."""
NCCL = (GIB // 10, GIB, 21 * GIB // 10)
"""Bytes of NCCL's buffers with several GPUs: 0.03 to 0.25 GiB over PCIe, 1.4 to 2.1 over NVLink in vLLM's logs."""
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
        gpu, most = self.run.gpu, self.budget.allocated * VARIED // 100 + overhead(self.run)[2]
        return self.verdict == "fits" and not self.run.expandable_segments and gpu is not None and most > gpu.memory

    @property
    def fits(self) -> bool | None:
        """Whether it fits or may fit; None without a GPU."""
        return None if self.verdict is None else self.verdict != "does_not_fit"


def overhead(run: Training) -> tuple[int, int, int]:
    """Return the bytes of CUDA context and NCCL: the least, the expected and the most."""
    parts = (CONTEXT, NCCL) if run.gpus > 1 else (CONTEXT,)
    low, expected, high = (sum(part[i] for part in parts) for i in range(3))
    return low, expected, high


def reserved(run: Training, allocated: int, largest: int, cached: Cached) -> tuple[int, int, int]:
    """Return the bytes that the allocator reserves: the least, the expected and the most.

    Short of memory, it frees blocks that it only holds, if nothing lies in their segments.
    """
    low, expected, high = (
        allocated * percent // 100 for percent in (EXPANDABLE if run.expandable_segments else ALLOCATOR)
    )
    of_all, of_largest = AROUND_LARGEST
    if not run.expandable_segments and of_all * int(allocated) + of_largest * int(largest) > ALLOCATOR[2] * int(
        allocated
    ):
        high = (of_all * allocated + of_largest * largest) // 100
    for more in filter(None, cached[:2]):
        expected += more
    for more in filter(None, cached[1:]):
        high += more
    return low, expected, high


def train_result(run: Training, *, plain: bool = False) -> TrainResult:
    budget = most_loaded(run, plain=plain)
    reserves = reserved(run, budget.allocated, budget.largest, budget.cached)
    needed = [size + outside for size, outside in zip(reserves, overhead(run), strict=True)]
    verdict: Verdict | None = None
    if run.gpu:
        verdict = (
            "fits" if needed[2] <= run.gpu.memory else "may_not_fit" if needed[0] <= run.gpu.memory else "does_not_fit"
        )
    return TrainResult(run, budget, needed[0], needed[1], needed[2], verdict)


def stage_sizes(run: Training) -> list[int]:
    """Return the allocated bytes of one GPU of each stage."""
    return [budget.allocated for budget in budgets(run, plain=True)]


# Limits


def longest_context(run: Training) -> int | None:
    """Return the longest context that is sure to fit, a multiple of 128 and of what the parallelism needs.

    None if not even the shortest fits.
    """
    step = 128 * run.cp * (run.tp if run.sequence_parallel else 1)
    maximum = run.model.max_context or MAX_CONTEXT
    most = max(1, min(MAX_CONTEXT, maximum) // step)
    found = _most(lambda n: _fits(run.with_workload(context=n * step)), most)
    return found and found * step


def largest_batch(run: Training) -> int | None:
    """Return the largest micro-batch that is sure to fit, in examples; None if not even one does."""
    return _most(lambda n: _fits(run.with_workload(batch=n)), MAX_BATCH)


def _most(fits: Callable[[int], bool], most: int) -> int | None:
    if not fits(1):
        return None
    return most if fits(most) else first_true(lambda n: not fits(n), 1, most) - 1


def _fits(run: Training) -> bool:
    return train_result(run, plain=True).verdict == "fits"


# Changes


class Change(NamedTuple):
    flag: str  # the options to type
    cost: str  # what it costs, in words
    run: Training  # the changed run

    @property
    def result(self) -> TrainResult:
        """Whether the changed run fits, and what it needs."""
        return train_result(self.run, plain=True)

    @property
    def costs(self) -> str:
        """What it costs, with the host's memory."""
        on_host = int(self.result.budget.states.on_host) * self.run.gpus
        return f"{self.cost}, {count(-(-on_host // GIB))} GiB RAM" if on_host else self.cost


def changes(run: Training) -> tuple[Change, ...]:
    """Return changes that are sure to make a run fit, the cheapest first; () if it fits already, or none does.

    Each kind is tried alone. If none that keeps what is trained, and how long it is, is enough, these are tried
    together; then together with each of the others, such as more GPUs; then with pairs of these, and more.
    """
    if run.gpu is None or _fits(run):
        return ()
    alone = {kind: next((change for change in _try(kind, run) if _fits(change.run)), None) for kind in _KINDS}
    found: dict[tuple[_Kind, ...], Change] = {(kind,): change for kind, change in alone.items() if change}
    if any((kind,) in found for kind in _SAME_RESULT):
        return tuple(found.values())
    for number in range(len(_OTHERS) + 1):
        for kinds in combinations(_OTHERS, number):
            for change in () if kinds in found else _together(run, kinds):
                found[kinds] = change
        if () in found or (number and found.keys() - {(_more_gpus,)}):
            break
    return tuple(found[kinds] for kinds in sorted(found, key=lambda kinds: [*map(_KINDS.index, kinds)]))


def fewest_gpus(run: Training, gpu: Gpu) -> Change | None:
    """Return the fewest GPUs of a kind, of 1 and USUAL_GPUS, that are enough with changes that keep the training.

    None if not even these are.
    """
    one = dataclasses.replace(run, gpu=gpu)
    for more in (Change("", "", one), *_try(_more_gpus, one)):
        with_all = _all_of(more.run, _SAME_TRAINING)
        if _fits(with_all.run):
            return _joined(with_all, more, with_all.run)
    return None


def widest_tuned(run: Training) -> Change | None:
    """Return the changes that keep the training in the first way to tune in which it fits; None if it does in none."""
    ways = (_all_of(one, _SAME_TRAINING) for one in ways_to_tune(run).values())
    return next((change for change in ways if _fits(change.run)), None)


def ways_to_tune(run: Training) -> dict[str, Training]:
    """Return {name: run}: as asked, and cheaper ways with adapters: full, LoRA, QLoRA."""
    return {one.way: one for one in (run, *(change.run for change in _try(_lora, run)))}


def all_changes(run: Training) -> Change:
    """Return every kind of change together, with more GPUs or without, whichever needs less."""
    rest = _OTHERS[::-1]
    return min(
        (_all_of(run, (*kinds, *_SAME_RESULT)) for kinds in (rest, rest[1:])), key=lambda change: change.result.high
    )


def _together(run: Training, others: Sequence[_Kind]) -> Iterator[Change]:
    """Yield the least changes of these kinds that are enough with those that keep the result.

    More GPUs need no other optimizer.
    """
    kinds = _SAME_TRAINING if _more_gpus in others else _SAME_RESULT
    options = _combined(run, others[::-1])  # a context is the longest with the other changes
    for change in options if options and _fits(_all_of(options[-1].run, kinds).run) else ():
        found = _fewest(change.run, kinds)
        if _fits(found.run):
            yield _joined(found, change, found.run)
            return


def _combined(run: Training, kinds: Sequence[_Kind]) -> list[Change]:
    """Return every combination of the changes of these kinds, the last of each kind at the end."""
    if not kinds:
        return [Change("", "", run)]
    firsts = [*_try(kinds[0], run)]
    return [_joined(one, more, more.run) for one in firsts for more in _combined(one.run, kinds[1:])]


def _joined(one: Change, other: Change, run: Training) -> Change:
    return Change(f"{one.flag} {other.flag}".strip(), other.cost or one.cost, run)


def _fewest(run: Training, kinds: Sequence[_Kind]) -> Change:
    """Return as few changes of these kinds as make a run fit together, without the dearest if possible; or all."""
    found = _all_of(run, kinds)
    for kind in reversed(kinds) if _fits(found.run) else ():
        fewer = [one for one in kinds if one is not kind]
        if _fits((change := _all_of(run, fewer)).run):
            kinds, found = fewer, change
    return found


def _all_of(run: Training, kinds: Sequence[_Kind]) -> Change:
    found = Change("", "", run)
    for kind in kinds:
        for change in [*_try(kind, found.run)][-1:]:
            found = _joined(found, change, change.run)
    return found


_Kind = Callable[[Training], Iterator[Change]]


def _try(kind: _Kind, run: Training) -> Iterator[Change]:
    """Yield the changes of one kind that are possible."""
    with contextlib.suppress(AttncalcError):
        yield from kind(run)


def _with(run: Training, flag: str, cost: str, **fields: Any) -> Change:
    return Change(flag, cost, dataclasses.replace(run, **fields))


def _recompute(run: Training) -> Iterator[Change]:
    if run.workload.recompute != "full":
        # a forward pass more, of 3, or of 2 without gradients of the weights
        more = "half more FLOPs" if run.lora else "a third more FLOPs"
        yield Change("--recompute full", more, run.with_workload(recompute="full"))


def _chunked_loss(run: Training) -> Iterator[Change]:
    if run.loss == "full":
        yield _with(run, "--loss chunked", "the same result", loss="chunked")
    if run.loss != "fused":
        yield _with(run, "--loss fused", "the same result", loss="fused")


def _expandable(run: Training) -> Iterator[Change]:
    if not run.expandable_segments:
        yield _with(run, "--expandable-segments", "set PYTORCH_ALLOC_CONF", expandable_segments=True)


def _no_upcast(run: Training) -> Iterator[Change]:
    if run.weights_dtype and run.kbit_upcast:
        autocast = run.param_dtype == "fp32" and run.autocasts_adapters  # which --no-kbit-upcast alone would leave out
        flag = "--no-kbit-upcast" + " --autocast" * autocast
        yield _with(run, flag, "embedding and head in 16 bits", kbit_upcast=False, autocast=autocast)


def _flash(run: Training) -> Iterator[Change]:
    if run.kernel in ("math", "eager"):
        needs = "the same result, faster" if class_math(run.model.model_type).has_sdpa else "a kernel from the hub"
        yield _with(run, "--kernel flash", needs, kernel="flash")


def _smaller_batch(run: Training) -> Iterator[Change]:
    batch = run.batch
    smaller_batches = [batch // parts for parts in (*range(2, 65), batch) if batch % parts == 0 and parts <= batch]
    for n in smaller_batches if batch > 1 else ():
        steps = run.gradient_accumulation * (batch // n)
        smaller = dataclasses.replace(run.with_workload(batch=n), gradient_accumulation=steps)
        yield Change(f"-b {n} --gradient-accumulation {steps}", "smaller matmuls, the same result", smaller)


def _eight_bit(run: Training) -> Iterator[Change]:
    if run.optimizer == "adamw" and run.lora is None:
        if run.zero or not run.master_weights:
            yield _with(run, "--optimizer adam8bit", "8-bit moments", optimizer="adam8bit")
        else:
            flag = "--optimizer adam8bit --no-master-weights"
            yield _with(run, flag, "8-bit moments, weights of 16 bits", optimizer="adam8bit", master_weights=False)


def _double_quant(run: Training) -> Iterator[Change]:
    if run.weights_dtype == "nf4" and not run.double_quant:
        yield _with(run, "--double-quant", "scales in 8 bits", double_quant=True)


def _more_sharding(run: Training) -> Iterator[Change]:
    for zero in range(run.zero + 1, 4):
        if run.ranks > 1:
            flag = "--fsdp" if zero == 3 and run.lora else f"--zero {zero}"
            yield _with(run, flag, "more communication", zero=zero)


def _shorter(run: Training) -> Iterator[Change]:
    """Yield the longest context that fits; without one, halves of it, which may fit with other changes."""
    context = run.workload.context
    longest = longest_context(run)
    for shorter in (longest,) if longest else [context >> n for n in range(1, context.bit_length() - 7)]:
        if shorter < context:
            yield Change(f"-c {shorter}", "shorter sequences", run.with_workload(context=shorter))


def _lora(run: Training) -> Iterator[Change]:
    if run.lora is None:
        lora = Lora(16, ALL_LINEAR)
        base = dataclasses.replace(run, lora=lora, master_weights=False, param_dtype="fp32", grad_dtype="fp32")
        yield Change("--lora r=16", "adapters only", base)
    if run.weights_dtype is None:
        base = run if run.lora else base
        flag = "--weights-dtype nf4" if run.lora else "--lora r=16 --weights-dtype nf4"
        if run.workload.recompute == "none":
            base, flag = base.with_workload(recompute="full"), f"--recompute full {flag}"
        yield Change(flag, "adapters only, 4-bit", dataclasses.replace(base, weights_dtype="nf4"))


def _offload(run: Training) -> Iterator[Change]:
    if "optimizer" not in run.offload and run.lora is None:
        yield _with(run, "--offload optimizer", "slow steps", offload=run.offload | {"optimizer"})
    if "params" not in run.offload and run.ranks > 1 and run.pp == 1:
        parts = run.offload | ({"params"} if run.lora else {"optimizer", "params"})
        sharded = "" if run.zero == 3 else "--fsdp " if run.lora else "--zero 3 "
        yield _with(run, f"{sharded}--offload {','.join(sorted(parts))}", "slow steps", offload=parts, zero=3)


def _more_gpus(run: Training) -> Iterator[Change]:
    """Yield more GPUs that shard everything, up to 1,024."""
    copy, zero = run.tp * run.pp * run.cp, max(run.zero, 1 if run.pp > 1 else 3)
    sharded = "" if zero == run.zero else " --fsdp" if run.lora and zero == 3 else f" --zero {zero}"
    for gpus in USUAL_GPUS:
        if gpus > run.gpus and gpus % copy == 0:
            more = plural(gpus - run.gpus, "more GPU")
            yield _with(run, f"--gpus {gpus}{sharded}", more, gpus=gpus, zero=zero)


USUAL_GPUS = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Numbers of GPUs that people have: whole machines of 8 from 8 on."""
ALL_LINEAR = (
    *("W_q", "W_k", "W_v", "W_o", "W_qkv", "W_q_a", "W_q_b", "W_kv_a", "W_kv_b"),
    *("W_gate", "W_up", "W_down"),
)
"""The matrices of attention and MLPs that LoRA adapts by default: all linear layers, as in QLoRA (arXiv:2305.14314)."""
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
"""The kinds of changes, the cheapest first."""
_SAME_RESULT = _KINDS[: _KINDS.index(_shorter)]
"""Those after which the same is trained, on sequences of the same length."""
_SAME_TRAINING = tuple(kind for kind in _SAME_RESULT if kind is not _eight_bit)
"""Those with the same optimizer too."""
_OTHERS = _KINDS[len(_SAME_RESULT) :]
"""Those that change what is trained, or need other machines."""
