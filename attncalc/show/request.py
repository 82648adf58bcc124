"""How a request and the command that starts it are shown."""

import re

from ..cost.common import cache_dtype
from ..model import plural
from ..serving.launch import OWN_FOLDER
from ..serving.request import ResolvedRequest
from ..units import count
from .lists import WIDTH, command_lines
from .report import LABEL, Table
from .users import copy_name


def request_facts(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Return how the model is split, the workload and the dtype of the cache, for a heading."""
    args = resolved.args
    workload = resolved.workload
    parallel = {
        "tp": args.tp,
        "pp": args.pp,
        "dcp": args.dcp,
        "dp": resolved.dp,
        "attn-dp": args.attn_dp,
    }
    stored = cache_dtype(resolved.request.model, workload)
    cache = f"cache in {stored.name}" + ("" if stored.group is None else f" ({stored.note})")
    if not resolved.has_cache:
        cache = ""
    elif any(resolved.request.engine_args.get(name) for name in ("kv_dtype_k", "kv_dtype_v")):
        k, v = resolved.engine.cache_dtypes(args)
        if k.name != v.name:
            cache = f"K in {k.name}, V in {v.name}"
    return (
        ", ".join(f"{name} {devices}" for name, devices in parallel.items() if devices > 1),
        f"ep {resolved.expert_devices}" if resolved.request.enable_expert_parallel else "",
        f"context {count(workload.context)}",
        f"source {count(workload.source)}" if workload.source else "",
        f"batch {count(resolved.request.workload.batch)}{share_of_replicas(resolved)}",
        f"weights in {resolved.request.weights_dtype}" if resolved.request.weights_dtype else "",
        cache,
    )


def share_of_replicas(resolved: ResolvedRequest) -> str:
    """Return how a batch is divided: ', 125 on each of 4 replicas'; '' without replicas, and for a
    single request.
    """
    requests = resolved.request.workload.batch
    batch = resolved.workload.batch
    replicas = resolved.replicas
    if replicas == 1 or requests == 1:
        return ""
    most = "" if batch * replicas == requests else "at most "
    return f", {most}{count(batch)} on each of {plural(replicas, copy_name(resolved))}"


def command_table(command: str | None, header: str = "") -> tuple[Table, ...]:
    """Return a command as a table: its lines end with a backslash, so that they can be pasted. None
    without one.

    Below a header, as of a change, only the first of several nodes has its whole command.
    """
    whole_nodes = 1 if header else 2
    if command is None:
        return ()
    own = re.search(rf"(?<!\S){OWN_FOLDER}\S+", command)
    if own:
        where = f"{own[0]} stands for the folder of your weights"
        header = f"{header} {where}:".lstrip()
    lines = command_lines(command, WIDTH - 2, whole_nodes=whole_nodes)
    rows = tuple((line,) for line in lines)
    return (Table((LABEL._replace(header=header),), rows, code=True),)
