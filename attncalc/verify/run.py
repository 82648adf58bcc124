"""Verify a model: every distinct attention layer, one after another, each check as it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..attention import Grouped
from ..attention.recurrent import NoAttention
from ..check import Check, Timing, Verified
from ..cost.cache import kv_cache
from ..cost.common import group_name
from ..cost.params import params
from ..model import ModelSpec
from ..units import BYTES, PARAMS
from . import counts, memory, timing
from .device import Device, settled
from .kernels import CannotRunError
from .numerics import numerics
from .passes import Pass, passes
from .plan import Plan, decode, planned
from .small import Lab, behaviour
from .subject import Asked, Layer, Subject, subjects

Tell = Callable[[str], None]
"""Is told what is being done, for a progress bar."""


class Held(NamedTuple):
    """What one layer of a subject holds: for the sums over the model."""

    params: int
    cache: int


def verify_model(model: ModelSpec, asked: Asked, device: Device, *, timed: bool, tell: Tell) -> Verified:
    """Build every distinct attention layer of `model` at its true size and check it.

    timed: measure how long it takes, too. CannotCheckError: there is no room, or no kernel that runs.
    """
    with settled(device, asked.seed) as random:
        plan = planned(model, asked, device)
        skipped = [*plan.shrunk, *plan.skipped]
        absent = [group_name(model, *of) for of in model.groups() if isinstance(of[1].attention, NoAttention)]
        skipped += [f"{name}: these layers have no attention to check." for name in absent]
        known = memory.predicted(model, plan, device.machine)
        most = timing.ceiling(device, asked.torch_dtype) if timed else None
        checks: list[Check] = []
        times: list[Timing] = []
        held: list[tuple[Subject, Held]] = []
        for subject, symbols in zip(subjects(model.plain()), subjects(model.symbolic()), strict=True):
            tell(f"{model.name}, {subject.name}")
            layer = Layer(subject, plan.asked, device.torch, random)
            found, measured = _structure(layer, symbols, plan)
            held.append((subject, measured))
            found += counts.seen_pairs(layer, symbols)
            for one in passes(layer, plan):
                try:
                    found += _of_pass(one, layer, symbols, device, known)
                    times += [timing.timed(one, layer, device, most)] if most and not layer.steps else []
                except (CannotRunError, torch.OutOfMemoryError) as error:
                    why = "ran out of memory" if isinstance(error, torch.OutOfMemoryError) else "refused these sizes"
                    skipped.append(f"{subject.name}, {one.phase}: {one.kernel} {why}.")
            skipped += (*_uncounted(found, subject, plan), *_unchecked(layer))
            recurrent = layer.steps
            del layer
            device.forget()
            lab = Lab(device, asked.kernels, random)
            found += () if recurrent else numerics(subject.kind, lab)
            found += behaviour(subject, lab)
            checks += (check._replace(of=subject.name) for check in found)
        if most:
            times = timing.bounded(times, most.or_higher(timing.ceiling(device, asked.torch_dtype)))
        checks += _totals(model, plan, held)
    if not device.measures_memory:
        skipped.append(f"Peak memory: torch does not tell the peak on {device.kind}.")
    return Verified(tuple(checks), tuple(times), skipped=tuple(skipped), context=plan.asked.context)


def _of_pass(one: Pass, layer: Layer, symbols: Subject, device: Device, known: memory.Predicted) -> list[Check]:
    """What one pass is held to: its FLOPs and its peak."""
    of_flops = counts.flops(one, layer, symbols)
    found = [of_flops] if of_flops else []
    peak = device.measures_memory and not layer.steps
    return [*found, memory.peak(one, layer, device, known)] if peak else found


def _structure(layer: Layer, symbols: Subject, plan: Plan) -> tuple[list[Check], Held]:
    """The checks of parameters and of the cache, and what the layer holds."""
    found = list(counts.parameters(layer, symbols))
    kept = 0
    if layer.subject.decodes:
        of_cache = list(counts.cache_bytes(layer, symbols, plan))
        kept = next(int(check.measured) for check in of_cache if check.name == "cache_decode")
        found += of_cache
    held = next(int(check.measured) for check in found if check.name == "params_layer")
    return found, Held(held, kept)


def _uncounted(found: list[Check], subject: Subject, plan: Plan) -> list[str]:
    """Kernels that ran and whose FLOPs torch's counter could not tell."""
    names = {check.name for check in found}
    lacking = [k for k in plan.of(subject, "prefill") if f"flops_prefill_{k}" not in names]
    return [f"{subject.name}: this torch counts no FLOPs of {k} with grouped heads." for k in lacking]


def _unchecked(layer: Layer) -> list[str]:
    """What there is not to check of this layer, and why."""
    name, kind = layer.subject.name, layer.subject.kind
    if layer.steps:
        why = "no attention kernel runs, so that there is no score, mask, peak or time of one to check"
        return [f"{name}: {kind.label} is a recurrence, here token by token; {why}."]
    if isinstance(kind, Grouped) and kind.shares_kv:
        return [f"{name}: its K and V are an earlier layer's, random here; it keeps none, so no decode step is run."]
    return []


def _totals(model: ModelSpec, plan: Plan, held: list[tuple[Subject, Held]]) -> list[Check]:
    """The model's attention parameters and its whole cache: as many layers as there are of each kind."""
    note = "what one layer of each kind holds, times its layers"
    failure = "the sum over the layers is not the sum of the layers"
    total = params(model).attention
    found = [
        Check(
            "model",
            "params_attention",
            "attention parameters",
            total,
            sum(s.own * m.params for s, m in held),
            unit=PARAMS,
            note=note,
            failure=failure,
        )
    ]
    if model.main.has_cache:
        cache = kv_cache(model, decode(plan.asked, plan.asked.context)).total
        kept = sum(s.layers * m.cache for s, m in held)
        label = f"KV cache at {plan.asked.context:,} tokens"
        found.append(Check("model", "kv_cache", label, cache, kept, unit=BYTES, note=note, failure=failure))
    return found
