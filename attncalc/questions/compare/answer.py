"""Variants of one model's attention, or several models side by side: `compare("llama2-70b",
context="4K,32K")`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...attention import Variant
from ...config import ModelLike
from ...errors import AttncalcError, clash
from ...model import ModelSpec, plural
from ...options import as_text
from ...ranges import parse_counts
from ...show.report import Report
from ...units import count, long_option
from ..arguments import takes
from ..inputs import DEFAULT_CONTEXT, read_model, read_workload
from ..options import OtherSizeOptions
from ..results import ResultRows, model_subject
from .options import ComparedModelOptions, CompareOptions
from .report import compare_models, compare_variants

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _OtherModelOptions(ComparedModelOptions, OtherSizeOptions, total=False):
    """The options of the model with other sizes."""


# The most contexts of one comparison.
MAX_CONTEXTS = 100


class Comparison(ResultRows):
    """Figures of variants or models, as `attncalc compare` prints them; `to_dict()` has those of
    the first model.

    Iterating yields `rows`.
    """

    def __init__(self, models: Sequence[ModelSpec], options: Mapping[str, Any]) -> None:
        self.knowing(
            ", ".join(map(model_subject, models)), partial(comparison_report, models, options)
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Comparison):
            return self.rows == other.rows
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._subject)

    def _answer(self) -> str:
        return plural(len(self.rows), "row")


@takes(CompareOptions)
def compare(
    *models: ModelLike | Sequence[ModelLike], **options: Unpack[CompareOptions]
) -> Comparison:
    """Return one model's attention as MHA, every GQA and MQA, or several models side by side.

    >>> compare("llama2-70b", attention="mla:512", context=4096)
    Comparison(llama2-70b: 8 rows)

    Args:
        models: One model or several, each as in `load`; or one list of them.
        options: The options of `attncalc compare`.

    Raises AttncalcError if a model or an option is not valid.
    """
    if not models:
        raise AttncalcError(
            "a model is required", "name one, or several to compare with each other"
        )
    several: list[Any] = []
    for each in models:
        several += each if isinstance(each, list | tuple) else [each]
    comparison = Comparison(read_models(several, options), options)
    len(comparison)  # raises the errors now instead of when it is shown
    return comparison


def models_and_kinds(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the models, and the kinds of attention that are named behind one: 'compare llama2-70b
    gqa mla:512'.

    'a,b' names two. Raises AttncalcError if there is no model.
    """
    models = []
    kinds = []
    for word in words:
        if os.path.exists(word):
            models.append(word)
            continue
        for name in word.split(","):
            if Variant.is_named(name) and not os.path.exists(name):
                kinds.append(name)
            else:
                models.append(name)
    if not models:
        raise AttncalcError(
            "a model is required",
            f"name one before the kinds: 'attncalc compare llama2-70b {' '.join(kinds)}'",
        )
    return models, kinds


def read_models(models: Sequence[ModelLike], options: Mapping[str, Any]) -> list[ModelSpec]:
    """Return one device's share of every model; of one with other sizes, as released and with
    these.

    Raises AttncalcError as `read_model` does, and if several models would have other sizes.
    """
    specs = [read_model(model, options, ComparedModelOptions) for model in models]
    sizes = [
        long_option(name)
        for name in OtherSizeOptions.__annotations__
        if options.get(name) is not None
    ]
    if sizes and options.get("attention"):
        raise clash("--attention", sizes[0])
    if sizes and len(models) > 1:
        raise AttncalcError(
            f"{sizes[0]} takes one model, not {count(len(models))}",
            f"name one model, or leave {sizes[0]} out",
        )
    if sizes:
        changed = read_model(models[0], options, _OtherModelOptions)
        name = changed.title.rpartition(" with ")[2]  # '--kv-heads 2'
        specs.append(dataclasses.replace(changed, name=name))
    return specs


def _kinds(attention: Any) -> list[str]:
    """Return the kinds of attention of --attention: 'gqa:2,mla:512' or a list of them."""
    if isinstance(attention, list | tuple):
        return [as_text(kind) for kind in attention if kind]
    return [kind for kind in as_text(attention).split(",") if kind]


def comparison_report(specs: Sequence[ModelSpec], options: Mapping[str, Any]) -> Report:
    """Return the report of a comparison; `options` are those of CompareOptions.

    Without a context, several models are compared at the longest that all support. An option about
    the source is for the models with an encoder.

    Raises AttncalcError if an option is not valid.
    """
    context = options.get("context")
    contexts = []
    if context is not None:
        contexts = parse_counts(as_text(context), "--context", limit=MAX_CONTEXTS)
    shortest = None
    if not contexts and len(specs) > 1:
        shortest = min(spec.max_context or DEFAULT_CONTEXT for spec in specs)
        contexts = [shortest]
    options = {**options, "context": contexts[0] if contexts else None}
    of_decoder = {**options, "source_context": None}
    workloads = [read_workload(spec, options if spec.encoder else of_decoder) for spec in specs]
    if len(specs) == 1:
        same_params = bool(options.get("same_params"))
        further = _kinds(options.get("attention") or ())
        return compare_variants(specs[0], workloads[0], further, contexts, same_params=same_params)
    for name in ("attention", "same_params"):
        if options.get(name):
            option = long_option(name)
            raise AttncalcError(
                f"{option} takes one model, not {count(len(specs))}",
                f"name one model, or leave {option} out",
            )
    report = compare_models(specs, workloads, contexts)
    if shortest is None:
        return report
    note = f"Context {count(shortest)}: the longest that all these models support; -c sets another."
    return report._replace(notes=(note, *report.notes))
