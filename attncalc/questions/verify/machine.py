"""What `verify --engine --save` writes: a GPU file with what starts took on this machine."""

from __future__ import annotations

from pathlib import Path

from ...config.gpu_file import read_machine, to_yaml, with_start
from ...config.gpus import LOCAL, gpus_of
from ...engines import find_engine
from ...errors import CannotCheckError, NotSupportedError, clash
from ...hardware import Gpu, MeasuredStart
from ...quantity import Quantity
from ...show.write import new_file
from ...units import BYTES, human, truncate
from ...verify.engines import starter
from .engine_question import EngineQuestion
from .engine_run import EngineAnswer


def check_machine(file: str, question: EngineQuestion) -> None:
    """Raise AttncalcError if a start could not be saved in that file, before it begins.

    It needs a GPU with memory of its own, and an engine that gives the cache what is left of it.
    """
    title = find_engine(question.engine).title
    if not starter(question.engine).SIZES_CACHE:
        raise NotSupportedError(
            f"--save has nothing to measure: {title} does not size its cache by the memory left",
            "leave --save out, or start vllm or sglang",
        )
    if "kv_memory" in question.options:
        raise clash(
            "--save",
            "--kv-memory",
            "leave the memory of the cache to the engine, which then measures the rest",
        )
    here = _this_gpu()
    if here.counts_host_memory:
        raise NotSupportedError(
            f"--save cannot measure {here.title}: its memory is the host's, and equal starts "
            "differ by GiB",
            "leave --save out",
        )
    read_machine(Path(file), here)


def save_start(file: str, answer: EngineAnswer) -> EngineAnswer:
    """Add the start to the file, and return the answer with a note on what was saved.

    Raises AttncalcError as `read_machine` does, and if the file cannot be written.
    """
    budget = answer.predicted.budget
    resolved = answer.predicted.resolved
    memory = answer.estimates.get("kv_memory")
    version = answer.log.version
    gpu = resolved.gpu
    if memory is None or version is None or gpu is None or budget.reserve is None:
        missing = "memory for the cache" if version else "version"
        note = f"Nothing was saved in {truncate(file)}: the log has no {missing}."
        return answer._replace(notes=(*answer.notes, note))
    if resolved.args.engine_version is None:  # the newest known one was compared
        title = resolved.engine.title
        note = (
            f"Nothing was saved in {truncate(file)}: {title} {version} is not a supported version."
        )
        return answer._replace(notes=(*answer.notes, note))
    excess = budget.room() - memory.logged
    weights = answer.estimates.get("weights")
    # those of the model, not of the machine
    if weights is not None:
        excess -= weights.logged - weights.expected
    formula = budget.reserve.total
    start = MeasuredStart(
        engine=answer.log.engine,
        engine_version=version,
        tp=resolved.args.tp,
        pp=resolved.args.pp,
        dp=resolved.data_ranks,
        model=answer.model.title,
        excess=excess,
        parts=tuple(part.name for part in budget.reserve.runtime.parts),
    )
    text = to_yaml(with_start(Path(file), gpu, start))
    with new_file(Path(file), force=True) as output:
        output.write(text)
    note = (
        f"Of the runtime memory {human(formula, BYTES)} are the model's, by formula, and "
        f"{human(Quantity(excess), BYTES)} this machine's. They are saved in {truncate(file)}: "
        f"'attncalc fit MODEL --gpu {truncate(file)} --engine {answer.log.engine}' has them."
    )
    return answer._replace(notes=(*answer.notes, note))


def _this_gpu() -> Gpu:
    """Return the kind of GPU of this machine. Raises CannotCheckError if it has none."""
    try:
        return gpus_of(LOCAL)[1]
    except CannotCheckError:
        raise CannotCheckError(
            "--save measures a GPU, and this machine has none",
            "leave --save out, or start the engine where the GPU is",
        ) from None
