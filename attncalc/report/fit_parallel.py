"""Notes of `attncalc fit` on data and expert parallelism, and on latents that tensor parallelism replicates."""

from __future__ import annotations

from ..model import plural
from ..serving.attention_ranks import with_attention_ranks
from ..serving.fit import FitResult
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
    tp = resolved.args.tp // resolved.args.attn_dp
    if tp == 1 or "MLA" not in resolved.args.attentions or resolved.share is None or not resolved.gpu:
        return []
    note = (
        f"Copies of the latents on the other {plural(tp - 1, 'GPU')} take "
        f"{human(int(result.needed) * (tp - 1), BYTES)} for this batch: --tp does not divide MLA's cache."
    )
    ranks = with_attention_ranks(result)
    if ranks is None:
        return [note]
    if ranks.after is None:
        return [note, f"DP attention ({ranks.flags}) does not fit: each GPU would need all weights of attention."]
    gives = (
        f"DP attention ({ranks.flags}) would give {ranks.after:,.2f} concurrent requests on all GPUs instead of "
        f"{ranks.before:,.2f}."
    )
    if ranks.after <= ranks.before:
        return [note, gives]
    # a note that starts with an option is on the default screen
    return [f"--tp {resolved.args.tp} stores copies of MLA's latents. {gives}", note]
