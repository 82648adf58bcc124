"""A printed launch command is the question: `fit` answers it as it answered the options that
printed it.

So is a row of `plan`, and a row of a sweep is what `fit` answers.
"""

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from typer.main import get_command

from attncalc import sweep
from attncalc.cli.declared import command_of
from attncalc.config.presets import preset_names
from attncalc.engines import find_engine
from attncalc.errors import AttncalcError
from attncalc.options import options_of
from attncalc.questions import QUESTIONS
from attncalc.questions.fit.figures import answer_figures, totals
from attncalc.questions.fit.options import FitOptions
from attncalc.questions.fit.request import read_fit_request
from attncalc.questions.fit.roofline import roofline_section
from attncalc.questions.question import declared
from attncalc.serving.answer import Answer
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest, ResolvedRequest, resolve
from attncalc.serving.suggestions import Suggestion

from .command_lines import METAVARS, NAMED

Values = Mapping[str, Sequence[Any]]
SERVERS = ("h100", "h200", "a100-40gb", "l4", "t4", "mi300x", "b200", "l40s", "gb200", "mi325x")
AT_DESKS = ("rtx-4090", "rtx-3060", "rtx-5090", "m4-max-128gb", "m2-16gb", "rtx-4060-laptop")
# {engine: GPUs to draw from}.
GPUS: Values = {
    "vllm": (*SERVERS, "rtx-4090"),
    "sglang": (*SERVERS, "rtx-4090"),
    "llamacpp": (*AT_DESKS, "h100", "l4"),
    "transformers": ("h100", "rtx-4090"),
    "ideal": ("h100", "l4"),
}
_ON_SERVERS: Values = {
    "gpus": (2, 8, 16),
    "tp": (1, 2, 4, 8),
    "pp": (1, 1, 2, 3),
    "weights_dtype": ("fp8", "int4", "bf16", "fp4"),
    "kv_dtype": ("fp8", "bf16", "fp8_e5m2"),
    "dtype": ("bf16", "fp16"),
    "enable_expert_parallel": (True,),
    "allow_long_max_model_len": (True,),
    "block_size": (16, 32, 64),
    "prefix_caching": (False, True),
    "engine_version": ("0.8.5", "0.10.0", "0.15.0", "0.20.0", "0.33.0"),
}
# {engine: {an option: its values}}.
OPTIONS: Mapping[str, Values] = {
    "vllm": {
        **_ON_SERVERS,
        "dp": (1, 2, 4, 8, 16),
        "dcp": (1, 2),
        "all2all_backend": ("deepep_high_throughput", "deepep_low_latency", "pplx"),
        "data_parallel_size_local": (2, 4, 8),
        "num_redundant_experts": (16, 32),
        "enable_eplb": (True,),
        "kv_transfer_config": (
            '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}',
            '{"kv_connector": "LMCacheConnectorV1"}',
        ),
        "max_num_seqs": (16, 64, 256, 512),
        "max_num_batched_tokens": (2048, 8192, 16384),
        "gpu_memory_utilization": ("0.8", "0.9", "0.95"),
        "enforce_eager": (True,),
        "cpu_offload_gb": (4, 10),
        "kv_offloading_size": (16,),
        "language_model_only": (True,),
        "enable_lora": (True,),
        "speculative_tokens": (1, 3),
        "speculative_layers": (1,),
        "kv_memory": ("5GiB", "20GiB"),
    },
    "sglang": {
        **_ON_SERVERS,
        "engine_version": ("0.5.3", "0.5.23"),
        "kv_dtype": ("fp8", "fp4", "bf16"),
        "attn_dp": (1, 2, 4, 8),
        "moe_a2a_backend": ("none", "deepep"),
        "num_redundant_experts": (16, 32),
        "mem_fraction_static": ("0.7", "0.85"),
        "max_running_requests": (32, 256),
        "max_total_tokens": (20_000, 200_000),
        "chunked_prefill_size": (2048, 8192),
        "cuda_graph_max_bs": (16, 256),
        "swa_full_tokens_ratio": ("0.5",),
    },
    "llamacpp": {
        "gpus": (1, 2),
        "weights_dtype": ("q4_k_m", "q8_0", "q4_0", "bf16", "mxfp4"),
        "kv_dtype": ("int8", "int4", "fp16", "fp32"),
        "dtype": ("fp16", "fp32"),
        "n_gpu_layers": (0, 8, 20, 99),
        "n_cpu_moe": (4, 99),
        "sequences": (2, 4),
        "ubatch": (256, 1024),
        "flash_attn": ("on", "off"),
        "kv_unified": (True,),
        "swa_full": (True,),
        "no_kv_offload": (True,),
        "ram": ("32GiB", "128GiB"),
    },
    "transformers": {
        "tp": (1, 2),
        "kv_dtype": ("int8",),
        "cache_implementation": ("static", "dynamic"),
    },
    "ideal": {"tp": (1, 2), "kv_dtype": ("fp8",)},
}
USERS: Values = {"prompt": (500, 3000, "8K"), "output": (1, 500, "1K"), "shared_prefix": (100, 400)}
# Options that no launch command has; that of llama.cpp has the batch.
_BESIDE = (
    "ram",
    "ram_bandwidth",
    "batch",
    "prompt",
    "output",
    "shared_prefix",
    "engine_version",
    "warm_start",
)
_ENGINES = ("vllm",) * 4 + ("sglang",) * 3 + ("llamacpp",) * 3


class Question(NamedTuple):
    """A question of `fit`."""

    model: str
    options: Mapping[str, Any]  # by their names in Python

    @property
    def arguments(self) -> list[str]:
        """The command line."""
        return ["fit", self.model, *words_of(self.options)]


def words_of(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield options of `fit` as words of a command line."""
    declared = options_of(FitOptions)
    for name, value in options.items():
        on, _, off = declared[name].names[0].partition("/")
        yield (off or on) if value is False else on
        if value is not True and value is not False:
            yield str(value)


def question(random: Random, engines: Sequence[str] = _ENGINES) -> Question:
    """Return a question about one replica of a model, with few options of its engine."""
    engine = random.choice(engines)
    values, options = OPTIONS[engine], {"engine": engine, "gpu": random.choice(GPUS[engine])}
    number = min(len(values), random.choice((0, 1, 2, 2, 3)))
    options |= {name: random.choice(values[name]) for name in random.sample([*values], number)}
    if random.randrange(3) == 0:
        options |= _rare(random, engine)
    if random.randrange(3):
        options["context"] = random.choice((1000, 4096, 8192, "16K", 32768))
    elif random.randrange(3) == 0:
        options |= {
            name: random.choice(USERS[name])
            for name in random.sample([*USERS], random.choice((1, 2, 3)))
        }
    if random.randrange(4) == 0 and "sequences" not in options:
        options["batch"] = random.choice((1, 2, 8, 64))
    return Question(random.choice(models()), options)


def _rare(random: Random, engine: str) -> dict[str, Any]:
    """Return one of all options of an engine, with a usual value; {} for an engine without
    options.
    """
    known = [
        (name, each)
        for group in find_engine(engine).options
        for name, each in options_of(group).items()
    ]
    if not known:
        return {}
    name, option = random.choice(known)
    values = NAMED.get(option.name) or METAVARS.get(option.metavar) if option.metavar else (True,)
    return (
        {name: random.choice(values)} if values and option.metavar not in ("FILE", "MODEL") else {}
    )


@cache
def models() -> tuple[str, ...]:
    return tuple(preset_names())


# A printed command


class _Captured(BaseException):
    """The request that a command line is read as."""

    def __init__(self, request: FitRequest) -> None:
        self.request = request


def request_of(arguments: Sequence[str]) -> FitRequest:
    """Return the request that the command line of `fit` asks. Raises AttncalcError as it does."""

    def capture(*given: Any, **options: Any) -> FitRequest:
        raise _Captured(read_fit_request(*given, **options))

    with patch("attncalc.questions.fit.command.read_fit_request", capture):
        try:
            _command().main(list(arguments), standalone_mode=False)
        except _Captured as captured:
            return captured.request
    raise AssertionError(
        f"the command line is answered as another question: {shlex.join(arguments)}"
    )


@cache
def _command() -> Any:
    return get_command(command_of(declared("fit")))


def compared(answer: Answer) -> dict[str, Any]:
    """Return what must be the same of two answers: verdict, requests, bytes, tokens, and the
    command.
    """
    result, users = answer.result, answer.users
    return {
        "verdict": result.verdict,
        "refusal": result.refusal,
        "totals": totals(result),
        "max_context": result.max_context,
        "needed": int(result.needed),
        "kv_memory": (
            int(result.budget.kv_memory),
            result.budget.kv_memory_low,
            result.budget.kv_memory_high,
        ),
        "weights": result.budget.weights and int(result.budget.weights.total),
        "users": users and (users.average, users.worst),
        "gpus": result.resolved.gpus,
        "context": result.resolved.workload.context,
        "command": launch_command(result.resolved),
    }


def _of_one_command(request: FitRequest) -> tuple[FitRequest, ResolvedRequest]:
    """Return the request of one server: replicas of a mixture, and of DP attention, have a command
    each.
    """
    resolved = resolve(request)
    of_one = (
        resolved.gpus
        if resolved.copies == 1 or resolved.whole_layers
        else resolved.gpus // resolved.copies
    )
    has_copies = (
        resolved.args.attn_dp > 1 if resolved.engine.ranks_share_tp else request.model.has_experts
    )
    if of_one == resolved.gpus or not has_copies:
        return request, resolved
    batch = -(-request.workload.batch // resolved.copies)
    request = dataclasses.replace(request, gpus=of_one).with_workload(batch=batch)
    return request, resolve(request)


def check_command(command: str, answer: Answer, asked: Question) -> None:
    """Check that a printed command has the answer that prints it. Raises AssertionError if it does
    not.
    """
    request = answer.result.request
    beside = {name: asked.options[name] for name in ("gpu", *_BESIDE) if name in asked.options}
    if request.engine == "llamacpp":
        beside.pop("batch", None)
        if asked.options.get("kv_unified"):  # the slots share -c, and the command does not say how
            return
    request, resolved = _of_one_command(request)
    if request is not answer.result.request:
        answer = Answer.to(request)
    if resolved.replicas > 1 or "batch" in beside:
        beside["batch"] = request.workload.batch
    before = ["--gpu", str(beside.pop("gpu")), *words_of(beside)]
    if resolved.checkpoint:  # its config.json is on the hub
        before = [
            resolved.request.model.name,
            "--weights-dtype",
            str(request.weights_dtype),
            *before,
        ]
    if resolved.whole_layers:
        before += ["--gpus", str(resolved.gpus)]
    first = compared(answer)
    for of_node in command.splitlines():  # each node's command is the question
        _check_words([*before, "--", *shlex.split(of_node)], command, first, asked)


def _check_words(
    line: Sequence[str], command: str, first: Mapping[str, Any], asked: Question
) -> None:
    try:
        again = compared(Answer.to(request_of(line)))
    except AttncalcError as error:
        raise AssertionError(
            f"{shlex.join(asked.arguments)} prints {command}, an error: {error}"
        ) from None
    different = {name: (first[name], again[name]) for name in first if first[name] != again[name]}
    assert not different, f"{shlex.join(asked.arguments)}\nfit {shlex.join(line)}\n{different}"


def check_fit(asked: Question, *, with_changes: bool = True) -> bool:
    """Check the commands of an answer of `fit` and of its first changes, which take longer than the
    answer. Return whether it was answered.
    """
    changes: Sequence[Suggestion] = ()
    try:
        request = request_of(asked.arguments[1:])
        answer = Answer.to(request)
        if with_changes:
            changes = answer.changes[:2]
    except AttncalcError:
        return False
    if command := launch_command(answer.resolved):
        check_command(command, answer, asked)
    for change in changes:
        if command := launch_command(change.result.resolved):
            check_command(command, Answer(change.result), asked)
    return True


# A row of a plan, and of a sweep


COLUMNS = (
    "verdict",
    "weights",
    "kv_memory",
    "kv_memory_low",
    "kv_memory_high",
    "kv_tokens",
    "concurrency",
    "max_batch",
    "max_context",
    "kv_needed",
    "replicas",
    "concurrent_average",
    "concurrent_worst",
    "prefill_time_bound",
    "decode_time_bound",
)


def check_sweep(random: Random) -> bool:
    """Check that a row of a sweep is what `fit` answers. Return whether it was answered."""
    asked = question(random, tuple(OPTIONS))
    options = {
        name: value for name, value in asked.options.items() if options_of(FitOptions)[name].is_axis
    }
    options["context"] = options.get("context", 4096)
    for name in USERS:
        options.pop(name, None)
    return check_row(Question(asked.model, options))


def check_row(asked: Question) -> bool:
    """Check that the row of a sweep with a question's options is what `fit` answers. Return whether
    it was answered.
    """
    columns = [name for name in COLUMNS if not name.startswith("concurrent_")]
    try:
        (row,) = sweep(asked.model, columns=columns, **asked.options)
    except AttncalcError:
        return False
    line = [asked.model, *words_of(asked.options)]
    try:
        answer = Answer.to(request_of(line))
    except AttncalcError as error:
        answer, problem = None, error.message
    if answer is None:
        assert row["error"] == problem, f"{shlex.join(line)}: {row['error']!r}, {problem!r}"
        return False
    # of its report, whose heading and screen no row has
    figures = (
        *answer_figures(answer).values(),
        *roofline_section(answer, with_variants=False).figures,
    )
    found: dict[str, Any] = {figure.name: figure.value for figure in figures}
    found |= {"verdict": answer.result.verdict, "replicas": answer.resolved.replicas}
    different = {name: (row[name], found[name]) for name in columns if row[name] != found[name]}
    assert not different, f"{shlex.join(line)}\n(sweep, fit): {different}"
    return True


def check_number(seed: str, number: int) -> bool:
    """Check the question of a number: of `fit` mostly, of `plan`, or of `sweep`. Return whether it
    was answered.
    """
    random = Random(f"{seed}/{number}")
    kind = random.randrange(10)
    if kind == 0 and "plan" in QUESTIONS:
        from .printed_plans import check_plan

        return check_plan(random)
    if kind < 3:
        return check_sweep(random)
    return check_fit(question(random), with_changes=number % 4 == 0)
