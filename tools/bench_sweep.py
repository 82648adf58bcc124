"""How long a sweep takes, as a multiple of what csv.writer alone takes for the same rows, and how
much memory.

    python tools/bench_sweep.py --rounds 3

Issue 16 asks for at most 10 times for 120,000 rows of `kv`, at most 100 times for 20,000 rows of
`fit`, and a peak memory that does not grow with the rows.
Each round times both one after the other; the ratio of the fastest rounds is printed, since other
programs on the machine only add time.
"""

import argparse
import csv
import io
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from attncalc import sweep
from attncalc.show.formats import ROW_FORMATS, Rows

MODELS = ["llama3-70b", "qwen3-32b", "deepseek-v3", "gemma3-27b", "gpt-oss-120b", "mixtral-8x7b"]
KV: dict[str, Any] = {  # 6 models x 2 dtypes x 100 batches x 100 contexts
    "models": MODELS,
    "kv_dtype": "bf16,fp8",
    "batch": "1:100:1",
    "context": "1K:100K:1K",
}
# 5 models x 2 dtypes x 4 kinds of GPU x 5 numbers of GPUs x 10 batches x 10 contexts
FIT: dict[str, Any] = {
    "models": MODELS[:5],
    "kv_dtype": "bf16,fp8",
    "gpu": "a100-80gb,h100-80gb,h200,b200",
    "gpus": "1,2,4,8,16",
    "batch": "1:1000:x2",
    "context": "4K:40K:4K",
}


def write(options: dict[str, Any], file: Any) -> None:
    """Write a sweep as CSV."""
    cells = sweep(**options)
    ROW_FORMATS["csv"].write(Rows(cells.names, cells.units, cells.tuples(), {}), file)


def fastest(run: Callable[[], None], rounds: int) -> float:
    """Return the CPU seconds of the fastest round: they depend less on what else runs than the time
    on a clock does.
    """
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def show(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def ratio(name: str, options: dict[str, Any], rounds: int) -> None:
    """Print the seconds of a sweep and of csv.writer for its rows, and their ratio."""
    rows: Sequence[tuple[Any, ...]] = list(sweep(**options).tuples())

    def alone_once() -> None:
        csv.writer(io.StringIO(), lineterminator="\n").writerows(rows)

    alone = fastest(alone_once, max(rounds, 3))
    count = len(rows)
    whole = fastest(lambda: write(options, io.StringIO()), rounds)
    show(
        f"{name}: {count:,} rows in {whole:.2f} s of CPU ({1e6 * whole / count:.1f} us a row); "
        f"csv.writer alone {alone:.3f} s; ratio {whole / alone:.1f}"
    )


def peak_memory(contexts: int) -> int:
    """Return the peak memory of a process that writes 1,200 rows per context to /dev/null, in
    bytes.
    """
    script = f"""
import resource, sys
sys.path.insert(0, "tools")
import bench_sweep
with open("/dev/null", "w") as file:
    bench_sweep.write({{**bench_sweep.KV, "context": "1K:{contexts}K:1K"}}, file)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
    return int(
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout
    )


def main() -> None:
    """Print ratios and memory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each case")
    rounds = parser.parse_args().rounds
    ratio("kv", KV, rounds)
    ratio("fit", FIT, rounds)
    for contexts in (10, 100):
        show(f"memory: {1200 * contexts:,} rows, peak {peak_memory(contexts) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
