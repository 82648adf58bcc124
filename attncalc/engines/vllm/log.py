"""A start-up log of vLLM: what the engine was told, and what it said of its cache.

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
_SIZE = r"(\d{1,9}(?:\.\d{1,9})?) ?GiB"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ENGINE = re.compile(r"Initializing an? (?:(?P<engine>V[01]) )?LLM engine \(v(?P<version>\d+(?:\.\d+)*)")
_BANNER = re.compile(r"(?:vLLM API server )?\bversion v?(\d+(?:\.\d+)+)")
_MODEL = re.compile(r"\bmodel='([^']+)'|'model(?:_tag)?': '([^']+)'")
_DRAFTER = re.compile(r"(?:SpeculativeConfig\(method=|'method': )'(\w+)'")
_NO_PREFIXES = re.compile(r"without support for prefix caching: disabling")
_RANKS = re.compile(r"\bworld_size=(\d+) rank=\d+")
_BEGINS = re.compile(r"non-default args:|vLLM API server version|Initializing an? (?:V[01] )?LLM engine")
_SIZED = re.compile(r"KV cache size: \d|# \w+ blocks: \d|KV cache is needed")
_WORTH = re.compile(
    r"engine|version|args|KV|kv_|max_|model|parallel|block|padding|prefix|dtype|world_size|GiB|Available memory"
    r"|Maximum concurrency"
)
"""Every line that a pattern below matches contains one of these; all other lines of a long log are skipped."""
_LOGGED = {
    "available": re.compile(
        rf"Available KV cache memory: {_SIZE}|memory reserved for KV Cache is {_SIZE}|kv_cache_size={_SIZE}"
        rf"|larger than the available KV cache memory \({_SIZE}\)"
    ),
    "kv_tokens": re.compile(rf"KV cache size: {_NUMBER} tokens"),
    "concurrency": re.compile(rf"Maximum concurrency for {_NUMBER} tokens per request: (\d{{1,12}}(?:\.\d{{1,9}})?)x"),
    "cpu_blocks": re.compile(r"# \w+ blocks: (\d+), # CPU blocks: (\d+)"),
    "kv_blocks": re.compile(r"after num_gpu_blocks is: (\d+)"),
    "kv_bytes_per_sequence": re.compile(rf"{_SIZE} KV cache is needed"),
    # exact bytes: as told, or as vllm-ascend prints them
    "kv_memory": re.compile(r"kv_cache_memory_bytes'?[=:] ?(\d+)|Available memory: (\d+), total memory"),
    "max_context": re.compile(rf"estimated maximum model length is {_NUMBER}"),
    "kv_block_size": re.compile(rf"Setting attention block size to {_NUMBER} tokens"),
}


def _setting(*names: str) -> re.Pattern[str]:
    """A setting in the line of the engine's config (name=value) or of arguments ('name': value)."""
    return re.compile(rf"(?<!\w)'?(?:{'|'.join(names)})'?[=:] ?'?(?:torch\.)?(?!None|auto)([\w.]*\w)")


_TOLD = {
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
"""What this package calls a setting, and how vLLM's log says it."""


class Printed(NamedTuple):
    """A figure as the log has it: its text, whose last digit says how it was rounded, and its line."""

    text: str
    line: str


class Log(NamedTuple):
    """What a log says. told: settings by this package's names, as text; model: as the engine was given it.

    available: GiB for the cache, one for each rank that printed it. logged: the engine's figures by name.
    starts: how many times the engine started in it; all else is of the last.
    """

    version: str | None
    model: str | None
    told: dict[str, str]
    available: tuple[Printed, ...]
    logged: dict[str, Printed]
    starts: int = 1


def read_log(text: str, name: str) -> Log:
    """What the log `text` says; name: the file's, for the error. AttncalcError: it is no start-up log of vLLM."""
    lines, starts = _last_start([" ".join(line.split()) for line in _COLOUR.sub("", text).splitlines()])
    version, model, told = _told(lines)
    available: list[Printed] = []
    logged: dict[str, Printed] = {}
    for line in lines:
        for what, pattern in _LOGGED.items():
            found = pattern.search(line)
            if not found:
                continue
            values = [value.replace(",", "").replace("_", "") for value in found.groups() if value]
            said = found.group()
            if what == "available":
                available.append(Printed(values[0], said))
            elif what == "concurrency":
                told["context"] = values[0]
                _keep(logged, what, Printed(values[1], said))
            elif what == "cpu_blocks":
                version = "v0"
                logged["kv_blocks"], logged["cpu_blocks"] = Printed(values[0], said), Printed(values[1], said)
            else:
                _keep(logged, what, Printed(values[0], said))
    if not logged.keys() & {"kv_tokens", "kv_blocks", "concurrency", "kv_bytes_per_sequence"}:
        raise AttncalcError(
            f"{truncate(name)}: no start-up log of vLLM: no line says how large its cache is",
            "it would have one such as 'GPU KV cache size: 78,384 tokens' or '# GPU blocks: 507'",
        )
    return Log(version, model, told, tuple(available), logged, starts)


def _last_start(lines: list[str]) -> tuple[list[str], int]:
    """The lines of the engine's last start that said how large its cache is; how many starts did."""
    starts: list[list[str]] = [[]]
    sized = False
    for line in filter(_WORTH.search, lines):
        if sized and _BEGINS.search(line):
            starts.append([])
            sized = False
        starts[-1].append(line)
        sized = sized or _SIZED.search(line) is not None
    whole = [start for start in starts if any(map(_SIZED.search, start))]
    return (whole[-1], len(whole)) if whole else (starts[-1], 1)


def _keep(logged: dict[str, Printed], name: str, said: Printed) -> None:
    """Of several ranks' figures the least, which is the one that all have."""
    if name not in logged or float(said.text) < float(logged[name].text):
        logged[name] = said


def _told(lines: list[str]) -> tuple[str | None, str | None, dict[str, str]]:
    """The version, the model and the settings, from the lines that name them."""
    version = None
    told: dict[str, str] = {}
    for line in lines:
        if engine := _ENGINE.search(line):
            version = "v0" if engine.group("engine") == "V0" else engine.group("version")
        for name, pattern in _TOLD.items():
            if found := pattern.search(line):
                told.setdefault(name, next(filter(None, found.groups())))  # a drafter's come second
        if _NO_PREFIXES.search(line):
            told["prefix_caching"] = "False"
    if told.get("kv_dtype") == "fp8_ds_mla":  # what fp8 is for a model with an indexer
        told["kv_dtype"] = "fp8"
    text = "\n".join(lines)
    if drafter := _DRAFTER.search(text):
        told["speculative_layers"] = "1" if drafter.group(1).endswith(("mtp", "eagle", "eagle3")) else "0"
    if (ranks := _RANKS.search(text)) and not told.keys() & {"tp", "pp"}:
        told["tp"] = ranks.group(1)
    served, model = _BANNER.search(text), _MODEL.search(text)
    return version or (served and served.group(1)), model and (model.group(1) or model.group(2)), told
