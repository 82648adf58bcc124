"""The command that starts an engine with a request, to copy."""

import re
import shlex

from ..engines.launch import NEXT_NODE, LaunchFacts, NoCommandError
from ..model import ModelSpec
from .request import FitRequest, ResolvedRequest, file_type, parse_share

# The dtype of a model, and that in which an engine runs it on a GPU without bf16.
_NO_BF16 = ("bf16", "fp16")
_REPOSITORY = r"https://huggingface\.co/([\w.-]+/[\w.-]+?)(?=[/:,; ]|$)"
# Words of a repository's name that no preset's name has.
_TUNED = r"(?i)[-_](?:instruct|chat|it|hf)\b"
# Stands for the folder of weights that have no public repository: 'path/to/gpt3'.
OWN_FOLDER = "path/to/"


def launch_command(resolved: ResolvedRequest) -> str | None:
    """Return the command that starts the engine, as one line for each node; None if it has no
    server, or no such options.

    For example 'vllm serve Qwen/Qwen3-8B --max-model-len 40960 --kv-cache-dtype fp8'. Weights in
    int4 need a checkpoint in int4: if none is known there is no command for vLLM and SGLang, nor
    for a checkpoint that they do not load, or whose own context is shorter.
    """
    request = resolved.request
    scheme = resolved.request.model.quantization
    version = resolved.args.engine_version
    if (
        scheme
        and not request.weights_dtype
        and not resolved.engine.loads_quantization(scheme.method, version)
    ):
        return None
    checkpoint = resolved.checkpoint
    context = int(resolved.workload.context)
    if checkpoint and context > (request.context_of(checkpoint) or context):
        return None
    facts = LaunchFacts(
        args=resolved.args,
        model=request.model,
        served=checkpoint or served_model(request),
        revision=request.revision,
        draft=(request.served_draft or _repository(request.draft)) if request.draft else None,
        drafter=request.draft,
        context=context,
        batch=int(resolved.workload.batch),
        # vLLM up to 0.8 did not start a model in bf16 on a GPU without it
        dtype_given=request.workload.dtype is not None
        or (request.model.dtype, resolved.args.dtype.name) == _NO_BF16,
        kv_dtype_given=request.workload.kv_dtype,
        weights_given=None if checkpoint else request.weights_dtype,
        weights_dtype=resolved.weights_dtype,
        file_type=file_type(resolved.model),
        share=_given_share(resolved),
        kv_memory=request.kv_memory,
        replicas=resolved.replicas,
        ranks=resolved.dp if request.model.has_experts else resolved.replicas,
        expert_parallel=request.enable_expert_parallel,
        ollama=request.ollama,
        loads_weights=checkpoint is not None or resolved.loads_weights,
    )
    try:
        words = resolved.engine.launch(facts)
        if words is None:
            return None
        command = shlex.join(map(str, words)).replace(" '&' ", " & ")
        return command.replace(f" '{NEXT_NODE}' ", NEXT_NODE)
    except NoCommandError:
        return None


def _given_share(resolved: ResolvedRequest) -> str | None:
    """Return the share of a GPU's memory as engines read it; None if none was given."""
    given = resolved.request.gpu_memory_utilization
    if given is None:
        return None
    return parse_share(str(given), resolved.engine.share_option).text


def served_model(request: FitRequest) -> str:
    """Return the model's path or repository: as given, else from the sources of the preset, else
    'path/to/NAME'.
    """
    if request.served_model is not None:
        return request.served_model
    return _repository(request.model)


def _repository(model: ModelSpec) -> str:
    """Return the repository of the model's own name that its sources name, else their first: a
    preset may be of several releases, as qwen3.6-27b is Qwen3.5's too.
    """
    found = [name for source in model.sources for name in re.findall(_REPOSITORY, source)]
    named = (name for name in found if _letters(name.rpartition("/")[2]) == _letters(model.name))
    return next(named, found[0] if found else f"{OWN_FOLDER}{model.name}")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, re.sub(_TUNED, "", name).lower()))
