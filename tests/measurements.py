"""Published measurements of serving engines, and the bounds of their loads.

tests/data/serving/measurements.json has one row per measurement; the README beside it describes the
fields.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from attncalc import ModelSpec, Workload, load
from attncalc.config.gpus import gpu
from attncalc.serving.fit import Deployment
from attncalc.serving.load_bounds import Load, LoadBounds, bounds_of_load
from attncalc.serving.request import FitRequest, ResolvedRequest, resolve
from attncalc.serving.traffic import Traffic

FOLDER = Path(__file__).parent / "data" / "serving"
# The engine whose split is assumed for one that attncalc does not have.
ENGINES = {"tensorrt-llm": "vllm", "deepseek in-house": "vllm"}
# Types of files that attncalc does not have.
UNKNOWN = ("q5_k_xl",)
# The GPU with the same FLOP/s and bandwidth as one that attncalc does not have.
GPUS = {"h800": "h100-80gb"}


class Measurement(NamedTuple):
    """A published measurement with the bounds of its load."""

    row: dict[str, Any]  # the row of measurements.json
    resolved: ResolvedRequest  # the deployment
    # the load of one copy of the model; as many requests as fit on average where the source does
    # not say
    load: Load
    bounds: LoadBounds  # the bounds of one copy

    @property
    def tokens_per_second(self) -> float:
        """The measured output tokens/s of one copy; for a measured prefill its prompts/s."""
        if self.row.get("phase") == "prefill":
            return float(self.row["input_tokens_per_s"] / self.row["input"] / self.resolved.copies)
        return float(self.row["output_tokens_per_s"] / self.resolved.copies)

    @property
    def of_bound(self) -> float:
        """The measured tokens/s divided by the upper bound."""
        return self.tokens_per_second / float(self.bounds.tokens_per_second or 0)

    @property
    def of_planning(self) -> float:
        """The measured tokens/s divided by the planning figure."""
        return self.tokens_per_second / float(self.bounds.planning_tokens_per_second or 0)


def rows() -> list[dict[str, Any]]:
    """Return the rows."""
    found: list[dict[str, Any]] = json.loads(
        (FOLDER / "measurements.json").read_text(encoding="utf-8")
    )
    return found


@cache
def measurements() -> tuple[Measurement, ...]:
    """Return the measurements without drafts and cached prefixes, whose speed depends on what the
    users wrote.
    """
    return tuple(measured(row) for row in rows() if is_usable(row))


def examples() -> Iterator[tuple[dict[str, Any], LoadBounds]]:
    """Yield aiconfigurator's documented estimates of Qwen3 32B on H200, each with the bounds of its
    load.
    """
    found: list[dict[str, Any]] = json.loads(
        (FOLDER / "aiconfigurator.json").read_text(encoding="utf-8")
    )
    for row in found:
        prompt, output = row["input"], row["output"]
        deployment = FitRequest(
            model("qwen3-32b"),
            Workload.decode(1, prompt + output),
            "vllm",
            gpu=gpu("h200"),
            gpus=row["tp"],
            tp=row["tp"],
            weights_dtype=row["weights_dtype"],
            traffic=Traffic(prompt, output),
        )
        load_of = Load(row["requests"], prompt, output, row["prefix"] / prompt)
        yield row, bounds_of_load(resolve(deployment), load_of)


def is_usable(row: dict[str, Any]) -> bool:
    """Return whether a measurement has a bound: it has no drafts, no cached prefixes, and says what
    it measured.
    """
    return not (
        row.get("spec")
        or "prefix caching on" in row.get("notes", "")
        or row["weights_dtype"] in UNKNOWN
    )


@cache
def model(name: str) -> ModelSpec:
    """Return the model of a row."""
    return load(name)


def request(row: dict[str, Any]) -> FitRequest:
    """Return the deployment of a row as a request to `fit`."""
    tp, dp, prompt, output = (
        row["tp"],
        row.get("dp", 1),
        max(1, row["input"]),
        max(1, row["output"]),
    )
    engine = ENGINES.get(row["engine"], row["engine"])
    if dp > 1 and tp == 1:  # ranks of one GPU are described as vLLM's
        engine = "vllm"
    split = {"tp": tp, "dp": dp}
    if dp > 1 and engine == "sglang":
        split = {"tp": max(tp, dp), "attn_dp": dp}
    elif dp > 1 and tp == row["gpus"]:
        split = {"tp": tp // dp, "dp": dp}
    return FitRequest(
        model(row["model"]),
        Workload.decode(1, prompt + output, kv_dtype=row["kv_dtype"]),
        engine,
        gpu=gpu(GPUS.get(row["gpu"], row["gpu"])),
        gpus=row["gpus"],
        pp=row.get("pp", 1),
        enable_expert_parallel=row.get("ep", 1) > 1,
        weights_dtype=row["weights_dtype"],
        traffic=Traffic(prompt, output),
        **split,
    )


def measured(row: dict[str, Any]) -> Measurement:
    """Return a measurement with the bounds of its load.

    A measured prefill has one output token, and a measured decode step a prompt that is cached. As
    many requests run as fit, also if the source says that more were sent.
    """
    resolved = resolve(request(row))
    prompt, output = max(1, row["input"]), max(1, row["output"])
    fitting = Deployment(resolved).max_batch(prompt + (output + 1) // 2, 0, "high")
    most = int(fitting or 1) * resolved.ranks
    sent = row.get("avg_concurrency") or row.get("concurrency")
    requests = most if sent is None else min(most, max(1, round(sent / resolved.copies)))
    load_of = Load(requests, prompt, output, 1.0 if row.get("phase") == "decode" else 0.0)
    return Measurement(row, resolved, load_of, bounds_of_load(resolved, load_of))
