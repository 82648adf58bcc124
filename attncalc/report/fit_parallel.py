"""Notes of `attncalc fit` on data and expert parallelism, and on latents that tensor parallelism replicates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..errors import AttncalcError
from ..model import plural
from ..serving.expert_parallel import has_experts
from ..serving.fit import FitResult, fit
from ..serving.request import FitRequest, ResolvedRequest
from ..units import BYTES, count, human


def parallel_notes(result: FitResult) -> list[str]:
    """Return how the experts are divided, and what all ranks hold together."""
    resolved = result.resolved
    devices = resolved.expert_devices
    experts = max(layers.mlp.n_experts or 0 for _, layers in resolved.request.model.groups() if layers.mlp)
    here = f"each GPU has a part of all {count(experts)} experts"
    if resolved.request.enable_expert_parallel:
        here = f"a GPU has at most {count(-(-experts // devices))} of {count(experts)} experts of a layer"
    notes = [f"The routed experts are divided over {plural(devices, 'GPU')}: {here}. Router and attention are not."]
    if resolved.replicas > 1:
        together = float(result.pool.concurrency) * resolved.replicas
        notes.append(
            f"{plural(resolved.replicas, 'data-parallel rank')} of "
            f"{plural(resolved.devices // resolved.args.attn_dp, 'GPU')}: all figures and "
            f"the batch are per rank. All ranks together hold {together:,.2f} concurrent requests."
        )
        notes.append(
            "The experts' workspace is that for one rank's tokens. Backends that gather the tokens of all ranks need "
            "more, and buffers for the exchange of tokens between ranks are not counted."
        )
    return notes


def latent_notes(result: FitResult) -> list[str]:
    """Return the bytes of latents that tensor-parallel GPUs store as copies, and what DP attention would give."""
    resolved = result.resolved
    tp, request = resolved.args.tp // resolved.args.attn_dp, resolved.request
    if tp == 1 or "MLA" not in resolved.args.attentions or resolved.share is None or not resolved.gpu:
        return []
    note = (
        f"Copies of the latents on the other {plural(tp - 1, 'GPU')} take "
        f"{human(int(result.needed) * (tp - 1), BYTES)} for this batch: --tp does not divide MLA's cache."
    )
    if resolved.engine not in _WITH_ATTENTION_RANKS or not has_experts(request.model):
        return [note]
    flags, other_request = _WITH_ATTENTION_RANKS[resolved.engine](resolved)
    try:
        other = fit(other_request)
    except AttncalcError:
        return [note]
    if other.verdict == "does_not_fit":
        return [note, f"DP attention ({flags}) does not fit: each GPU would need all weights of attention."]
    before = float(result.pool.concurrency) * resolved.replicas
    after = float(other.pool.concurrency) * other.resolved.replicas
    gives = f"DP attention ({flags}) would give {after:,.2f} concurrent requests on all GPUs instead of {before:,.2f}."
    # a note that starts with an option is on the default screen
    return (
        [f"--tp {resolved.args.tp} stores copies of MLA's latents. {gives}", note] if after > before else [note, gives]
    )


def _vllm_ranks(resolved: ResolvedRequest) -> tuple[str, FitRequest]:
    ranks = resolved.args.tp * resolved.dp
    changed = dataclasses.replace(
        resolved.request, tp=1, dcp=1, dp=ranks, enable_expert_parallel=True, gpus=resolved.gpus
    )
    return f"--tp 1 --dp {ranks} --enable-expert-parallel", changed


def _sglang_ranks(resolved: ResolvedRequest) -> tuple[str, FitRequest]:
    tp = resolved.args.tp
    return f"--tp {tp} --attn-dp {tp}", dataclasses.replace(resolved.request, tp=tp, attn_dp=tp, gpus=resolved.gpus)


_WITH_ATTENTION_RANKS: dict[str, Callable[[ResolvedRequest], tuple[str, FitRequest]]] = {
    "vllm": _vllm_ranks,
    "sglang": _sglang_ranks,
}
"""{engine: returns the options and the request in which each GPU has attention, and a cache, of its own}."""
