"""Run `attncalc verify` in every way that a device allows, and record predicted and measured figures.

    python tools/measure.py --device cuda

writes docs/measured/NAME.md and NAME.json, where NAME is the device's name. It needs a checkout and torch.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parent.parent
RUNS = {
    "cuda": [
        "-c 4096 --dtype bf16",
        "-c 2048 --dtype fp16",
        "-c 1024 --dtype fp32",
        "llama3-8b -c 4096 -b 8 --dtype bf16",
        "llama3-8b -c 131072",
        "llama3.1-405b -c 131072",
        "deepseek-v3 -c 32768",
        "gemma3-27b -c 32768",
        "llama3-8b -c 131072 --scaling",
        "gpt3 -c 16384 --scaling",
        "deepseek-v3 -c 16384 --scaling",
    ],
    "cpu": [
        "-c 128",
        "gpt-oss-20b -c 300 -b 2",
        "gemma3-27b -c 1100",
        "transformer-base -c 100 -b 3 --dtype bf16",
        "qwen3-8b -c 64 -b 2 --dtype fp16",
        "gpt2 -c 1024 --scaling",
        "llama2-70b -c 32 --tp 2",
    ],
}
"""Arguments of each `attncalc verify`, by type of device."""
CHECK_KEYS = ("of", "name", "predicted", "measured", "tolerance", "unit", "ok")
"""Keys of each check that are recorded."""


def run(arguments: str, device: str) -> dict[str, Any]:
    """Return the JSON of one `attncalc verify`, or its error message and no checks."""
    command = [sys.executable, "-m", "attncalc", "verify", *arguments.split(), "--device", device, "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)
    if process.returncode not in (0, 1):
        return {"arguments": arguments, "error": process.stderr.strip(), "checks": []}
    answer = json.loads(process.stdout)
    return {
        "arguments": arguments,
        "checks": [{key: check[key] for key in CHECK_KEYS} for check in answer["checks"]],
        **{key: answer[key] for key in ("device", "times", "scaling", "notes")},
    }


def table_row(result: dict[str, Any]) -> str:
    """Return one row: the arguments, how many checks agree, the largest error of a peak."""
    checks = result["checks"]
    errors = [
        abs(c["measured"] / c["predicted"] - 1) for c in checks if c["name"].startswith("peak_") and c["predicted"]
    ]
    largest = f"{100 * max(errors):.3f} %" if errors else "-"
    agree = f"{sum(c['ok'] for c in checks)} of {len(checks)}" if checks else result.get("error", "nothing")
    return f"| `{result['arguments']}` | {agree} | {len(errors)} | {largest} |"


def page(results: list[dict[str, Any]], device: str) -> str:
    """Return all results as Markdown, with every check that disagrees."""
    facts = next(r["device"] for r in results if "device" in r)
    failed = [(r["arguments"], c) for r in results for c in r["checks"] if not c["ok"]]
    lines = [
        f"# {facts['name']}, torch {facts['torch']}",
        "",
        f"Written by `python tools/measure.py --device {device}`. Each row is one `attncalc verify`.",
        "",
        "| `attncalc verify` | checks that agree | peaks measured | largest error of a peak |",
        "|---|---:|---:|---:|",
        *(table_row(result) for result in results),
        "",
        f"{len(failed)} checks disagree:" if failed else "All checks agree.",
    ]
    if failed:
        lines += ["", "| arguments | check | predicted | measured |", "|---|---|---:|---:|"]
        lines += [f"| `{a}` | {c['of']} {c['name']} | {c['predicted']} | {c['measured']} |" for a, c in failed]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run everything and write both files; exit with 1 if a check disagrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu")
    parser.add_argument("--output", type=Path, default=CHECKOUT / "docs" / "measured", help="folder to write to")
    options = parser.parse_args()
    results = []
    for arguments in RUNS[options.device.partition(":")[0]]:
        results.append(run(arguments, options.device))
        sys.stderr.write(table_row(results[-1]) + "\n")
        facts = next((r["device"] for r in results if "device" in r), {"name": options.device})
        name = re.sub(r"\W+", "-", facts["name"].lower()).strip("-")
        # written after each run, so that an interrupted measurement loses nothing
        (options.output / f"{name}.json").write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n")
        if "device" in results[-1]:
            (options.output / f"{name}.md").write_text(page(results, options.device))
    sys.exit(not all(check["ok"] for result in results for check in result["checks"]))


if __name__ == "__main__":
    main()
