"""The reports of `attncalc presets`: the built-in models, and the supported model_types of a
config.json.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence

from ...attention.recurrent import NoAttention, Recurrent
from ...cost.cache import kv_cache
from ...cost.params import params
from ...model import ModelSpec, plural
from ...quantity import Quantity, quantity
from ...records import NamedTuple
from ...search import grouped
from ...show.figures import PARAMS_TOTAL, PER_TOKEN, FigureRow, FigureRows, Given
from ...show.layers import attention_source
from ...show.lists import WIDTH
from ...show.report import Column, Report, Table, column_table, rows_of, unit_column
from ...units import BYTES, NO_UNIT, PARAMS, TOKENS, count, truncate
from ...workload import Workload

_NAMES_TIP = "'attncalc presets qwen' shows figures, and further models"
_FIGURES_TIP = "'attncalc presets show NAME' prints one"
_KV_NOTE = "KV per token: bytes that a token adds until a window is full."

FIGURES = FigureRows(presets=FigureRow("presets", NO_UNIT, "presets"))
OF_PRESETS = FigureRows(
    params_total=PARAMS_TOTAL,
    kv_cache_per_token_max=PER_TOKEN["kv_cache_per_token_max"]._replace(
        meaning="what a token adds to the cache until a window is full"
    ),
    max_context=FigureRow(
        "maximum context", TOKENS, "the model's own maximum context", "if it has none"
    ),
)
OF_FAMILIES = FigureRows(
    families_read=FigureRow("supported", NO_UNIT, "supported model_types"),
    families_refused=FigureRow("not supported", NO_UNIT, "model_types that are not supported"),
)


class Listed(NamedTuple):
    model: ModelSpec
    family: str  # what its name starts with: 'qwen' for 'qwen3-32b'
    # the repositories on the Hugging Face hub that it is found by
    repositories: tuple[str, ...] = ()


def presets_report(
    listed: Sequence[Listed],
    *,
    words: Sequence[str] = (),
    names_only: bool = False,
    one_per_line: bool = False,
) -> Report:
    """Return one row per preset: attention, maximum context, parameters, and cache per token.

    `words` filtered them. `names_only` shows names instead of figures, one row per family or, with
    `one_per_line`, per preset; JSON has figures in any case.
    """
    models = [preset.model for preset in listed]
    totals = [params(model).total for model in models]
    # what a token takes while no window is full
    workloads = [Workload.decode(1, 1, source=1 if model.encoder else None) for model in models]
    tokens = [
        kv_cache(*pair).per_token_without_windows for pair in zip(models, workloads, strict=True)
    ]
    contexts = [quantity(model.max_context) if model.max_context else None for model in models]
    layers = tuple(
        (
            {**model.facts(), "family": family, "repositories": list(repositories)},
            OF_PRESETS.filled(
                "",
                model.name,
                params_total=total,
                kv_cache_per_token_max=Given(token, source=attention_source(model)),
                max_context=context,
            ),
        )
        for (model, family, repositories), total, token, context in zip(
            listed, totals, tokens, contexts, strict=True
        )
    )
    if names_only:
        table = _names_table(listed, one_per_line)
    else:
        table = _figures_table(models, totals, tokens)
    return Report(
        "presets",
        (_heading(len(listed), words, names_only),),
        {},
        {},
        FIGURES.filled(presets=quantity(len(models))),
        layers,
        (table,),
        () if names_only else (_KV_NOTE,),
        rows=rows_of(
            layers, "name", "title", "family", "n_layers", "d_model", "vocab_size", "dtype"
        ),
    )


def _heading(number: int, words: Sequence[str], names_only: bool) -> str:
    """Return how many presets there are, of what, and how to see more."""
    if names_only:
        return f"{plural(number, 'built-in model')}  {_NAMES_TIP}"
    if words:
        found = f" with {' and '.join(repr(truncate(word)) for word in words)}"
    else:
        found = ""
    return f"{plural(number, 'built-in model')}{found}  {_FIGURES_TIP}"


def _names_table(listed: Sequence[Listed], one_per_line: bool) -> Table:
    """Return one row per family with its names, where small families share the last row; or one per
    name, for grep.
    """
    families = grouped((preset.family, preset.model.name) for preset in listed)
    rows = [names for names in families.values() if len(names) > 12]
    rows.append([name for names in families.values() if len(names) <= 12 for name in names])
    if one_per_line:
        rows = [[name] for names in families.values() for name in names]
    return Table((Column(align="left"),), tuple((" ".join(names),) for names in rows if names))


def attention_words(model: ModelSpec) -> set[str]:
    """Return what a model's attention is found by: {'mla'}, or {'gdn', 'gqa', 'linear', 'hybrid',
    'moe'}.
    """
    kinds = [
        group.attention
        for group in model.main.layers
        if not isinstance(group.attention, NoAttention)
    ]
    recurrent = [isinstance(kind, Recurrent) for kind in kinds]
    words = [_attention(model), *(kind.headline.split(",")[0] for kind in kinds)]
    if any(recurrent):
        words.append("linear recurrent")
    if any(recurrent) and not all(recurrent):
        words.append("hybrid")
    if any(group.mlp and group.mlp.n_experts for group in model.main.layers):
        words.append("moe")
    return set(re.findall(r"[\w]+", " ".join(words).lower().replace("mamba-2", "mamba2")))


def _figures_table(
    models: Sequence[ModelSpec], totals: Sequence[Quantity], tokens: Sequence[Quantity]
) -> Table:
    """Return one row per preset."""
    columns = (
        (Column("name", "left"), [model.name for model in models]),
        (Column("attention", "left"), [_attention(model) for model in models]),
        (
            Column("context"),
            [count(model.max_context) if model.max_context else "-" for model in models],
        ),
        unit_column("parameters", totals, PARAMS),
        unit_column("KV per\ntoken", tokens, BYTES),
    )
    return column_table(columns)


def families_report(
    supported: Sequence[str], unsupported: Mapping[str, str], version: str
) -> Report:
    """Return the supported model_types of a config.json, and {model_type: reason} of the
    unsupported ones.

    `version` is that of transformers.
    """
    ordered = sorted(supported)
    room = WIDTH - 4 - max(map(len, (*unsupported, "not supported")))
    reasons = tuple(
        (name if i == 0 else "", line)
        for name, reason in sorted(unsupported.items())
        for i, line in enumerate(textwrap.wrap(reason, room))
    )
    return Report(
        "families",
        (
            f"model_types of transformers {version} and of vendors: {count(len(supported))} "
            f"supported, {count(len(unsupported))} not",
        ),
        {},
        {},
        OF_FAMILIES.filled(
            families_read=quantity(len(supported)), families_refused=quantity(len(unsupported))
        ),
        tables=(
            Table((Column("supported", "left"),), ((" ".join(ordered),),)),
            Table((Column("not supported", "left"), Column("reason", "left")), reasons),
        ),
        extra={"read": ordered, "refused": dict(sorted(unsupported.items()))},
    )


def _attention(model: ModelSpec) -> str:
    """Return the kinds and spans of a model's attention: 'GQA', 'GQA, window 1,024 + full',
    'MQA/CSA/HCA, 3 spans'.
    """
    attentions = [
        group.attention
        for group in model.main.layers
        if not isinstance(group.attention, NoAttention)
    ]
    kinds = dict.fromkeys(attention.label for attention in attentions)
    spans = dict.fromkeys(attention.span.label for attention in attentions)
    if list(spans) == ["full"]:
        return "/".join(kinds)
    # compressed attention has a window and pools per kind
    is_short = len(spans) <= 2 and len(kinds) == 1
    return "/".join(kinds) + (f", {' + '.join(spans)}" if is_short else f", {len(spans)} spans")
