"""Time and memory of a layer over doubling contexts: what scales_with with the tokens, what with their square."""

from __future__ import annotations

import torch

from ..attention.recurrent import Recurrent
from ..check import Check, Scaled, Verified
from ..model import ModelSpec
from .device import Device, settled
from .memory import peak_check, predicted
from .passes import passes
from .plan import LEAST, Plan, planned
from .run import Tell
from .subject import Asked, Layer, Subject, subjects
from .timing import fastest, flop_of

DOUBLINGS = 3


def contexts(longest: int) -> tuple[int, ...]:
    """The longest, its half, and so on, in rising order."""
    found = [longest >> i for i in range(DOUBLINGS, -1, -1)]
    return tuple(n for n in found if n >= LEAST)


def verify_scaling(model: ModelSpec, asked: Asked, device: Device, *, tell: Tell) -> Verified:
    """Every distinct attention layer at each of `contexts`; the peaks are checked, the times are information.

    CannotCheckError: as in `verify_model`.
    """
    checks: list[Check] = []
    scaled: list[Scaled] = []
    with settled(device, asked.seed) as random:
        longest = planned(model, asked, device)
        plans = [planned(model, asked._replace(context=n), device) for n in contexts(longest.asked.context)]
        for subject in subjects(model.plain()):
            if subject.stack.input == "source" or isinstance(subject.kind, Recurrent):
                continue  # an encoder's tokens are the source's, which stay as they are; a recurrence has no kernel
            for plan in plans:
                tell(f"{model.name}, {subject.name}, {plan.asked.context:,} tokens")
                for row, check in _at(model, subject, plan, device, random):
                    scaled.append(row)
                    checks += [check] if check else []
                device.forget()
    order = {kernel: i for i, kernel in enumerate(asked.kernels)}
    scaled.sort(key=lambda row: (row.of, order[row.kernel], row.context))
    recurrent = [s for s in subjects(model.plain()) if isinstance(s.kind, Recurrent)]
    words = [f"{s.name}: {s.kind.label} runs no attention kernel, whose peak or time could be told." for s in recurrent]
    skipped = (*longest.shrunk, *longest.skipped, *words)
    return Verified(tuple(checks), scaled=tuple(scaled), skipped=skipped, context=longest.asked.context)


def _at(
    model: ModelSpec, subject: Subject, plan: Plan, device: Device, random: torch.Generator
) -> list[tuple[Scaled, Check | None]]:
    """One context: by kernel its time, and its peak beside what `memory` says."""
    layer, context = Layer(subject, plan.asked, device.torch, random), plan.asked.context
    known = predicted(model, plan, device.machine)
    found = []
    for one in passes(layer, plan):
        if one.phase == "decode":
            continue
        ms = fastest(device, one.run) * 1e3
        moment = known[subject.layer_name, "prefill"].peaks[one.kernel]
        check, peak = None, None
        if device.measures_memory:
            peak = device.peak(one.run)
            check = peak_check(f"prefill_{context}", f"{one.kernel}, {context:,}", one.kernel, moment, peak)
            check = check._replace(of=subject.name)
        flop = flop_of(one, layer)
        found.append((Scaled(subject.name, one.kernel, context, ms, flop, peak, moment.size), check))
    return found
