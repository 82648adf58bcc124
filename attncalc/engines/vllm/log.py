"""Reads a start-up log of vLLM: the engine's settings, and the figures that it printed about its cache.

The lines are those of vllm/v1/engine/core.py ('Initializing a V1 LLM engine ... with config'),
v1/worker/gpu_worker.py ('Available KV cache memory'), v1/core/kv_cache_utils.py, and of V0's
executor/executor_base.py ('# GPU blocks') and worker/worker.py ('reserved for KV Cache').
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...errors import AttncalcError
from ...units import truncate

_NUMBER = r"(\d[\d,_]{0,29})"
_DECIMAL = r"(\d{1,12}(?:\.\d{1,9})?)"
_SIZE = r"(\d{1,9}(?:\.\d{1,9})?) ?GiB"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ENGINE = re.compile(r"Initializing an? (?:(?P<engine>V[01]) )?LLM engine \(v(?P<version>\d+(?:\.\d+)*)")
_BANNER = re.compile(r"(?:vLLM API server )?\bversion v?(\d+(?:\.\d+)+)")
_MODEL = re.compile(r"\bmodel='([^']+)'|'model(?:_tag)?': '([^']+)'")
_DRAFTER = re.compile(r"(?:SpeculativeConfig\(method=|'method': )'(\w+)'")
_NO_PREFIXES = re.compile(r"without support for prefix caching: disabling")
_RANKS = re.compile(r"\bworld_size=(\d+) rank=\d+")
_START = re.compile(r"non-default args:|vLLM API server version|Initializing an? (?:V[01] )?LLM engine")
_CACHE_SIZE = re.compile(r"KV cache size: \d|# \w+ blocks: \d|KV cache is needed")
_RELEVANT = re.compile(
    r"engine|version|args|KV|kv_|max_|model|parallel|block|padding|prefix|dtype|world_size|GiB|Available memory"
    r"|Maximum concurrency"
)
"""Words of which every line that is read contains at least one. Other lines are skipped, because logs can be long."""
_FIGURES = {
    "available": re.compile(
        rf"Available KV cache memory: {_SIZE}|memory reserved for KV Cache is {_SIZE}|kv_cache_size={_SIZE}"
        rf"|larger than the available KV cache memory \({_SIZE}\)"
    ),
    "kv_tokens": re.compile(rf"KV cache size: {_NUMBER} tokens"),
    "concurrency": re.compile(rf"Maximum concurrency for {_NUMBER} tokens per request: {_DECIMAL}x"),
    "cpu_blocks": re.compile(r"# \w+ blocks: (\d+), # CPU blocks: (\d+)"),
    "kv_blocks": re.compile(r"after num_gpu_blocks is: (\d+)"),
    "kv_bytes_per_sequence": re.compile(rf"{_SIZE} KV cache is needed"),
    # exact bytes: as an argument, or as vllm-ascend prints them
    "kv_memory": re.compile(r"kv_cache_memory_bytes'?[=:] ?(\d+)|Available memory: (\d+), total memory"),
    "max_context": re.compile(rf"estimated maximum model length is {_NUMBER}"),
    "kv_block_size": re.compile(rf"Setting attention block size to {_NUMBER} tokens"),
}
"""The figures that are read, by the names that attncalc gives them in JSON, with the lines that contain them."""
_SIZE_FIGURES = {"kv_tokens", "kv_blocks", "concurrency", "kv_bytes_per_sequence"}
"""A start-up log has at least one of these."""


def _setting(*names: str) -> re.Pattern[str]:
    """Return a pattern for a setting in the engine's config (name=value) or in its arguments ('name': value)."""
    return re.compile(rf"(?<!\w)'?(?:{'|'.join(names)})'?[=:] ?'?(?:torch\.)?(?!None|auto)([\w.]*\w)")


_SETTINGS = {
    "tp": _setting("tensor_parallel_size"),
    "pp": _setting("pipeline_parallel_size"),
    "dcp": _setting("decode_context_parallel_size"),
    "context": re.compile(r"max_(?:seq|model)_len'?[=:] ?(\d+)|Using max model len (\d+)|max seq len \((\d+)\)"),
    "kv_dtype": re.compile(r"kv_cache_dtype'?[=:] ?'?(?!auto)(\w+)|Using (fp8)\w* data type to store kv cache"),
    "dtype": _setting("dtype"),
    "prefix_caching": re.compile(r"enable_prefix_caching'?[=:] ?(True|False)"),
    "max_num_batched_tokens": _setting("max_num_batched_tokens"),
    "block_size": _setting("block_size"),
    "swap_space": _setting("swap_space"),
    "mamba_ssm_cache_dtype": _setting("mamba_ssm_cache_dtype"),
    "speculative_tokens": _setting("num_spec_tokens", "num_speculative_tokens"),
}
"""The settings that are read, by the names of `EngineArgs` and `attncalc fit`."""


class Printed(NamedTuple):
    """A figure as the log prints it.

    Attributes:
        text: its digits, whose number shows how it was rounded.
        line: the part of the line that has it.
    """

    text: str
    line: str


class Log(NamedTuple):
    """The contents of a start-up log.

    Attributes:
        version: vLLM's version, "v0" for the old engine; None if the log does not have it.
        model: the model as it was given to vLLM; None if the log does not have it.
        settings: settings as text, by the names of `EngineArgs` and `attncalc fit`.
        available: the GiB for the cache that each rank printed.
        logged: the engine's figures by name.
        starts: how often the engine started in this log; everything else is from its last start.
    """

    version: str | None
    model: str | None
    settings: dict[str, str]
    available: tuple[Printed, ...]
    logged: dict[str, Printed]
    starts: int = 1


def read_log(text: str, name: str) -> Log:
    """Return the contents of the log `text`. The error names the file, `name`.

    Raises AttncalcError if no line has the size of the cache.
    """
    lines, starts = _last_start([" ".join(line.split()) for line in _COLOUR.sub("", text).splitlines()])
    version, model, settings = _read_settings(lines)
    available: list[Printed] = []
    logged: dict[str, Printed] = {}
    for line in lines:
        for figure, pattern in _FIGURES.items():
            match = pattern.search(line)
            if not match:
                continue
            values = [value.replace(",", "").replace("_", "") for value in match.groups() if value]
            if figure == "available":
                available.append(Printed(values[0], match.group()))
            elif figure == "concurrency":
                settings["context"] = values[0]
                _store_least(logged, figure, Printed(values[1], match.group()))
            elif figure == "cpu_blocks":
                version = "v0"
                logged["kv_blocks"] = Printed(values[0], match.group())
                logged["cpu_blocks"] = Printed(values[1], match.group())
            else:
                _store_least(logged, figure, Printed(values[0], match.group()))
    if not logged.keys() & _SIZE_FIGURES:
        raise AttncalcError(
            f"{truncate(name)} is no start-up log of vLLM: no line has the size of its cache",
            "give a log with a line such as 'GPU KV cache size: 78,384 tokens' or '# GPU blocks: 507'",
        )
    return Log(version, model, settings, tuple(available), logged, starts)


def _last_start(lines: list[str]) -> tuple[list[str], int]:
    """Return the relevant lines of the last start that printed the size of its cache, and how many starts did."""
    starts: list[list[str]] = [[]]
    has_size = False
    for line in filter(_RELEVANT.search, lines):
        if has_size and _START.search(line):
            starts.append([])
            has_size = False
        starts[-1].append(line)
        has_size = has_size or _CACHE_SIZE.search(line) is not None
    complete = [start for start in starts if any(map(_CACHE_SIZE.search, start))]
    return (complete[-1], len(complete)) if complete else (starts[-1], 1)


def _store_least(logged: dict[str, Printed], name: str, printed: Printed) -> None:
    """Store the figure unless there is a smaller one: if ranks print different figures, the least applies to all."""
    if name not in logged or float(printed.text) < float(logged[name].text):
        logged[name] = printed


def _read_settings(lines: list[str]) -> tuple[str | None, str | None, dict[str, str]]:
    """Return the version, the model and the settings."""
    version = None
    settings: dict[str, str] = {}
    for line in lines:
        if engine := _ENGINE.search(line):
            version = "v0" if engine.group("engine") == "V0" else engine.group("version")
        for name, pattern in _SETTINGS.items():
            if match := pattern.search(line):
                # the first line has the model's settings, a later one may have the drafter's
                settings.setdefault(name, next(filter(None, match.groups())))
        if _NO_PREFIXES.search(line):
            settings["prefix_caching"] = "False"
    if settings.get("kv_dtype") == "fp8_ds_mla":  # what fp8 means for a model with an indexer
        settings["kv_dtype"] = "fp8"
    text = "\n".join(lines)
    if drafter := _DRAFTER.search(text):
        settings["speculative_layers"] = "1" if drafter.group(1).endswith(("mtp", "eagle", "eagle3")) else "0"
    if (ranks := _RANKS.search(text)) and not settings.keys() & {"tp", "pp"}:
        settings["tp"] = ranks.group(1)
    banner, model = _BANNER.search(text), _MODEL.search(text)
    return version or (banner and banner.group(1)), model and (model.group(1) or model.group(2)), settings
