"""The keys of `attncalc fit --json` besides the figures. Sizes are in bytes."""

from collections.abc import Callable, Sequence
from typing import Any

from ...serving.answer import Answer
from ...serving.fit import FitResult, sure_sequences
from ...serving.launch import launch_command
from ...serving.request import ResolvedRequest
from ...serving.suggestions import Suggestion
from .figures import totals


def fit_facts(answer: Answer, summary: str) -> dict[str, Any]:
    """Return the keys that only this command has; `summary` is the verdict as a sentence."""
    result = answer.result
    resolved = answer.resolved
    return {
        "fits": result.fits,
        "verdict": result.verdict,
        "summary": summary,
        "runtime": _runtime_facts(result),
        "suggestions": changes_facts(answer.changes),
        "engine": resolved.engine.name,
        "engine_version": result.layout.version,
        "bound": result.layout.bound,
        "log_lines": list(result.log_lines),
        "gpu": resolved.gpu.name if resolved.gpu else None,
        "gpus": resolved.gpus if resolved.gpu else resolved.devices,
        "tp": resolved.args.tp,
        "pp": resolved.args.pp,
        "dp": resolved.dp,
        "attn_dp": resolved.args.attn_dp,
        "expert_parallel": resolved.request.enable_expert_parallel,
        "agrees": None,
        "checks": [],
        "estimates": [],
        "refusal": None,
        "load": None,
        "ranks": resolved.ranks,
        "replicas": resolved.replicas,
        "batch_per_replica": int(resolved.workload.batch),
        "launch_command": launch_command(resolved),
        "devices": [{**row._asdict(), "total": row.total} for row in answer.devices],
        "totals": totals(result),
    }


def engine_facts(result: FitResult) -> dict[str, Any]:
    return {
        "name": result.resolved.engine.name,
        "engine_version": result.layout.version,
        "bound": result.layout.bound,
        "fits": result.fits,
        "verdict": result.verdict,
        "runtime": _runtime_facts(result),
        "facts": list(result.layout.facts),
        "log_lines": list(result.log_lines),
        "launch_command": launch_command(result.resolved),
        "refused": None,
    }


def changes_facts(
    changes: Sequence[Suggestion], command: Callable[[ResolvedRequest], str | None] = launch_command
) -> list[dict[str, Any]]:
    """Return what each change is and gives; `command` returns the command that starts the engine
    so.
    """
    return [
        {
            "change": change.change,
            "flag": change.flag,
            "concurrency": float(change.result.pool.concurrency),
            "max_batch": change.result.max_batch,
            "max_batch_low": sure_sequences(change.result.resolved) or None,
            "launch_command": command(change.result.resolved),
        }
        for change in changes
    ]


def _runtime_facts(result: FitResult) -> list[dict[str, Any]]:
    """Return the parts of the runtime memory; none if the whole was given."""
    if result.budget.reserve is None:
        return []
    runtime = result.budget.reserve.runtime
    parts = [(part, True) for part in runtime.parts] + [(part, False) for part in runtime.outside]
    return [{**part._asdict(), "in_share": in_share} for part, in_share in parts]
