"""vLLM's own plans of its cache, as tools/vllm_plan.py recorded them, beside attncalc's.

A row is a model and settings, and what the planner of a version of vLLM says for 32 GiB of cache.
Models are config.json files of presets, of transformers' classes, and of repositories.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from asking import REPOSITORY

from attncalc import AttncalcError, ModelSpec, fit, load

DATA = Path(__file__).parent / "data"
# The version with all settings, and all versions with a table.
VERSION = "0.32.0"
VERSIONS = sorted(path.stem for path in (DATA / "vllm-plans").glob("*.jsonl"))
# Where the models of the table are, as they were given to the tool; the first place that has a name
# counts.
PLACES = (
    REPOSITORY / "presets" / "more.json",
    DATA / "huggingface.json",
    DATA / "real-configs.json",
    DATA / "vendor-configs.json",
)
# The GPUs that the tool pretends.
GPUS = {"a100": "a100-80gb"}
# {a part of an error: why it says nothing about vLLM on a GPU}
NOT_PLANNED = {
    "AttributeError: ": "the file is cut, and transformers gives no default",
    "TypeError: ": "the file is cut, and transformers gives no default",
    "StrictDataclass": "the file is cut, and transformers refuses it",
    "must be provided when use_grouped_topk": "the file is cut",
    "No model architectures are specified": "the file names no class, and transformers has none",
    "does not recognize this architecture": "the config's class is in the repository's own code",
    "Can't load": "a processor's file is needed",
    "ZeroDivisionError": "a pooling model without a cache",
    "No MXFP4 MoE backend": "the kernels for MXFP4 are stubs",
    "Install a FlashInfer build": "it depends on the build of FlashInfer, which is a stub",
    "TooLong": "tracing transformers' code with meta tensors does not end",
    "requires UVA support": "the machine has no memory that a GPU reads too",
    "pin_memory=True": "the machine has no pinned memory",
    "is NoPE-only": "the file is cut, and its class has rotary positions by default",
    "not enough values to unpack": "a kernel's size comes from a stub",
    "Expected type: <class 'transformers.processing_utils": "a processor's file is needed",
}
# Settings with a --block-size that only the full layers of Gemma 4 have.
WINDOWS_OF_64 = (
    {"device": "b200", "block_size": 128},
    {"device": "b200", "block_size": 128, "kv_dtype": "fp8"},
)
# {model: why its plan differs}
EXCEPTIONS = {
    "default-glm5_next": "its pools have 16 tokens, where GLM-5.3-Flash has 4, and align blocks "
    "otherwise",
    "default-zaya": "attncalc refuses its convolution, and vLLM runs it with transformers' code",
    "step-3.7-flash": "the file names a class that is not vLLM's, and attncalc goes by model_type",
    "minicpm3-4b": "attncalc refuses: vLLM caches the keys and values of all heads",
}


@cache
def configs() -> dict[str, dict[str, Any]]:
    """Return {name: config.json} of all places."""
    found: dict[str, dict[str, Any]] = {}
    for place in PLACES:
        read = json.loads(place.read_text(encoding="utf-8"))
        if isinstance(read, list):
            read = {entry["name"]: entry["config"] for entry in read}
        for name, entry in read.items():
            found.setdefault(name, entry.get("config", entry))
    return found


@cache
def model(name: str) -> ModelSpec:
    return load(configs()[name])


@cache
def rows(version: str) -> list[dict[str, Any]]:
    """Return the rows of a version's table, each with the version."""
    text = (DATA / "vllm-plans" / f"{version}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) | {"version": version} for line in text.splitlines()]


def is_planned(row: dict[str, Any]) -> bool:
    """Return whether the row tells what vLLM does on a GPU."""
    return not why_not(row)


def why_not(row: dict[str, Any]) -> str:
    """Return why the row is not compared; '' if it is."""
    if row["settings"] in WINDOWS_OF_64 and row["model"] == "google__gemma-4-26B-A4B":
        return "on Blackwell, windows of Gemma 4 keep blocks of 64 beside --block-size 128"
    if (
        row["model"] in ("falcon-7b", "falcon-40b", "falcon-180b")
        and row["settings"].get("kv_dtype") == "fp8"
    ):
        return "vLLM does not read --kv-cache-dtype for Falcon, and attncalc says so in an error"
    if row["model"] in EXCEPTIONS:
        return f"{row['model']}: {EXCEPTIONS[row['model']]}"
    error = row.get("error", "")
    if error == "AssertionError: ":
        return "vLLM does not say why it does not start"
    for part, reason in NOT_PLANNED.items():
        if part in error:
            return reason
    return ""


def ours(row: dict[str, Any]) -> dict[str, Any]:
    """Return attncalc's plan of a row, or why it says that vLLM does not start."""
    settings = dict(row["settings"])
    device = settings.pop("device", "h100")
    drafter = json.loads(settings.pop("speculative", "{}"))
    if drafter:
        settings["speculative_tokens"] = drafter["num_speculative_tokens"]
    if drafter.get("method") == "mtp":
        settings["speculative_layers"] = 1
    try:
        asked = model(row["model"])
        result = fit(
            asked,
            gpu=GPUS.get(device, device),
            engine="vllm",
            engine_version=row["version"],
            context=row.get("max_model_len") or min(8192, asked.max_context or 8192),
            kv_memory=32 << 30,
            **settings,
        )
    except AttncalcError as error:
        return {"error": str(error)}
    refusal = result.refusal
    # weights beside which 32 GiB have no room are no matter of the planner
    if refusal and not refusal.reason.startswith(("a cache of", "a step may have")):
        return {"error": refusal.reason}
    pool = result.pool
    assert pool.blocks is not None
    return {
        "blocks": int(pool.blocks),
        "tokens": int(pool.tokens),
        "concurrency": round(float(pool.concurrency), 3),
    }


def difference(row: dict[str, Any]) -> str:
    """Return how attncalc's plan differs from vLLM's; '' if it does not."""
    found = ours(row)
    name = f"{row['version']} {row['model']} {row['settings']}"
    if "error" not in row:
        wanted = {key: row[key] for key in ("blocks", "tokens", "concurrency")}
        if found == wanted:
            return ""
        return f"{name}: {found}, vLLM has {wanted} in {row['groups']} of {row['backends']}"
    if "KV cache is needed" in row["error"]:
        return ""
    if "error" in found:
        return ""
    return f"{name}: {found}, vLLM does not start: {row['error']}"
