"""A benchmark of one's own, as --measured describes it, and the factor of the estimates."""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import AttncalcError, BadValueError, did_you_mean
from ...records import NamedTuple
from ...serving.fit import fit
from ...serving.load_bounds import Load, bounds_of_load
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.step_times import served_load
from ...serving.traffic import Traffic
from ...show.report import number
from ...units import parse_count, parse_decimal, truncate
from .candidates import replica
from .space import Space, Split, splits

# Bytes of a benchmark's JSON.
_LONGEST = 1 << 24
_EXAMPLE = "write 'users=64 prompt=2K output=512 tokens/s=1850', or a JSON of 'vllm bench serve'"
_EXAMPLE_OF_FILE = "write 'bench.json gpu=h100 tp=2'"
_SPLIT = ("tp", "pp", "dp")
_LOAD = ("users", "prompt", "output", "tokens/s")
_KEYS = (*_LOAD, *_SPLIT, "gpu")
# Seconds of a millisecond, in which vLLM's benchmark writes times.
_MS = 1e-3


class Measured(NamedTuple):
    """A benchmark: how many output tokens per second a replica had with how many requests."""

    users: int  # concurrent requests
    prompt: int  # tokens of a prompt
    output: int  # tokens of an output
    tokens_per_second: float  # output tokens/s of all
    gpu: str = ""  # the kind of GPU; '' for the only one
    tp: int = 0  # the split; 0 for the one with the fewest GPUs that fits
    pp: int = 1
    dp: int = 1


class Calibration(NamedTuple):
    """What a benchmark says of the estimates on a kind of GPU."""

    gpu: str  # the kind of GPU
    split: Split  # the split that was measured
    scale: float  # measured / estimated tokens/s
    measured: Measured

    @property
    def sentence(self) -> str:
        one = self.measured
        return (
            f"Calibrated on {self.gpu} ({self.split.words}): {number(one.tokens_per_second)} "
            f"tokens/s with {one.users:,} users of {one.prompt:,} + {one.output:,} tokens were "
            f"measured, {number(self.scale)} of the estimate."
        )


def read_measured(text: str, name: str) -> Measured:
    """Return the benchmark of 'users=64 prompt=2K output=512 tokens/s=1850', or of a JSON file,
    which may have its GPU and split: 'bench.json gpu=h100 tp=2'.

    Raises AttncalcError if it lacks something, or the file is no such JSON.
    """
    path, given = _words(text, name)
    split = {key: parse_count(given[key], name) for key in _SPLIT if key in given}
    if path:
        for key in _LOAD:
            if key in given:
                raise BadValueError(f"{name}: the file has {key}", _EXAMPLE_OF_FILE)
        return _of_file(path, name)._replace(gpu=given.get("gpu", ""), **split)
    missing = [key for key in _LOAD if key not in given]
    if missing:
        raise BadValueError(f"{name} lacks {', '.join(missing)}", _EXAMPLE)
    counts = {key: parse_count(given[key], name) for key in _LOAD[:3]}
    numerator, denominator = parse_decimal(given["tokens/s"].replace(",", ""), name)
    speed = numerator / denominator
    return Measured(tokens_per_second=speed, gpu=given.get("gpu", ""), **counts, **split)


def _words(text: str, name: str) -> tuple[str, dict[str, str]]:
    """Return the path of a file, '' without one, and {key: value} of the words after it."""
    given: dict[str, str] = {}
    # a comma may be within a number: '1,850'
    path, *words = re.split(r"[\s,]+(?=[^\s=]+=)", text.strip())
    if "=" in path:
        words.insert(0, path)
        path = ""
    for word in words:
        key, _, value = word.partition("=")
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS)
            raise BadValueError(f"{name}: '{truncate(word)}' is not known", f"{hint}{_EXAMPLE}")
        if key in given:
            raise BadValueError(f"{name}: {key} is given twice", _EXAMPLE)
        given[key] = value
    return path, given


def _of_file(text: str, name: str) -> Measured:
    """Return the benchmark of a file that `vllm bench serve --save-result` wrote."""
    path = Path(text)
    where = f"{name}: {truncate(text)}"
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "no such file").lower()
        raise AttncalcError(f"{where}: {reason}", _EXAMPLE) from None
    try:
        found = json.loads(content) if len(content) <= _LONGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise AttncalcError(f"{where}: not a JSON of 'vllm bench serve'", _EXAMPLE)
    completed = _number(found, "completed", where)
    prompt = round(_number(found, "total_input_tokens", where) / completed)
    output = round(_number(found, "total_output_tokens", where) / completed)
    users = found.get("max_concurrency")
    if isinstance(users, int) and users >= 1:
        users = min(users, int(completed))
    else:
        # Little's law: requests per second times the seconds of each
        of_outputs = (output - 1) * _number(found, "mean_tpot_ms", where) if output > 1 else 0
        seconds = _MS * (_number(found, "mean_ttft_ms", where) + of_outputs)
        users = round(_number(found, "request_throughput", where) * seconds)
    speed = _number(found, "output_throughput", where)
    return Measured(max(1, users), max(1, prompt), max(1, output), speed)


def _number(found: dict[str, Any], key: str, where: str) -> float:
    value = found.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e15:
        raise AttncalcError(f"{where}: '{key}' is not a number above 0", _EXAMPLE)
    return float(value)


def calibrate(measured: Measured, requests: Sequence[FitRequest], network: int) -> Calibration:
    """Return what the benchmark says of the estimates of the first model on its GPU.

    Raises AttncalcError if its GPU is not clear or is not asked about, its split does not start, or
    it exceeds the upper bound.
    """
    request = _request(measured, requests)
    gpu = request.gpu
    assert gpu is not None
    split = _split(measured, request)
    resolved = resolve(split.of(request))
    _check_fits(measured, resolved, split)
    load = Load(measured.users, measured.prompt, measured.output, network=network)
    bound = bounds_of_load(resolved, load).tokens_per_second
    served = served_load(resolved, load)
    if bound is None or served is None:
        raise AttncalcError(
            "--measured cannot calibrate drafted tokens", "leave --speculative-tokens out"
        )
    if measured.tokens_per_second > float(bound):
        raise AttncalcError(
            f"--measured: {number(measured.tokens_per_second)} tokens/s exceed the upper bound of "
            f"{gpu.rented} with {split.words}, {number(float(bound))}",
            "check users, prompt and output, and name the split: tp=8",
        )
    scale = measured.tokens_per_second / served.tokens_per_second
    return Calibration(gpu.rented, split, scale, measured)


def _request(measured: Measured, requests: Sequence[FitRequest]) -> FitRequest:
    """Return the request for the first model on the GPU that was measured."""
    first = [one for one in requests if one.model.name == requests[0].model.name]
    by_gpu: dict[str, FitRequest] = {}
    for one in first:
        if one.gpu:
            by_gpu.setdefault(one.gpu.rented, one)
    if measured.gpu:
        from ...config.gpus import gpus_of

        name = gpus_of(measured.gpu)[1].rented
        if name in by_gpu:
            return by_gpu[name]
        raise AttncalcError(
            f"--measured is of {name}, which is not among the GPUs", f"add it: --gpu {name}"
        )
    if len(by_gpu) > 1:
        raise AttncalcError(
            "--measured does not say on which GPU", f"add it, as gpu={next(iter(by_gpu))}"
        )
    return next(iter(by_gpu.values()))


def _split(measured: Measured, request: FitRequest) -> Split:
    """Return the split that was measured; without one that with the fewest GPUs that fits."""
    tp = measured.tp or 1
    gpus = tp * measured.pp * measured.dp
    if measured.tp or gpus > 1:
        return Split(gpus, tp, measured.pp, measured.dp, expert_parallel=measured.dp > 1)
    for group in splits(request, Space()):
        for split in sorted(group, key=lambda one: one.gpus):
            if _fits(request, split):
                return split
    raise AttncalcError("--measured: the model fits on no split", "name the split: tp=8")


def _check_fits(measured: Measured, resolved: ResolvedRequest, split: Split) -> None:
    """Raise AttncalcError if one request of the benchmark does not fit, or the engine does not
    start.
    """
    assert resolved.gpu is not None
    traffic = Traffic(measured.prompt, measured.output)
    request = dataclasses.replace(resolved.request, traffic=traffic)
    context = measured.prompt + measured.output
    answer = fit(request.with_workload(batch=1, context=context))
    if answer.fits:
        return
    reason = f"{resolved.model.title} does not fit on {resolved.gpu.rented} with {split.words}"
    if answer.refusal:
        reason = answer.refusal.reason
    raise AttncalcError(f"--measured: {reason}", "name the split that was measured: tp=8")


def _fits(request: FitRequest, split: Split) -> bool:
    try:
        return bool(replica(split.of(request), split))
    except AttncalcError:  # the engine does not start so
        return False
