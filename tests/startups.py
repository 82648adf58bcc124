"""Start-ups of serving engines in public logs, and what `fit` predicts for each from model, GPU and
options alone.

tests/data/startups/startups.json has one row per start-up; the README beside it describes the
fields.
"""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from attncalc import AttncalcError, ModelSpec, Workload, load
from attncalc.config.checkpoints import by_habit, of_checkpoint, stored_as
from attncalc.config.gpus import gpu
from attncalc.quantization import StoredAs
from attncalc.serving.fit import FitResult, fit
from attncalc.serving.request import FitRequest

FOLDER = Path(__file__).parent / "data" / "startups"
GIB = 2**30


class Prediction(NamedTuple):
    """What `fit` predicts for a start-up, in GiB."""

    verdict: str  # fits, may_not_fit, does_not_fit, or 'refused' with an error
    # The expected memory for the cache; negative if weights and reserve are too large. Of
    # llama.cpp, whose cache has the size that was asked for, the buffers that the row has,
    # together.
    kv_memory: float = 0.0
    low: float = 0.0  # the least memory for the cache
    high: float = 0.0  # the most
    weights: float = 0.0  # the weights on one device
    # {part: expected GiB}
    runtime: dict[str, float] = {}  # noqa: RUF012
    error: str = ""  # the message of a refusal

    def with_weights(self, weights: float) -> "Prediction":
        """Return the prediction with other weights, as a log has them."""
        more = self.weights - weights
        return self._replace(
            kv_memory=self.kv_memory + more,
            low=self.low + more,
            high=self.high + more,
            weights=weights,
        )


def startups() -> list[dict[str, Any]]:
    """Return the rows."""
    rows: list[dict[str, Any]] = json.loads((FOLDER / "startups.json").read_text())
    return rows


@cache
def model(name: str) -> ModelSpec:
    """Return the model of a row: a preset, or a config.json beside the rows."""
    return load(str(FOLDER / name) if name.startswith("models/") else name)


def result_of(row: dict[str, Any]) -> FitResult:
    """Return what fits. Raises AttncalcError as `fit` does."""
    device = gpu(row["gpu"])
    if "gpu_memory_gib" in row:
        device = dataclasses.replace(device, memory=int(row["gpu_memory_gib"] * GIB), is_own=True)
    if "other_memory_gib" in row:
        device = dataclasses.replace(device, other_memory=int(row["other_memory_gib"] * GIB))
    request = FitRequest(
        model(row["model"]),
        Workload.decode(row.get("batch", 1), row["context"], kv_dtype=row.get("kv_dtype")),
        row["engine"],
        draft=model(row["draft"]) if "draft" in row else None,
        gpu=device,
        gpus=row["tp"] * row["pp"],
        tp=row["tp"],
        pp=row["pp"],
        attn_dp=row.get("attn_dp", 1),
        gpu_memory_utilization=row["share"],
        weights_dtype=row.get("weights_dtype"),
        layouts=_layouts(row),
        enable_expert_parallel=row.get("expert_parallel", False),
        engine_args={**row["args"], "engine_version": row["version"]},
    )
    return fit(request)


def _layouts(row: dict[str, Any]) -> dict[str, tuple[StoredAs, ...]]:
    """Return how the checkpoint of a row stores the weights, as `FitRequest.layouts`."""
    if "checkpoint" not in row:
        return {}
    found = of_checkpoint(row["checkpoint"]) or by_habit(row["checkpoint"])
    assert found is not None
    stored = stored_as(found[1], model(row["model"]).model_type or "")
    assert stored is not None
    return {found[1].dtype: (stored,)}


def logged_size(row: dict[str, Any]) -> float:
    """Return the GiB for the cache that the log has; of llama.cpp, of the buffers that it has,
    together.
    """
    logged = row["logged"]
    return float(sum(logged.values()) if row["engine"] == "llamacpp" else logged["kv_memory"])


def _buffers(row: dict[str, Any], result: FitResult) -> Prediction:
    """Return the sizes of llama.cpp's buffers on the GPU: those of weights, cache and compute that
    the row has.
    """
    assert result.budget.weights is not None
    assert result.budget.reserve is not None
    weights, parts = int(result.budget.weights.total), result.budget.reserve.runtime.parts
    compute = next(part for part in parts if part.name == "compute_buffer")
    fixed = weights * ("weights" in row["logged"]) + int(result.needed) * ("cache" in row["logged"])
    counted = "compute" in row["logged"]

    def total(size: int) -> float:
        return (fixed + size * counted) / GIB

    sizes = (total(int(compute.expected)), total(int(compute.low)), total(int(compute.high)))
    return Prediction(result.verdict, *sizes, weights / GIB)


def predict(row: dict[str, Any]) -> Prediction:
    """Return what is predicted for a row."""
    try:
        result = result_of(row)
    except AttncalcError as error:
        return Prediction("refused", error=error.message)
    budget = result.budget
    assert budget.weights is not None
    assert budget.reserve is not None
    if row["engine"] == "llamacpp":
        return _buffers(row, result)
    return Prediction(
        result.verdict,
        budget.room() / GIB,
        budget.room("low") / GIB,
        budget.room("high") / GIB,
        int(budget.weights.total) / GIB,
        {part.name: int(part.expected) / GIB for part in budget.reserve.runtime.parts},
    )
