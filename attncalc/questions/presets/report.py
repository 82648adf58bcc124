"""The reports of `attncalc presets`: the built-in models, and the supported model_types of a
config.json.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence

from ...attention import Attention
from ...attention.recurrent import NoAttention, Recurrent
from ...cost.cache import kv_cache
from ...cost.params import params
from ...model import ModelSpec, plural
from ...quantity import quantity
from ...records import NamedTuple
from ...search import grouped
from ...show.answer_rows import AnswerColumn, Layer, answer_table, text_column
from ...show.figures import PARAMS_TOTAL, PER_TOKEN, FigureRow, FigureRows, Given
from ...show.layers import attention_source
from ...show.lists import WIDTH
from ...show.report import LABEL, Column, Report, Table, rows_of
from ...units import BYTES, NO_UNIT, PARAMS, TOKENS, count, truncate
from ...workload import Workload

_NAMES_TIP = "'attncalc presets qwen' shows figures, and further models"
_FIGURES_TIP = "'attncalc presets show NAME' prints one"
# Names of a family that has no row of its own, at most.
_SMALL_FAMILY = 12
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
    layers = tuple(map(_layer, listed))
    if names_only:
        table = _names_table(listed, one_per_line)
    else:
        table = _figures_table([preset.model for preset in listed], layers)
    return Report(
        "presets",
        (_heading(len(listed), words, names_only),),
        {},
        {},
        FIGURES.filled(presets=quantity(len(listed))),
        layers,
        (table,),
        () if names_only else (_KV_NOTE,),
        rows=rows_of(
            layers, "name", "title", "family", "n_layers", "d_model", "vocab_size", "dtype"
        ),
    )


def _layer(preset: Listed) -> Layer:
    model = preset.model
    facts = {**model.facts(), "family": preset.family, "repositories": list(preset.repositories)}
    # what a token takes while no window is full
    cache = kv_cache(model, Workload.decode(1, 1, source=1 if model.encoder else None))
    figures = OF_PRESETS.filled(
        "",
        model.name,
        params_total=params(model).total,
        kv_cache_per_token_max=Given(
            cache.per_token_without_windows, source=attention_source(model)
        ),
        max_context=quantity(model.max_context) if model.max_context else None,
    )
    return facts, figures


def _heading(number: int, words: Sequence[str], names_only: bool) -> str:
    """Return how many presets there are, of what, and how to see more."""
    if names_only:
        return f"{plural(number, 'built-in model')}  {_NAMES_TIP}"
    if not words:
        return f"{plural(number, 'built-in model')}  {_FIGURES_TIP}"
    wanted = " and ".join(repr(truncate(word)) for word in words)
    return f"{plural(number, 'built-in model')} with {wanted}  {_FIGURES_TIP}"


def _names_table(listed: Sequence[Listed], one_per_line: bool) -> Table:
    """Return one row per family with its names, where small families share the last row; or one per
    name, for grep.
    """
    families = grouped((preset.family, preset.model.name) for preset in listed)
    rows = []
    rest: list[str] = []
    for names in families.values():
        if one_per_line:
            rows += names
        elif len(names) > _SMALL_FAMILY:
            rows.append(" ".join(names))
        else:
            rest += names
    if rest:
        rows.append(" ".join(rest))
    return Table((LABEL,), tuple((row,) for row in rows))


def attention_words(model: ModelSpec) -> set[str]:
    """Return what a model's attention is found by: {'mla'}, or {'gdn', 'gqa', 'linear', 'hybrid',
    'moe'}.
    """
    kinds = _attentions(model)
    recurrent = [isinstance(kind, Recurrent) for kind in kinds]
    words = [_attention(model), *(kind.headline.split(",")[0] for kind in kinds)]
    if any(recurrent):
        words.append("linear recurrent")
    if any(recurrent) and not all(recurrent):
        words.append("hybrid")
    if any(group.mlp and group.mlp.n_experts for group in model.main.layers):
        words.append("moe")
    return set(re.findall(r"[\w]+", " ".join(words).lower().replace("mamba-2", "mamba2")))


def _figures_table(models: Sequence[ModelSpec], layers: Sequence[Layer]) -> Table:
    """Return one row per preset."""
    rows = rows_of(layers)
    for row, model in zip(rows, models, strict=True):
        row["attention"] = _attention(model)
    columns = (
        text_column("name", "name"),
        text_column("attention", "attention", drop=1),
        AnswerColumn("max_context", "context"),
        AnswerColumn("params_total", "parameters", unit=PARAMS),
        AnswerColumn("kv_cache_per_token_max", "KV per\ntoken", unit=BYTES),
    )
    return answer_table(rows, columns)


def families_report(
    supported: Sequence[str], unsupported: Mapping[str, str], version: str
) -> Report:
    """Return the supported model_types of a config.json, and {model_type: reason} of the
    unsupported ones.

    `version` is that of transformers.
    """
    ordered = sorted(supported)
    room = WIDTH - 4 - max(map(len, (*unsupported, "not supported")))
    reasons = []
    for name, reason in sorted(unsupported.items()):
        first, *others = textwrap.wrap(reason, room)
        reasons += [(name, first), *(("", line) for line in others)]
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
            Table((Column("not supported", "left"), Column("reason", "left")), tuple(reasons)),
        ),
        extra={"read": ordered, "refused": dict(sorted(unsupported.items()))},
    )


def _attentions(model: ModelSpec) -> list[Attention]:
    """Return the kind of each group of layers that has one."""
    kinds = [group.attention for group in model.main.layers]
    return [kind for kind in kinds if not isinstance(kind, NoAttention)]


def _attention(model: ModelSpec) -> str:
    """Return the kinds and spans of a model's attention: 'GQA', 'GQA, window 1,024 + full',
    'MQA/CSA/HCA, 3 spans'.
    """
    attentions = _attentions(model)
    kinds = dict.fromkeys(attention.label for attention in attentions)
    spans = dict.fromkeys(attention.span.label for attention in attentions)
    if list(spans) == ["full"]:
        return "/".join(kinds)
    # compressed attention has a window and pools per kind
    if len(spans) <= 2 and len(kinds) == 1:
        return f"{'/'.join(kinds)}, {' + '.join(spans)}"
    return f"{'/'.join(kinds)}, {len(spans)} spans"
