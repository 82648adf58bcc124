"""Reads a start-up log of llama.cpp, or of a program that contains it: its arguments, and the
buffers that it allocated or could not allocate.

llamacpp.txt has the lines, by the names that are looked up here: `_LINES["failed"]`.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..engines.base import CacheLayout
from ..engines.llamacpp.layout import LlamaCppLayout
from ..engines.llamacpp.options import LlamacppArgs
from ..ggml import FILE_TYPES
from ..records import NamedTuple
from ..units import GIB, dtype, is_dtype
from . import startup_log as logs
from .advice import advised, has_rows
from .endings import unfinished
from .lines import either, lines_of
from .startup_log import MIB, Advice, LogChecks, LogMemory, LogRefusal, Printed, Program, StartupLog

# A GGUF file may have its output matrix quantized, which the estimate has in 16 bits: 7,670 MiB of
# Qwen3-8B in Q8_0 instead of 8,220.
WEIGHTS_TOLERANCE = (12, 2)
PREEMPTED = "preempted"
# What follows an allocation whose failure llama.cpp accepts.
_RETRY = "retrying without pipeline parallelism"
_FLASH = {
    "1": "on",
    "enabled": "on",
    "on": "on",
    "0": "off",
    "disabled": "off",
    "off": "off",
    "auto": "auto",
}
# Types that stand for a mix without a rule, such as 'IQ3_S mix', from the narrowest on.
_SIMPLE_TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": MIB, "GiB": GIB}
# Tokens that layers with a window keep in Ollama's own engine, by the architecture: all others keep
# those of the window only (NewSWAMemCache).
_KEPT_BY_OLLAMA = {"gptoss": 4096, "gemma4": 4096}
# Tokens of a context that is not worth halving.
_SHORT_CONTEXT = 4096
# Characters before and after the line of a failure that may say what was allocated.
_BEFORE_A_FAILURE = 200
_AFTER_A_FAILURE = 2000


# llama.cpp's options as they are typed in `ollama run`, or in the server's environment
# (docs/faq.md, modelfile.md).
_OLLAMA = Program(
    "Ollama",
    "Ollama calls --context num_ctx, --n-gpu-layers num_gpu, --batch OLLAMA_NUM_PARALLEL, and "
    "--kv-dtype OLLAMA_KV_CACHE_TYPE.",
    ("--n-cpu-moe", "-ub"),
    {
        "-c": "/set parameter num_ctx",
        "-ngl": "/set parameter num_gpu",
        "-fa on -ctk q8_0 -ctv q8_0": "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0",
        "-fa on -ub 256": "OLLAMA_FLASH_ATTENTION=1",
        "-np 1": "OLLAMA_NUM_PARALLEL=1",
    },
)
# The same in its settings of a model, or of its program lms (lmstudio.ai/docs/cli/load).
_LM_STUDIO = Program(
    "LM Studio",
    "LM Studio has --context as Context Length and --n-gpu-layers as GPU Offload; 'lms load "
    "--estimate-only' prints its own estimate.",
    ("-ub",),
    {
        "-c": "lms load --context-length",
        "-ngl N": "lms load --gpu 0.5",
        "-fa on -ctk q8_0 -ctv q8_0": "Flash Attention, K and V Cache Quantization Type Q8_0",
        "-fa on -ub 256": "Flash Attention, Evaluation Batch Size 256",
        "-np 1": "lms load --parallel 1",
    },
)
# Its options, of which -fitt leaves so many MiB free (tools/llama-bench).
_BENCH = Program(
    "llama-bench",
    "llama-bench has the context of each test: -p, -n and -d together.",
    ("--context",),
    {
        "-fit on": "-fitt 1024",
        "-fit on --fit-target 4096": "-fitt 4096",
        "--n-cpu-moe": "-ncmoe",
        "-c": "-d 0 -p",
        "-fa on": "-fa 1",
    },
)
_PROGRAMS = {each.title: each for each in (_LM_STUDIO, _OLLAMA, _BENCH)}
# The figures of caches, by the kind of layers that llama.cpp prints before their size.
_SIZE_OF_KIND = {
    "SWA": "swa_kv_size",
    "indexer": "indexer_kv_size",
    "DSV4 CSA compressed": "csa_kv_size",
    "DSV4 HCA compressed": "hca_kv_size",
    "DSV4 lightning-indexer": "indexer_kv_size",
}

_TABLE = lines_of("llamacpp")
_LINES = _TABLE["lines"]
SIGNS = _LINES["sign"]
_OUTCOME = either(_LINES["size"], _LINES["failed"])


class _Parts(NamedTuple):
    """A log in its parts: the lines of a drafter come after those of the model."""

    of_model: str
    of_drafter: str  # '' without a drafter
    drafter: re.Match[str] | None  # the line between them; None without a drafter


class _Failure(NamedTuple):
    """The line of an allocation that failed, and what is printed near it."""

    line: re.Match[str]
    after: str  # the line and what follows it
    around: str  # the same with what comes before it


class _Sizes(NamedTuple):
    """The sizes in the message of an allocation that failed."""

    tried: Printed | None  # what was wanted; None if the log does not have it
    free: Printed | None  # what was free; None if the log does not have it


def read_log(lines: Sequence[str], stated: LogRefusal | None = None) -> StartupLog | None:
    """Return the contents of the log; None if it has neither the size of a cache nor a message why
    there is none.

    Args:
        lines: The lines of the log.
        stated: A message that states its cause itself, if the log has one (`messages.py`).
    """
    whole, starts = logs.last_start(_without_trials(list(lines)), _LINES["start"], _OUTCOME)
    parts = _parts(whole)
    text = parts.of_model
    logged = figures_of(whole)
    has_sizes = bool(logged.keys() - {"n_ctx"})
    refusal = stated or _refusal(whole, logged)
    if refusal is None and not has_sizes:
        refusal = unfinished(lines, _LINES["load"]) or _projected(text)
    if refusal is None and not has_sizes:
        return None
    settings = _settings(text, has_cache=any(name.endswith("kv_size") for name in logged))
    settings |= _drafter_settings(parts.drafter)
    within = _program(text)
    if within is _BENCH:
        settings = {"context": _bench_context(text), **settings, "batch": "1"}
    if stated:
        within = _PROGRAMS.get(stated.program, within)
        refusal = stated._replace(advice=_typed_in(within, stated.advice))
    path = logs.first(_LINES["file"], text)
    free = _free_memory(text)
    listed = int(logs.first(_LINES["devices"], text) or 0)
    of_file = logs.read_settings(_TABLE["hyperparameters"], text)
    return StartupLog(
        engine="llamacpp",
        version=_version(text),
        model=logs.first(_LINES["name"], text) or path or logs.first(_LINES["repository"], text),
        path=path,
        settings=settings,
        flags=logs.read_flags({"kv_unified": _LINES["unified"]}, text),
        logged=logged,
        budget=_budget(parts, free),
        refusal=refusal,
        gpu=_gpu(text),
        devices=max(listed, len(free), len(_buffers("model", text))),
        starts=starts,
        architecture=logs.first(_LINES["architecture"], text),
        hyperparameters={name: int(value) for name, value in of_file.items()},
        within=within,
    )


def _parts(text: str) -> _Parts:
    drafter = _LINES["draft"].search(text)
    if drafter is None:
        return _Parts(text, "", None)
    return _Parts(text[: drafter.start()], text[drafter.end() :], drafter)


def _drafter_settings(drafter: re.Match[str] | None) -> dict[str, str]:
    """Return the settings of a drafter: layers of the model, or a file of its own."""
    if drafter and drafter["predicts"]:
        return {"speculative_layers": "1"}
    if drafter and drafter["file"]:
        return {"speculative_model": drafter["file"]}
    return {}


def _program(text: str) -> Program | None:
    """Return the program that contains llama.cpp, by its own lines; None without any."""
    for title, sign in _TABLE["programs"].items():
        if sign.search(text):
            return _PROGRAMS.get(title)
    return None


def _bench_context(text: str) -> str:
    """Return the context of a test of llama-bench: the tokens of its prompt, of its answer, and of
    what is before them.
    """
    defaults = (512, 128, 0)
    context = 0
    for option, default in zip(_TABLE["bench_options"].values(), defaults, strict=True):
        context += int(logs.first(option, text) or default)
    return str(context)


def _gpu(text: str) -> str | None:
    """Return the name of the GPU that a log lists; None if it lists GPUs of different names."""
    matches = [*_LINES["device"].finditer(text)]
    # of the first kind of line: another may write a name differently
    first = [match for match in matches if match.lastindex == matches[0].lastindex]
    names = {match[match.lastindex or 0] for match in first}
    if len(names) == 1:
        return names.pop()
    return None


def _budget(parts: _Parts, free: dict[str, Printed]) -> dict[str, Printed]:
    """Return the largest buffers of a GPU, that of the host, and the least that was free on a
    GPU.
    """
    text = parts.of_model
    of_host = logs.printed(_LINES["host_compute_buffer"], text, MIB)
    of_cpu = logs.printed(_LINES["cpu_compute_buffer"], text, MIB)
    found = {
        "model_buffer": _ollama_size("ollama_weights", text, on_host=False)
        or _most(_buffers("model", text)),
        "compute_buffer": _most(_buffers("compute", text)),
        "draft_compute_buffer": _most(_buffers("compute", parts.of_drafter)),
        "host_compute_buffer": of_host[-1] if of_host else None,
        "cpu_compute_buffer": of_cpu[-1] if of_cpu else None,
        "free_memory": logs.least(free.values()),
    }
    return {name: figure for name, figure in found.items() if figure}


def _most(buffers: dict[str, Printed]) -> Printed | None:
    """Return the largest of the buffers; None without any."""
    return max(buffers.values(), key=lambda figure: figure.number, default=None)


def _free_memory(text: str) -> dict[str, Printed]:
    """Return what is free on each device, or on all of them, by name; {} if the log does not have
    it.

    Every pass prints it, and the draft model when the model has its memory already: the first line
    counts.
    """
    free: dict[str, Printed] = {}
    for match in _LINES["free"].finditer(text):
        device, amount = filter(None, match.groups())
        unit = GIB if "available=" in match[0] else MIB
        free.setdefault(device, Printed(amount, match[0], unit))
    projected = _LINES["projected"].search(text)
    if projected and not free:
        return {"": Printed(projected[2], projected[0], MIB)}
    return free


def _without_trials(lines: list[str]) -> list[str]:
    """Return the lines without the sizes of the fitting pass, which come before those of the load.

    The pass tries contexts and numbers of layers without loading tensors: each attempt prints "0.00
    MiB" as the size of the weights, and sizes of a context that is not the final one. The load
    begins with its first line after those of the last attempt.
    """
    last = max((i for i, line in enumerate(lines) if _LINES["trial"].search(line)), default=-1)
    has_context = False
    for i, line in enumerate(lines[last + 1 :], start=last + 1):
        if last >= 0 and has_context and _LINES["load"].search(line):
            before = [line for line in lines[:i] if not _LINES["of_a_load"].search(line)]
            return before + lines[i:]
        has_context = has_context or "_context: " in line or "_kv_cache: " in line
    return lines


def figures_of(text: str) -> dict[str, Printed]:
    """Return the sizes of the caches in those lines: llama.cpp's own, or the ones that attncalc
    predicts.
    """
    parts = _parts(text)
    if parts.drafter:
        drafted = figures_of(parts.of_drafter)
        of_model = figures_of(parts.of_model)
        if "kv_size" in drafted:
            of_model["draft_kv_size"] = drafted["kv_size"]
        return of_model
    figures = _sizes_of_caches(text)
    if "kv_size" not in figures and "creating" not in text:
        figures |= _of_devices(text)  # without the line of all devices
    size = _ollama_size("ollama_cache", text)
    if size and not figures:
        figures["all_kv_size"] = size
    n_ctx = _LINES["n_ctx"].search(text)
    if n_ctx:
        figures["n_ctx"] = Printed(n_ctx[1], n_ctx[0])
    return figures


def _sizes_of_caches(text: str) -> dict[str, Printed]:
    """Return the sizes in the lines of all devices.

    A kind of layers, such as 'SWA', is printed before the size of its cache. A size without one is
    that of the only cache, or of the layers with full attention.
    """
    figures: dict[str, Printed] = {}
    name = "kv_size"
    for match in _LINES["cache"].finditer(text):
        if match["kind"]:
            name = _SIZE_OF_KIND.get(match["kind"], "kv_size")
        elif match["compressor"]:
            figures.setdefault(
                f"{match['compressor']}_state_size", Printed(match["ring"], match[0], MIB)
            )
        elif match["recurrent"]:
            figures.setdefault("recurrent_size", Printed(match["states"], match[0], MIB))
        elif float(match["size"]):  # 0 in the fitting pass
            figures.setdefault(name, Printed(match["size"], match[0], MIB))
            name = "kv_size"
    return figures


def _of_devices(text: str) -> dict[str, Printed]:
    """Return the sum of the caches on all devices; {} without such lines."""
    on_devices = {match[0]: match for match in _LINES["device_cache"].finditer(text)}
    if not on_devices:
        return {}
    total = sum(Fraction(match[1]) for match in on_devices.values())
    return {"kv_size": Printed(f"{float(total):.2f}", next(iter(on_devices)), MIB)}


def _ollama_size(name: str, text: str, *, on_host: bool = True) -> Printed | None:
    """Return the sum of a size over the devices in the log of Ollama's engine; None without such
    lines.
    """
    # the last of each device
    sizes = {match[1]: match for match in _LINES[name].finditer(text)}
    if not on_host:
        sizes.pop("CPU", None)
    found = [*sizes.values()]
    if not found:
        return None
    total = sum(int(Fraction(match[2]) * _UNITS[match[3]]) for match in found)
    return Printed(str(total), found[0][0], 1, sum(_UNITS[match[3]] // 20 + 1 for match in found))


def _settings(text: str, *, has_cache: bool) -> dict[str, str]:
    """Return the settings by the names of attncalc's options: those that llama.cpp prints, and of
    the others those of a pasted command.

    Args:
        text: The lines of the model.
        has_cache: Whether the log has the size of a cache. Without it, a dtype of the cache is not
            that of this start.
    """
    settings = logs.read_settings(_TABLE["settings"], text)
    if not has_cache:
        settings = {
            name: value for name, value in settings.items() if not name.startswith("kv_dtype")
        }
    typed = logs.read_settings(_TABLE["options"], text)
    if "context" in settings:
        typed.pop("n_ctx", None)
    settings = typed | settings
    if not settings.keys() & {"context", "n_ctx"}:
        for name, value in _settings_of_cells(text).items():
            settings.setdefault(name, value)
    flash = _FLASH.get(settings.pop("flash_attn", ""))
    if flash:
        settings["flash_attn"] = flash
    settings |= _ollama_settings(text)
    # n_ctx is the context of all slots together
    slots = int(settings.get("sequences", "1")) or 1
    n_ctx = int(settings.pop("n_ctx", "0"))
    if n_ctx:
        settings["context"] = str(max(1, n_ctx // slots))
        settings["batch"] = str(slots)
    for offloaded in _LINES["offloaded"].finditer(text):  # the last attempt counts
        settings["n_gpu_layers"] = offloaded[offloaded.lastindex or 1]
    return settings | _weights_dtype(text)


def _settings_of_cells(text: str) -> dict[str, str]:
    """Return the settings that the line of the cache shows, for a log without its beginning."""
    cells = _LINES["cells"].search(text)
    if cells is None:
        return {}
    streams = cells[3] or "1"
    return {"sequences": cells[2], "n_ctx": str(int(cells[1]) * int(streams))}


def _ollama_settings(text: str) -> dict[str, str]:
    """Return the settings with which Ollama's own engine loads a model; {} without that line."""
    request = _LINES["ollama_request"].search(text)
    if request is None:
        return {}
    settings = {
        "n_ctx": request["n_ctx"],
        "sequences": request["batch"],
        "ubatch": request["ubatch"],
        "flash_attn": "off",
    }
    if request["flash_attn"].lower() in ("true", "enabled"):
        settings["flash_attn"] = "on"
    if request["kv_dtype"]:
        settings["kv_dtype_k"] = request["kv_dtype"]
        settings["kv_dtype_v"] = request["kv_dtype"]
    return settings


def _weights_dtype(text: str) -> dict[str, str]:
    """Return the setting that the file's type decides; {} without one, or for a model that is so as
    released.
    """
    file_type = logs.first(_LINES["weight_type"], text) or ""
    bits = float(logs.first(_LINES["bits_per_weight"], text) or 0)
    name = _name_of_type(file_type)
    # 'F16' with experts in MXFP4, as gpt-oss is released
    if is_dtype(name) and 0 < bits < 0.8 * dtype(name).bits:
        return {}
    if name in FILE_TYPES or is_dtype(name):
        return {"weights_dtype": name}
    if file_type and bits:
        return {"weights_dtype": _simple_type(bits)}
    in_name = (logs.first(_LINES["type_in_name"], text) or "").lower()
    if not file_type and in_name in FILE_TYPES:
        return {"weights_dtype": in_name}
    return {}


def _name_of_type(file_type: str) -> str:
    """Return the type as files are named: q4_k_m for 'Q4_K - Medium', and q2_k for 'Q2_K -
    Medium'.
    """
    name = re.sub(r" - (\w)\w*", r"_\1", file_type).lower()
    if name in FILE_TYPES or is_dtype(name):
        return name
    return name.removesuffix("_m")


def _simple_type(bits: float) -> str:
    """Return the widest simple type of at most so many bits per weight; the narrowest if all have
    more.
    """
    not_wider = [name for name in _SIMPLE_TYPES if dtype(name).bits <= bits]
    if not_wider:
        return not_wider[-1]
    return _SIMPLE_TYPES[0]


def _version(text: str) -> str | None:
    """Return the build, such as 'b6500'; None if the log does not have it."""
    build = logs.first(_LINES["version"], text) or logs.first(_LINES["build_name"], text)
    if build and int(build):
        return f"b{int(build)}"
    return None


def _buffers(kind: str, text: str) -> dict[str, Printed]:
    """Return the first buffer on each GPU: a model's come before its drafter's."""
    buffers: dict[str, Printed] = {}
    for match in _LINES[f"{kind}_buffer"].finditer(text):
        buffers.setdefault(match[1], Printed(match[2], match[0], MIB))
    return buffers


def _refusal(text: str, logged: dict[str, Printed]) -> LogRefusal | None:
    """Return why the engine did not start, or why a request failed; None if it started, and if the
    log does not say it.

    Args:
        text: All lines of the start.
        logged: The sizes of the caches that it printed.
    """
    text = text.rpartition(_RETRY)[2]
    # Ollama tries fewer layers until an allocation succeeds
    ready = logs.READY.search(text)
    line = _LINES["failed"].search(text, ready.end() if ready else 0)
    if line is None and not (logged or ready):
        return _not_fitted(text)
    if line is None:
        return None
    after = text[line.start() : line.start() + _AFTER_A_FAILURE]
    before = text[max(0, line.start() - _BEFORE_A_FAILURE) : line.start()]
    failure = _Failure(line, after, before + after)
    where = _failed_stage(text, failure, has_cache=bool(logged), is_ready=bool(ready))
    kind = "out_of_memory"
    # CUDA has no memory for its own context
    if "backend_cuda_device_get_memory" in failure.around:
        kind = "occupied"
    sizes = _sizes_of_failure(text, line)
    refusal = LogRefusal(kind, line[0], sizes.tried, sizes.free, where)
    if _LINES["one_buffer"].search(failure.around):
        return refusal._replace(one_buffer=True)
    return _with_limit_of_metal(refusal, text, line)


def _failed_stage(text: str, failure: _Failure, *, has_cache: bool, is_ready: bool) -> str:
    """Return what was allocated (`LogRefusal.where`), by the lines near a failure.

    Args:
        text: All lines of the start.
        failure: The line of the failure, and what is near it.
        has_cache: Whether the cache has its size already.
        is_ready: Whether the server runs already.
    """
    line = failure.line
    of_cache = _LINES["of_cache"].search(failure.after)
    stage = logs.stage_of(failure.around, _TABLE["stages"]).removesuffix("_of_metal")
    # Vulkan's line alone, and that of CUDA's pool, do not say what it was for
    is_open = line[0].startswith(("Device memory", "CUDA error", "ROCm error"))
    where = stage or "buffer"
    if line["layout"]:
        where = "fit"
    elif line["guardrail"]:
        where = "guardrail"
    elif _LINES["host_buffer"].search(failure.around):
        where = "host_cache" if of_cache else "host"
    elif is_ready:
        where = "serving"
    elif of_cache:
        where = "cache"
    elif not stage and has_cache:
        where = "compute"
    elif not stage and "load_tensors" in text and not is_open:
        where = "weights"
    return where


def _sizes_of_failure(text: str, line: re.Match[str]) -> _Sizes:
    """Return what was wanted and what was free: by the line of the failure, or by the one that
    has the size of the allocation.
    """
    if line["needed"]:
        needed = Printed(line["needed"], line[0], GIB)
        return _Sizes(needed, Printed(line["available"], line[0], GIB))
    if line["estimate"]:
        return _Sizes(Printed(line["estimate"], line[0], 10**9), None)
    tried = _LINES["tried"].search(text)
    if tried is None:
        return _Sizes(None, None)
    if tried["mib"]:
        return _Sizes(Printed(tried["mib"], tried[0], MIB), None)
    return _Sizes(Printed(tried["bytes"], tried[0]), None)


def _with_limit_of_metal(refusal: LogRefusal, text: str, line: re.Match[str]) -> LogRefusal:
    """Return the refusal with what was allocated on a Mac's GPU, and the most that Metal
    recommends, if the log has them.
    """
    allocated = [*_LINES["metal"].finditer(text[: line.end()])]
    if allocated:
        last = allocated[-1]
        return refusal._replace(
            needed=Printed(last[1], last[0], MIB), limit=Printed(last[2], last[0], MIB)
        )
    recommended = _LINES["recommended"].search(text)
    if recommended:
        unit = MIB if recommended[2] == "MiB" else 10**6
        return refusal._replace(limit=Printed(recommended[1], recommended[0], unit))
    return refusal


def _projected(text: str) -> LogRefusal | None:
    """Return that the log ends within the fitting pass, which has to change something; None if it
    does not.
    """
    match = _LINES["projected"].search(text)
    if match is None:
        return None
    needed = Printed(match[1], match[0], MIB)
    free = Printed(match[2], match[0], MIB)
    if needed.number <= free.number:
        return None
    return LogRefusal("unfinished", match[0], where="fitting", needed=needed, limit=free)


def _not_fitted(text: str) -> LogRefusal | None:
    """Return that the fitting pass found nothing that fits; None if it did not say so."""
    match = _LINES["not_fitted"].search(text)
    if match is None:
        return None
    needed = Printed(match["needed"], match[0], MIB)
    free = Printed(match["free"], match[0], MIB)
    return LogRefusal("out_of_memory", match["message"], needed, free, "fit")


# The figures beside the predicted ones


def log_checks(log: StartupLog, layout: CacheLayout, args: LlamacppArgs, context: int) -> LogChecks:
    """Return the sizes of the caches: they follow from the context and the slots, not from the
    memory.
    """
    predicted = figures_of(" ".join(layout.pool(0, context).log_lines))
    of_ollama = log.logged.get("all_kv_size")
    if of_ollama:
        size = _size_in_ollama(log, layout, context)
        if size is not None:
            predicted["all_kv_size"] = Printed(str(size), of_ollama.line)
        memory = LogMemory(of_ollama.bytes, "the printed size")
        return memory, logs.size_checks(log, predicted)
    sizes = {name: figure for name, figure in log.logged.items() if name.endswith("_size")}
    if "draft_kv_size" not in predicted:  # of a drafter that is not known
        sizes.pop("draft_kv_size", None)
    total = sum(figure.bytes for figure in sizes.values())
    if not total:
        total = sum(figure.bytes for name, figure in predicted.items() if name.endswith("_size"))
        return LogMemory(total, "the cache as computed"), ()
    return LogMemory(total, "the printed sizes"), logs.size_checks(log, predicted)


def _size_in_ollama(log: StartupLog, layout: CacheLayout, context: int) -> int | None:
    """Return the bytes of the cache in Ollama's own engine; None for a layout that it does not
    have.
    """
    if not isinstance(layout, LlamaCppLayout):
        return None
    kept = None
    if log.architecture:
        kept = _KEPT_BY_OLLAMA.get(log.architecture, 0)
    return layout.in_ollama(context, kept)


# What a log alone suggests


def log_advice(log: StartupLog) -> tuple[Advice, ...]:
    """Return what to change after a failed start, the least costly first."""
    refusal = log.refusal
    if refusal is None or refusal.kind == "occupied":
        return ()
    name = "unknown"
    if refusal.where and has_rows("llamacpp", refusal.where):
        name = refusal.where
    figures = _figures_of_context(log, refusal) | _figures_of_layers(log, refusal)
    figures |= {
        "several_slots": log.settings.get("batch") != "1",
        "has_estimate": refusal.tried is not None,
        "no_estimate": refusal.tried is None,
        "has_projector": "--mmproj" in log.typed,
    }
    return _typed_in(log.within, advised("llamacpp", name, figures))


def _figures_of_context(log: StartupLog, refusal: LogRefusal) -> dict[str, Any]:
    """Return the figures of the advice for a smaller cache."""
    trained = log.hyperparameters.get("n_ctx_train", 0)
    context = int(log.settings.get("context", "0"))
    is_beyond = 0 < trained < context
    found: dict[str, Any] = {"trained": None, "half_context": None}
    if is_beyond:
        found["trained"] = trained
    elif context > _SHORT_CONTEXT:
        found["half_context"] = context // 2
    elif context == 0:
        found["half_context"] = 2 * _SHORT_CONTEXT
    tried = refusal.tried
    free = refusal.free
    is_too_large = tried is not None and free is not None and tried.bytes > 2 * free.bytes
    is_shorter_first = is_beyond or refusal.where == "host_cache" or log.within is _LM_STUDIO
    return found | {
        "narrow_helps": not is_too_large and not _is_narrow(log, refusal),
        "shorter_first": is_shorter_first,
        "narrow_first": not is_shorter_first,
    }


def _figures_of_layers(log: StartupLog, refusal: LogRefusal) -> dict[str, Any]:
    """Return the figures of the advice for fewer layers on the GPU: how many, if the log shows it;
    otherwise what llama.cpp has that counts them.
    """
    layers = log.settings.get("n_gpu_layers")
    n_layer = log.hyperparameters.get("n_layer", 0)
    free = log.budget.get("free_memory")
    tried = refusal.tried
    is_of_weights = refusal.where == "weights"
    is_one_gpu = log.devices < 2
    fitting = None
    if is_of_weights and tried and free and n_layer and is_one_gpu:
        # a tenth is left for the cache
        held = min(n_layer, int(layers or n_layer))
        fitting = 9 * free.bytes * held // (10 * tried.bytes)
    is_in_a_program = fitting is None and log.within is not None and log.within is not _BENCH
    wired_mib = None
    is_mac = refusal.limit is not None
    if is_mac and tried and is_one_gpu:  # a Mac, which lends its GPU three quarters of the memory
        wired_mib = int(1.2 * tried.bytes) // MIB
    return {
        "than": f" than {layers}" if layers else "",
        "fitting_layers": fitting,
        "in_a_program": is_in_a_program,
        "chooses": fitting is None and not is_in_a_program,
        # if layers were chosen, they were too many
        "after_weights": not is_of_weights,
        "at_weights": is_of_weights,
        "experts": not log.is_dense,
        "wired_mib": wired_mib,
        "one_gpu": is_one_gpu and wired_mib is None,
    }


def _typed_in(program: Program | None, found: tuple[Advice, ...]) -> tuple[Advice, ...]:
    """Return the advice with what is typed in the program that contains llama.cpp, if one does:
    'OLLAMA_NUM_PARALLEL=1' in Ollama instead of '-np 1'.
    """
    if program is None:
        return found
    names = program.options
    # the longest first: '-fa on -ub 256' before '-fa on'
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])")
    return tuple(
        each._replace(option=pattern.sub(lambda name: names[name[0]], each.option))
        for each in found
    )


def _is_narrow(log: StartupLog, refusal: LogRefusal) -> bool:
    """Return whether the cache has fewer than 16 bits: 1,024 elements are 1,088 bytes in q8_0, and
    2,048 in f16.
    """
    if log.settings.get("kv_dtype_k", "f16") not in ("f16", "bf16", "f32"):
        return True
    tokens = int(log.settings.get("context", "0"))
    tried = refusal.tried
    size = 0
    rest = 0
    if tried and tokens:
        size, rest = divmod(tried.bytes, tokens)
    # blocks of q8_0 have 34 bytes; in f16 the sizes of heads are multiples of 128
    return refusal.where == "cache" and not rest and size % 34 == 0 and size % 128 != 0


# The GPU's memory


def logged_gpu_memory(log: StartupLog) -> int | None:
    """Return the bytes that were free, which is what llama.cpp prints of a GPU."""
    free = log.budget.get("free_memory")
    total = logs.printed_gpu_memory(log)
    if not total and free:
        return free.bytes
    return total


def logged_room(log: StartupLog, memory: int | None, share: str | float | None) -> int | None:
    """Return None: llama.cpp prints no memory that was left for the cache."""
    return None
