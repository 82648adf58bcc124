"""What a verification will need, before it allocates anything: it never runs a machine out of memory."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..attention import FULL
from ..attention.recurrent import Recurrent
from ..cost.activations import activations
from ..cost.cache import kv_cache
from ..cost.params import params
from ..errors import CannotCheckError
from ..model import ModelSpec
from ..units import BYTES, count, human
from ..workload import Run, Workload
from .device import Device
from .kernels import CannotRunError, sdpa
from .masks import EVERY_KEY, Seen
from .subject import RECURRENCE, Asked, Subject, subjects

STEPS = 2
"""Decode steps that are taken after a prefill."""
LEAST = STEPS + 2
"""The shortest context that has a prefill and those steps."""
SHARE = 0.8
"""No more than this share of what is free is taken."""
AROUND = 256 * 2**20
"""Bytes for what has no formula: the layer in small, libraries' workspaces."""


WHAT = "its heads, its mask or its dtype"


class Plan(NamedTuple):
    """What will be run: the sizes that fit, and for each subject's name and phase the kernels that run.

    shrunk: that the context had to be cut; skipped: kernels that were left out, and why.
    """

    asked: Asked
    kernels: dict[tuple[str, str], tuple[str, ...]]
    shrunk: tuple[str, ...]
    skipped: tuple[str, ...]

    def of(self, subject: Subject, phase: str) -> tuple[str, ...]:
        """The kernels that run in this phase; none in one that the subject does not have."""
        return self.kernels.get((subject.name, phase), ())

    def leanest(self, subject: Subject, phase: str) -> str:
        """Of those, the one that takes the least memory."""
        able = self.of(subject, phase)
        return next((k for k in ("flash", "cudnn", "efficient") if k in able), able[0])


def prefill(asked: Asked) -> Workload:
    """The first pass of a verification, as the cost functions are asked about it."""
    return asked.workload(asked.context)


def decode(asked: Asked, context: int) -> Workload:
    """The decode step of a token that attends to `context`, itself included."""
    return Workload.decode(asked.batch, context, source=asked.source, dtype=asked.dtype)


def planned(model: ModelSpec, asked: Asked, device: Device, *, processes: int = 1, copies: int = 1) -> Plan:
    """What of the question fits in what is free, at the context asked for or halved until it does.

    processes: that share the device. copies: of the weights that each of them holds.
    CannotCheckError: not even the shortest context fits, or none of the kernels runs.
    """
    room = int(device.free() * SHARE / processes)
    wanted = asked.context
    shrunk: tuple[str, ...] = ()
    while True:
        found = _kernels(model, asked, device, room, copies)
        lacking = [of for of, able in found.kernels.items() if not able]
        if not lacking:
            break
        if asked.context == LEAST or lacking[0] not in found.too_large:
            raise _cannot(model, asked, device, room, lacking[0], found.too_large)
        asked = asked._replace(context=max(LEAST, asked.context // 2))
    if asked.context != wanted:
        shrunk = (f"Context {count(wanted)} does not fit in {human(room, BYTES)}: {count(asked.context)} was taken.",)
    large = [
        f"{name}, {phase}: {kernel} needs {human(needed, BYTES)} and was left out."
        for (name, phase), needs in found.too_large.items()
        for kernel, needed in needs.items()
    ]
    return Plan(asked, found.kernels, shrunk, (*large, *found.refused))


Of = tuple[str, str]
"""A subject's name and a phase."""
Needs = dict[Of, dict[str, int]]
"""Bytes by subject, phase and kernel."""


class Able(NamedTuple):
    """The kernels that run and fit, those that do not fit, and in words those that refuse."""

    kernels: dict[Of, tuple[str, ...]]
    too_large: Needs
    refused: list[str]


def _kernels(model: ModelSpec, asked: Asked, device: Device, room: int, copies: int) -> Able:
    needed = needs(model, asked, copies)
    kernels: dict[Of, tuple[str, ...]] = {}
    too_large: Needs = {}
    refused: dict[str, list[str]] = {}
    for subject in subjects(model):
        for phase in ("prefill", "decode") if subject.decodes else ("prefill",):
            of = (subject.name, phase)
            if isinstance(subject.kind, Recurrent):
                kernels[of] = (RECURRENCE,) if needed[of][RECURRENCE] <= room else ()
                too_large.update({} if kernels[of] else {of: needed[of]})
                continue
            able = tuple(k for k in asked.kernels if runs(k, subject, phase, asked, device))
            kernels[of] = tuple(k for k in able if needed[of][k] <= room)
            left_out = {k: needed[of][k] for k in able if needed[of][k] > room}
            if left_out:
                too_large[of] = left_out
            for k in asked.kernels:
                if k not in able:
                    refused.setdefault(f"{subject.name}: {k} does not take {WHAT}", []).append(phase)
    words = [f"{what} ({' and '.join(phases)})." for what, phases in refused.items()]
    return Able(kernels, too_large, words)


def _cannot(model: ModelSpec, asked: Asked, device: Device, room: int, of: Of, too_large: Needs) -> CannotCheckError:
    if of in too_large:
        least = min(too_large[of].values())
        return CannotCheckError(
            f"{model.name}, {of[0]}: one layer needs {human(least, BYTES)}, and {human(room, BYTES)} may be taken "
            f"on {device.name}",
            "a smaller --batch, --dtype bf16 or another device",
        )
    return CannotCheckError(
        f"{model.name}, {of[0]}: {' or '.join(asked.kernels)} does not take {WHAT} on {device.name} in {asked.dtype}",
        "leave out --kernel: what runs is found",
    )


def needs(model: ModelSpec, asked: Asked, copies: int = 1) -> Needs:
    """Bytes that each subject takes in each phase, by kernel.

    Its weights, tokens in and out, its cache twice (it is compared with another), the kernel's peak, and
    the caller's mask, which is there besides the one that the kernel is given.
    """
    size = asked.torch_dtype.itemsize
    weights = {g.group: copies * int(g.attention_one_layer) * size for g in params(model).groups}
    kept = {g.group: int(g.one_layer) for g in kv_cache(model, decode(asked, asked.context)).groups}
    found: Needs = {}
    for phase, workload in (("prefill", prefill(asked)), ("decode", decode(asked, asked.context))):
        if phase == "decode" and not model.main.has_cache:
            continue
        layers = {layer.name: layer for layer in activations(model, workload)}
        for subject in subjects(model):
            layer = layers.get(subject.layer_name)
            if isinstance(subject.kind, Recurrent):
                found[subject.name, phase] = {RECURRENCE: weights[subject.group] + 2 * kept[subject.group] + AROUND}
                found[subject.name, phase][RECURRENCE] += _of_tokens(subject, workload)
                continue
            if layer is None:  # an encoder, which takes no decode step
                continue
            _, _, S, T = layer.score_shape
            tokens = asked.batch * (asked.context + (asked.source or 0)) * int(subject.stack.d_model) * size
            mask = 2 * S * T if subject.kind.span != FULL else 0
            resting = weights[subject.group] + 4 * tokens + 2 * kept[subject.group] + mask + AROUND
            found[subject.name, phase] = {kernel: resting + moment.size for kernel, moment in layer.peaks.items()}
    return found


def _of_tokens(subject: Subject, workload: Workload) -> int:
    """Bytes of a recurrent layer's tokens on their way: in fp32 four times what its widest projection makes of them."""
    d_model = int(subject.stack.d_model)
    widest = max(int(m.cols) for m in subject.kind.matrices(d_model, d_model) if m.applied_to)
    return workload.batch * workload.new * (d_model + 4 * widest) * 4


def runs(kernel: str, subject: Subject, phase: str, asked: Asked, device: Device) -> bool:
    """Whether the kernel takes these heads, this dtype and such a mask: tried on a few tokens."""
    new, keys = (1, 16) if phase == "decode" else (16, 16)
    around = subject.kind.widths(Run(1, new, keys))
    q = torch.zeros(1, around.n_heads, new, around.d_qk, dtype=asked.torch_dtype, device=device.torch)
    k = q.new_zeros(1, around.n_kv_heads, keys, around.d_qk)
    v = q.new_zeros(1, around.n_kv_heads, keys, around.d_v)
    try:
        sdpa(kernel, q, k, v, _such_a_mask(subject, phase, asked.context, q), 1.0)
    except CannotRunError:
        return False
    return True


def _such_a_mask(subject: Subject, phase: str, context: int, q: torch.Tensor) -> Seen:
    """On few tokens what the context's mask is: a flag, a matrix, or nothing."""
    span = subject.kind.span
    if subject.crosses or (phase == "decode" and span.cached_tokens(context) == span.visible(context)):
        return EVERY_KEY
    narrowed = span.visible(context) < (context if phase == "prefill" else span.cached_tokens(context))
    if not narrowed and subject.mask.kind != "prefix":
        return Seen(causal=subject.mask.kind == "causal")
    return Seen(matrix=torch.ones(q.shape[2], 16, dtype=torch.bool, device=q.device).tril())
