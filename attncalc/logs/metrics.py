"""Prometheus metrics of a server as the lines that its log has of the same.

    vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 12.0
    vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.97
    ->  Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 97.0%

Source: vllm/v1/metrics/loggers.py, sglang/srt/metrics/collector.py.
"""

import re

_METRIC = re.compile(
    r"\b(vllm|sglang):(\w{1,80})(?:\{[^}]{0,1000}\})?[ "
    r"=:]{1,3}(\d[\d.]{0,20}(?:e[+-]?\d{1,2})?)(?![\w.])"
)
_SERVERS = ("vllm:", "sglang:")
_NAMES = {
    **dict.fromkeys(("num_requests_running", "num_running_reqs"), "running"),
    **dict.fromkeys(("num_requests_waiting", "num_queue_reqs"), "waiting"),
    **dict.fromkeys(("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage"), "usage"),
    "num_preemptions_total": "preempted",
}
_LINES = {
    "vllm": "Running: {running:.0f} reqs, Waiting: {waiting:.0f} reqs, GPU KV cache usage: "
    "{percent:.1f}%",
    "sglang": "Decode batch, #running-req: {running:.0f}, token usage: {usage:.2f}, #queue-req: "
    "{waiting:.0f}",
}


def with_metrics(lines: list[str]) -> list[str]:
    """Return the lines of a log; the metrics of a cache's usage among them are followed by the line
    about the load.

    Requests are those of all ranks together, the usage is that of the fullest.
    """
    found: dict[str, float] = {}
    server = ""
    of_servers = (line for line in lines if any(name in line for name in _SERVERS))
    for match in (match for line in of_servers for match in _METRIC.finditer(line)):
        name = _NAMES.get(match[2])
        if name:
            server = match[1]
            number = float(match[3])
            if name == "usage":
                found[name] = max(found.get(name, 0), number)
            else:
                found[name] = found.get(name, 0) + number
    if "usage" not in found:
        return lines
    values = {"running": 0, "waiting": 0, **found, "percent": 100 * found["usage"]}
    if found.get("preempted"):
        preempted = [f"{found['preempted']:.0f} requests were preempted"]
    else:
        preempted = []
    return [*lines, _LINES[server].format(**values), *preempted]
