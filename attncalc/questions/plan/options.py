"""The options of `attncalc plan`: the users, the GPUs to choose from, and what they cost.

Those that `fit` has too keep its names. Here they take lists: every value is tried.
"""

import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, TypedDict

from ...engines import ENGINES
from ...engines.options import VersionOptions
from ...errors import BadValueError
from ...options import COUNT, SHARE, TEXT, Count, Option, Parser, With, choice, options_of
from ...quantity import Ratio, ratio
from ...units import parse_decimal, parse_per, truncate
from ..fit.options import (
    DEFAULT_OF_ENGINE,
    PRICE,
    USERS,
    DeploymentOptions,
    EngineOptions,
    TrafficOptions,
)
from ..fit.options import GROUPS as FIT_GROUPS
from ..options import CacheDtypeOptions, DtypeOptions, ModelOptions, SizeOptions
from .measured import read_measured
from .rows import SORT_KEYS


def _time(text: str, name: str) -> float:
    """Return seconds from '2s' or '50ms', and of '20/s' those of one. Raises AttncalcError for
    another text.

    A number alone is an error: other tools mean milliseconds by it, as aiconfigurator does.
    """
    value = text.strip().lower()
    unit, factor = next(
        ((unit, f) for unit, f in (("ms", 1e-3), ("s", 1.0)) if value.endswith(unit)), ("", 0.0)
    )
    try:
        if value.endswith("/s"):
            numerator, denominator = parse_decimal(value.removesuffix("/s"), name)
            return denominator / numerator
        numerator, denominator = parse_decimal(value.removesuffix(unit), name)
    except BadValueError:
        raise BadValueError(
            f"{name}: '{truncate(text)}' is not a time above 0", "write 20/s, 50ms or 2s"
        ) from None
    if not unit:
        raise BadValueError(
            f"{name}: '{truncate(text)}' has no unit",
            f"write {truncate(value)}ms or {truncate(value)}s",
        )
    return numerator / denominator * factor


def _budget(text: str, name: str) -> Ratio:
    """Return money per hour from '10000/month' or '20/h'. Raises AttncalcError for another text."""
    if "/" not in text and " per " not in text:
        raise BadValueError(
            f"{name}: '{truncate(text)}' has no period",
            f"write {truncate(text)}/month, or per hour: 20/h",
        )
    return ratio(*parse_per(text, name, each="hour", example="10000/month or 20/h"))


def _api_price(text: str, name: str) -> tuple[Ratio, Ratio]:
    """Return the prices of a million tokens of input and of output, of '0.60' or '0.50,1.50'."""
    parts = [part.strip().lstrip("$€£") for part in text.split(",", 2)]
    if len(parts) > 2:
        raise BadValueError(
            f"{name}: '{truncate(text)}' has more than two prices",
            "write 0.60, or input,output: 0.5,1.5",
        )
    prices = [ratio(*parse_decimal(part, name)) for part in parts]
    return prices[0], prices[-1]


def _network(text: str, name: str) -> int:
    """Return bytes/s from '400Gb', '400 Gb/s' or '50GB'. Raises AttncalcError for another text."""
    found = re.fullmatch(r"([\d.]+) ?([gG])(b|B|bit|bits|ps|bps)(?:/s)?", text.strip())
    tip = "write 400Gb, or 50GB"
    if found is None:
        raise BadValueError(f"{name}: '{truncate(text)}' is not a rate", tip)
    try:
        numerator, denominator = parse_decimal(found[1], name, upper=10**6)
    except BadValueError as error:
        raise BadValueError(error.message, tip) from None
    per_second = numerator * 10**9 // denominator
    if found[3] != "B":
        per_second //= 8
    if per_second < 1:
        raise BadValueError(f"{name}: '{truncate(text)}' is less than a byte per second", tip)
    return per_second


TIME = Parser(_time, "TIME")
BUDGET = Parser(_budget, "MONEY/TIME")
RATE = Parser(
    lambda text, name: ratio(
        *parse_per(text, name, each="second", example="20/s, 1200/min, 50000/h or 1M/day")
    ),
    "N/s",
)


def _list_of(kind: Any, field: str, text: str) -> Option:
    """Return an option of `fit` that takes a list here."""
    option = options_of(kind)[field]
    return option.but(metavar=f"{option.metavar},...", parse=None, help=text)


class LoadOptions(TypedDict, total=False):
    """The users and their requests."""

    users: Annotated[Count | None, USERS]
    rate: Annotated[
        str | float | None,
        RATE,
        "Requests per second instead of --users, as 20/s, 1200/min, 1M/day or 10k*20/day: 10k "
        "users with 20 each.",
        With(also="--rps --qps --request-rate", metavar="N/s", common=True),
    ]
    load_factor: Annotated[
        str | float | None,
        SHARE,
        "Average load / peak load, as 0.3 or 1/3. --rate is the average, and the GPUs serve the "
        "peak: --rate / 0.3.",
        With(common=True),
    ]
    prompt: Annotated[
        Count | None,
        options_of(TrafficOptions)["prompt"].but(
            parse=TEXT,
            help="Tokens of a prompt, or 1K:8K for any number between. Default: 4K; with "
            "--context, its rest.",
        ),
    ]
    output: Annotated[
        Count | None,
        options_of(TrafficOptions)["output"].but(
            parse=TEXT, help="Tokens of an output, or 100:2K for any number between. Default: 1K."
        ),
    ]
    lengths: Annotated[
        str | os.PathLike[str] | None,
        TEXT,
        "A CSV with the tokens of each request instead, in columns prompt and output.",
        With(metavar="FILE"),
    ]
    length_columns: Annotated[
        str | None, TEXT, "The names of these columns.", With(metavar="PROMPT,OUTPUT")
    ]
    percentile: Annotated[
        str | float | None,
        Parser(
            lambda text, name: float(
                Fraction(*parse_decimal(text.removeprefix("p"), name, upper=100))
            ),
            "P",
        ),
        "'worst' is this percentile of the requests' lengths, as 99. Default: the longest.",
    ]
    shared_prefix: Annotated[Count | None, options_of(TrafficOptions)["shared_prefix"]]
    prefix_hit_rate: Annotated[
        str | float | None,
        SHARE,
        "Share of the prompts' tokens that are cached: stored once and not prefilled.",
    ]
    ttft: Annotated[
        str | float | None,
        TIME,
        "Time to the first token, at most, as 2s.",
        With(metavar="TIME", common=True),
    ]
    tpot: Annotated[
        str | float | None,
        TIME,
        "Time per output token, at most, as 50ms or 20/s: fewer users per replica, or none. "
        "Default: 10/s.",
        With(also="--itl", metavar="TIME", common=True),
    ]
    efficiency: Annotated[
        str | float | None,
        SHARE,
        "Share of the best case that is reached, as 0.5. Default: that of published runs.",
    ]
    measured: Annotated[
        str | os.PathLike[str] | None,
        Parser(read_measured, "BENCHMARK"),
        "A benchmark that calibrates the estimates, as 'users=64 prompt=2K output=512 "
        "tokens/s=1850 tp=2', or a JSON of vllm bench serve.",
        With(common=True),
    ]
    network: Annotated[
        str | None,
        Parser(_network, "RATE"),
        "What a GPU sends to other nodes, as 400Gb or 50GB per second. Default: 400Gb.",
    ]
    growth: Annotated[
        str | Sequence[float] | None,
        TEXT,
        "More users, as 1.5,2,3 or 20%/month: a line for each size.",
        With(metavar="X,..."),
    ]


class ChoiceOptions(TypedDict, total=False):
    """The GPUs to choose from, and how the model may be split over them."""

    gpu: Annotated[
        str | Sequence[Any] | None,
        options_of(DeploymentOptions)["gpu"].but(
            metavar="GPU,...",
            help="GPUs or instances to choose from, as h100,p5.48xlarge or .yaml files; or all.",
        ),
    ]
    max_gpus: Annotated[
        Count | None,
        COUNT,
        "The most GPUs.",
        With(
            names="--max-gpus --gpus",
            also=" ".join(options_of(DeploymentOptions)["gpus"].also),
            common=True,
        ),
    ]
    disaggregate: Annotated[bool, "Also give pools of GPUs that only prefill or only decode."]
    spread: Annotated[bool, "The rest serves all users if one node fails."]
    tp: Annotated[
        Count | Sequence[Count] | None,
        _list_of(
            DeploymentOptions,
            "tp",
            "Tensor-parallel sizes. Default: all that divide the model and a node.",
        ),
    ]
    pp: Annotated[
        Count | Sequence[Count] | None,
        _list_of(
            DeploymentOptions,
            "pp",
            "Pipeline stages. Default: within a node, and over nodes if need be.",
        ),
    ]
    dp: Annotated[
        Count | Sequence[Count] | None,
        _list_of(
            DeploymentOptions,
            "dp",
            "Data-parallel ranks that divide the experts. Default: those of a mixture.",
        ),
    ]
    attn_dp: Annotated[
        Count | Sequence[Count] | None,
        _list_of(
            DeploymentOptions,
            "attn_dp",
            "Data-parallel ranks of attention (SGLang). Default: 1 and --tp.",
        ),
    ]
    enable_expert_parallel: Annotated[bool, options_of(DeploymentOptions)["enable_expert_parallel"]]
    kv_dtype: Annotated[
        str | Sequence[str] | None,
        _list_of(
            CacheDtypeOptions,
            "kv_dtype",
            "Dtypes of the cache, as auto,fp8. Default: auto, the engine's.",
        ),
    ]
    weights_dtype: Annotated[
        str | Sequence[str] | None,
        _list_of(
            DeploymentOptions,
            "weights_dtype",
            "Dtypes of the weights, as auto,fp8; all are known checkpoints'. Default: auto, as "
            "in fit.",
        ),
    ]


class CostOptions(TypedDict, total=False):
    """What GPUs cost, and in which order the answers are."""

    price: Annotated[str | float | Mapping[str, float] | None, PRICE]
    budget: Annotated[
        str | None,
        BUDGET,
        "The most that GPUs may cost, as 10000/month or 20/h; with --price.",
        With(metavar="MONEY/TIME"),
    ]
    api_price: Annotated[
        str | float | None,
        Parser(_api_price, "PRICE,..."),
        "An API's price of a million tokens, as 0.60, or of input,output: the rate from which "
        "GPUs are cheaper.",
    ]
    watts: Annotated[bool, "Show the power of the GPUs, and kWh per million tokens."]
    sort: Annotated[
        str | None,
        choice(*SORT_KEYS, metavar="KEY"),
        f"{', '.join(SORT_KEYS)}. Default: price with --price, else gpus; without --users, "
        "tokens-per-second.",
        With(common=True),
    ]
    all: Annotated[bool, "List every split, and rows with many times the GPUs."]


class PlanEngineOptions(EngineOptions, total=False):
    """The engine and its arguments, which hold for all rows."""

    engine: Annotated[
        str | None,
        options_of(DeploymentOptions)["engine"].but(
            help=f"{', '.join(ENGINES)}. {DEFAULT_OF_ENGINE}"
        ),
    ]
    dcp: Annotated[Count | None, options_of(DeploymentOptions)["dcp"]]
    gpu_memory_utilization: Annotated[
        float | str | None, options_of(DeploymentOptions)["gpu_memory_utilization"]
    ]
    reserve: Annotated[int | str | None, options_of(DeploymentOptions)["reserve"]]


class PlanSizeOptions(DtypeOptions, total=False):
    """The longest request, and the dtype of weights and activations."""

    context: Annotated[
        Count | None,
        options_of(SizeOptions)["context"].but(
            help="Tokens of the longest request that each replica must take. Default: --prompt "
            "and --output-len."
        ),
    ]
    source_context: Annotated[Count | None, options_of(SizeOptions)["source_context"]]


class PlanOptions(
    ModelOptions,
    LoadOptions,
    ChoiceOptions,
    CostOptions,
    PlanSizeOptions,
    PlanEngineOptions,
    total=False,
):
    """All options of `attncalc plan` but those of its screen."""


# The options of which each has one value, and which `fit` reads.
FIT_OPTIONS = (ModelOptions, PlanSizeOptions, PlanEngineOptions)
# The headings of `attncalc plan --help all`, with the options below each.
GROUPS: dict[str, tuple[Any, ...]] = {
    "Model": (ModelOptions,),
    "Users": (LoadOptions,),
    "GPUs": (ChoiceOptions,),
    "Costs": (CostOptions,),
    **{
        name: kinds
        for name, kinds in FIT_GROUPS.items()
        if name not in ("Model", "Workload", "Users")
    },
    "GPUs and engine": (PlanSizeOptions, VersionOptions, PlanEngineOptions),
}
