"""Whether a log was written with another model than the given one, or with other settings.

Changes are not computed then: they would be for a model that did not run.
"""

from collections.abc import Iterable

from ..check import Check
from ..model import ModelSpec
from ..serving.fit import FitResult
from ..units import BYTES, count, truncate
from .cause import STAGES, Diagnosis, diagnose_alone, size
from .comparison import logged_weights
from .startup_log import LogRefusal, StartupLog

# The part of a logged figure by which the predicted one may differ: versions differ by a block or
# by padding.
TOLERANCE = 0.05
# Tokens to which builds of llama.cpp pad a context: 256, or 32 before that, or none.
_PADDING = 256
# The factor by which logged weights may differ from the estimated ones: towers and drafts may not
# be counted.
_OTHER_WEIGHTS = 1.4
NAME_THE_LOGS_MODEL = "Leave MODEL out, or give the model of the log."


def named_otherwise(model: ModelSpec, log: StartupLog, named: ModelSpec | None) -> str:
    """Return that the log names a model of other sizes, as a sentence; '' if it does not.

    Args:
        model: The given model.
        log: What the engine printed.
        named: The model that the log names; None if it is not known.
    """
    if named is None or _sizes(named) == _sizes(model):
        return ""
    return (
        f"The log is of '{truncate(log.model)}' ({_sizes(named)}), not of {model.title} "
        f"({_sizes(model)})."
    )


def _sizes(model: ModelSpec) -> str:
    """Return the sizes that tell models apart: '36 layers of width 4,096'."""
    return f"{model.main.n_layers} layers of width {count(model.main.d_model)}"


def contradicting_figure(checks: Iterable[Check], context: int) -> str:
    """Return the first figure that shows that the log is of another model; '' if none does.

    Args:
        checks: The log's figures of the cache beside the predicted ones.
        context: The tokens of the context.
    """
    for check in checks:
        contradiction = _contradiction(check, context)
        if contradiction:
            return contradiction
    return ""


def _contradiction(check: Check, context: int) -> str:
    """Return that a logged figure is further from the predicted one than rounding or padding
    explains: 'KV cache 5.00 GiB in the log, 4.00 GiB with this model'; or ''.
    """
    tolerance = max(TOLERANCE, _PADDING / context)
    if check.ok or abs(check.difference) <= tolerance * abs(check.measured):
        return ""
    shown = size if check.unit == BYTES else count
    logged = shown(int(check.measured))
    return f"{check.label} {logged} in the log, {shown(int(check.predicted))} with this model"


def contradicting_memory(
    estimate: FitResult, log: StartupLog, refusal: LogRefusal, available: int | None
) -> str:
    """Return what shows that the log is of another model or of other settings; '' if nothing does.

    These are weights of another size, a failure that this model would not have had, and memory in
    use that it does not take.

    Args:
        estimate: What fits by the sizes of the model, corrected by the log's memory.
        log: What the engine printed.
        refusal: Its message.
        available: Bytes that were left for the cache; None if the log does not have them.
    """
    loaded = logged_weights(log)
    weights = estimate.budget.weights
    if loaded and weights and not 1 / _OTHER_WEIGHTS < loaded / int(weights.total) < _OTHER_WEIGHTS:
        return (
            f"weights of {size(loaded)} in the log, of {size(int(weights.total))} with this model"
        )
    gpu = estimate.resolved.gpu
    settled = STAGES[refusal.where].after
    is_loaded = settled or refusal.kind == "too_small"
    if weights and gpu and is_loaded and int(weights.total) > gpu.memory:
        return (
            f"the weights were loaded, and this model's need {size(int(weights.total))} of "
            f"{size(gpu.memory)}"
        )
    needed = int(estimate.needed)
    room = estimate.budget.room()
    if needed > room or settled == "cache":
        return ""
    if available is not None and refusal.kind == "too_small":
        return (
            f"one batch needs {size(needed)} with this model, and {size(room)} were left for the "
            "cache"
        )
    # A message alone, without the lines of the start, may have come after those of the cache.
    is_before = (settled or refusal.where) == "weights" or (log.model and not refusal.where)
    most = _most_before_the_cache(estimate)
    if is_before and refusal.use.own > most:
        return (
            f"{size(refusal.use.own)} were in use before there was a cache, and this model takes "
            f"at most {size(most)}"
        )
    return ""


def _most_before_the_cache(estimate: FitResult) -> int:
    """Return the most bytes per GPU that weights and runtime memory take by the estimate."""
    weights = estimate.budget.weights
    reserve = estimate.budget.reserve
    if weights is None or reserve is None:
        if estimate.resolved.gpu:
            return estimate.resolved.gpu.memory
        return 0
    parts = (*reserve.runtime.parts, *reserve.runtime.outside)
    return int(weights.total) + int(weights.total) // 20 + sum(part.high for part in parts)


def other_model(
    model: ModelSpec,
    log: StartupLog,
    refusal: LogRefusal,
    contradiction: str,
    named: ModelSpec | None,
) -> Diagnosis:
    """Return the diagnosis that the log was written with another model, or with other arguments,
    and what the log alone suggests.

    Args:
        model: The given model.
        log: What the engine printed.
        refusal: Its message.
        contradiction: What shows it.
        named: The model that the log names, of the same sizes as the given one; None if it is not
            known.
    """
    options = "options that the log lacks, such as --gpu, --tp, --kv-dtype and --context"
    if named:
        note = f"Give {options}."
    elif log.model:
        note = f"The log is of '{truncate(log.model)}'. Give that model, or {options}."
    else:
        note = f"Give that model, or {options}."
    reason = f"The log and {model.title} disagree: {contradiction}."
    advice = diagnose_alone(log).advice
    notes = [note]
    if advice:
        notes.insert(0, "The changes are those that the log alone suggests: none is computed.")
    return Diagnosis(refusal.line, "other_model", reason, notes=tuple(notes), advice=advice)
