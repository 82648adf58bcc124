"""Figures that engines printed, compared with those computed from a model file and flags:
tests/data/engine-logs.
"""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tables import each

from attncalc.config import load
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.base import CacheLayout, DraftModel, Pool
from attncalc.units import dtype

FOLDER = Path(__file__).parent / "data" / "engine-logs"
LOGS: list[dict[str, Any]] = json.loads((FOLDER / "logs.json").read_text())
GIB = 2**30


def rounded(text: str) -> tuple[Decimal, Decimal]:
    """Return the range of numbers that a log prints as `text`: half of its last digit to both
    sides.
    """
    half = Decimal(1).scaleb(Decimal(text).as_tuple().exponent) / 2  # type: ignore[arg-type]
    return Decimal(text) - half, Decimal(text) + half


def draft_of(path: str | None, tp: int) -> dict[str, Any]:
    if path is None:
        return {}
    draft = load(str(FOLDER / path)).shard(tp)
    return {"speculative_model": DraftModel(draft.title, 0, layer_cache_specs(draft.plain()))}


def layout_of(entry: dict[str, Any]) -> tuple[CacheLayout, int]:
    """Return the engine's layout of the entry's model with its flags, and the context."""
    flags = {**entry.get("assumed", {}), **entry["flags"]}
    path = entry["model"]
    model = load(str(FOLDER / path) if path.startswith("models/") else path)
    if "attention" in flags:
        model = model.with_attention(flags.pop("attention"))
    model = model.shard(flags.pop("tp", 1))
    context = flags.pop("context", model.max_context)
    plain = dtype(flags.pop("dtype", "bf16"))
    given: dict[str, Any] = {
        "kv_dtype": dtype(flags.pop("kv-dtype", "bf16")),
        "dtype": plain,
        "tp": model.tp,
    }
    for name in ("kv-dtype-k", "kv-dtype-v", "mamba-ssm-cache-dtype"):
        if name in flags:
            given[name.replace("-", "_")] = dtype(flags.pop(name))
    if "swap-space-gib" in flags:
        given["swap_space"] = flags.pop("swap-space-gib") * GIB
    for name in ("num-gpu-blocks-override", "ubatch-note", "mamba-slots", "layers", "mla"):
        flags.pop(name, None)
    given |= draft_of(flags.pop("speculative-model", None), model.tp)
    for name, ours in (("page-size", "block_size"), ("rs-seq", "speculative_tokens")):
        if name in flags:
            given[ours] = flags.pop(name)
    if entry.get("fork") == "ik_llama.cpp":
        given["engine_version"] = "ik"
    given["model_type"] = model.model_type
    given.update({name.replace("-", "_"): value for name, value in flags.items()})
    if "engine_version" not in given and entry["version"]:
        given["engine_version"] = re.sub(r"(rc|dev|\.dev|\+).*", "", entry["version"])
    engine = find_engine(entry["engine"])
    return engine.layout(layer_cache_specs(model.plain()), engine.args(**given)), context


def vllm_entries() -> list[Any]:
    return [
        pytest.param(e, id=e["id"])
        for e in LOGS
        if e["engine"] == "vllm" and e["verdict"] == "match"
    ]


@each("entry", vllm_entries())
def test_vllm_layout_matches_the_log(entry: dict[str, Any]) -> None:
    """Tokens, blocks and concurrency are within what the rounding of the logged memory allows."""
    logged = entry["logged"]
    cache_layout, context = layout_of(entry)
    block_bytes = next(
        int(float(d.quantity))
        for d in cache_layout.pool(GIB, context).details
        if d.name == "kv_bytes_per_block"
    )
    if "available_gib" in logged:
        least, most = (int(x * GIB) for x in rounded(logged["available_gib"]))
    elif "available_bytes" in logged:
        least = most = logged["available_bytes"]
    else:  # no memory in the excerpt: take that of the logged or assumed number of blocks
        blocks = (
            logged.get("kv_blocks") or entry.get("assumed", {}).get("num-gpu-blocks-override") or 0
        )
        least = most = blocks * block_bytes
        # the blocks would be compared with themselves
        logged = {name: value for name, value in logged.items() if name != "kv_blocks"}
    low, high = cache_layout.pool(least, context), cache_layout.pool(most, context)
    if least:
        assert_in_range(logged, low, high)
    figures = {d.name: d.quantity for d in low.details}
    for name in ("cpu_blocks",):
        if name in logged:
            assert figures[name] == logged[name]
    if "block_size" in logged:
        assert figures["kv_block_size"] == logged["block_size"]
    lines = "\n".join(low.log_lines)
    if "mamba_pad_pct" in logged and Decimal(logged["mamba_pad_pct"]):
        assert f"by {logged['mamba_pad_pct']}%" in lines
    if "padding_layers" in logged:
        assert f"Add {logged['padding_layers']} padding layers" in lines
        assert f"at most {logged['padding_waste_pct']}%" in lines


def assert_in_range(logged: dict[str, Any], low: Pool, high: Pool) -> None:
    if "kv_tokens" in logged:
        assert int(low.tokens) <= logged["kv_tokens"] <= int(high.tokens)
    if "kv_blocks" in logged:
        assert low.blocks is not None
        assert high.blocks is not None
        assert int(low.blocks) <= logged["kv_blocks"] <= int(high.blocks)
    if "concurrency" in logged:
        below, above = rounded(logged["concurrency"])
        assert float(low.concurrency) <= float(above)
        assert float(below) <= float(high.concurrency)


def sglang_entries() -> list[Any]:
    skip_fp4 = pytest.mark.skip(
        "fp4 with two pools is not supported: 0.5.23 counts whole bytes for elements that it "
        "stores in half a byte"
    )
    return [
        pytest.param(e, id=e["id"], marks=[skip_fp4] if e["flags"].get("kv-dtype") == "fp4" else [])
        for e in LOGS
        if e["engine"] == "sglang" and e["verdict"] == "match"
    ]


@pytest.mark.parametrize("entry", sglang_entries())
def test_sglang_layout_matches_the_log(entry: dict[str, Any]) -> None:
    """The log has no memory: with the least memory that holds the logged tokens, or slots, all
    sizes are as printed.
    """
    logged, flags = entry["logged"], entry["flags"]
    cache_layout, context = layout_of(entry)
    names = {"mamba-slots": "state_slots", "layers": "swa_tokens"}
    figure = next(
        (names[flag] for flag in names if flag in flags and flags[flag] != "full"), "kv_tokens"
    )
    printed = flags.get("mamba-slots") or logged["kv_tokens"]

    def logged_figure(memory: int) -> int:
        pool = cache_layout.pool(memory, context)
        details = {d.name: d.quantity for d in pool.details} | {"kv_tokens": pool.tokens}
        return int(float(details[figure]))

    high = 1
    while logged_figure(high) < printed:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if logged_figure(middle) < printed else (low, middle)
    assert logged_figure(high) == printed
    pool_label = {"sliding": "SWA KV", "full": "Full KV"}.get(flags.get("layers", ""), "KV")
    lines = cache_layout.pool(high, context).log_lines
    starts = f"{pool_label} Cache is allocated" if "k_gib" in logged else "Mamba Cache is allocated"
    line = next(line for line in lines if line.startswith(starts))
    labels = {
        "k_gib": "K size|KV size",
        "v_gib": "V size",
        "ssm_gib": "ssm_state size",
        "conv_gib": "conv_state size",
    }
    for key, label in labels.items():
        if key in logged:
            assert re.findall(rf"(?:{label}): ([\d.]+) ?GB", line) == [logged[key]]


def llamacpp_entries() -> list[Any]:
    return [
        pytest.param(e, id=e["id"])
        for e in LOGS
        if e["engine"] == "llamacpp" and e["verdict"] == "match"
    ]


@each("entry", llamacpp_entries())
def test_llamacpp_layout_matches_the_log(entry: dict[str, Any]) -> None:
    """The buffer is as large as printed, to the hundredth of a MiB. n_ctx is that of all slots
    together.
    """
    cache_layout, n_ctx = layout_of(entry)
    slots = {**entry.get("assumed", {}), **entry["flags"]}.get("sequences", 1)
    sizes, buffer = {}, "global"
    for line in cache_layout.pool(0, n_ctx // slots).log_lines:
        if "creating" in line:
            buffer = "swa" if "    SWA" in line else "indexer" if "indexer" in line else "global"
        elif size := re.search(r"size += *([\d.]+) MiB", line):
            sizes["recurrent" if "recurrent" in line else buffer] = size[1]
    assert sizes[entry["what"]] == entry["logged"]["buffer_mib"]


def test_every_matching_entry_is_tested() -> None:
    tested = {p.id for p in (*vllm_entries(), *sglang_entries(), *llamacpp_entries())}
    assert len(sglang_entries()) == 15
    assert len(llamacpp_entries()) == 44
    assert {e["id"] for e in LOGS if e["verdict"] == "match"} == tested
