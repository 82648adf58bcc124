"""Pools of SGLang's own configurator equal attncalc's.

tools/sglang_pools.py recorded what the configurator of 0.5.23 says for 32 GiB of cache on one GPU.
"""

import json
from typing import Any

import pytest
from vllm_plans import DATA, model

from attncalc import AttncalcError, fit

VERSION = "0.5.23"
ROWS = [
    json.loads(line)
    for line in (DATA / "sglang-pools" / f"{VERSION}.jsonl").read_text("utf-8").splitlines()
]
# {a part of a model's name: why its pools differ}
EXCEPTIONS = {
    "DeepSeek-V4": "its pools depend on the GPU, and the tool has a CPU",
    "deepseek-v4": "its pools depend on the GPU, and the tool has a CPU",
    "step-3.7-flash": "the file names a class that is not SGLang's, and attncalc goes by model_type",
}


def difference(row: dict[str, Any]) -> str | None:
    """Return how attncalc's pools differ from SGLang's; '' if they do not, and None if attncalc
    refuses the model.
    """
    try:
        asked = model(row["model"])
        result = fit(
            asked,
            gpu="h100",
            engine="sglang",
            engine_version=VERSION,
            context=min(256, asked.max_context or 256),
            kv_memory=32 << 30,
        )
    except AttncalcError:
        return None
    if result.refusal and "no SGlang implementation" in result.refusal.reason:
        return None
    figures = {detail.name: int(detail.quantity) for detail in result.pool.details}
    ours = {"tokens": int(result.pool.tokens)}
    for name in ("swa_tokens", "state_slots"):
        if name in figures:
            ours[name] = figures[name]
    if "state_slots" in figures:  # they limit the requests
        ours["requests"] = int(result.pool.concurrency)
    theirs = {name: row.get(name) for name in ours}
    return "" if ours == theirs else f"{row['model']}: {ours}, SGLang has {theirs}"


@pytest.mark.parametrize("part", range(8))
def test_pools_equal_those_of_sglang(part: int) -> None:
    planned = [row for row in ROWS[part::8] if "error" not in row]
    compared = [row for row in planned if not any(name in row["model"] for name in EXCEPTIONS)]
    found = [difference(row) for row in compared]
    assert [text for text in found if text] == []
    assert found.count("") >= 20
