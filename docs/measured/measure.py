"""Run `attncalc verify` in every way a device allows, and write down what was predicted and what was measured.

    python3 docs/measured/measure.py --device cuda

writes docs/measured/NAME.md and NAME.json, NAME being the device's. It needs torch and attncalc, nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
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
KEPT = ("of", "name", "predicted", "measured", "tolerance", "unit", "ok")


def ask(question: str, device: str) -> dict[str, Any]:
    """The JSON answer of `attncalc verify` to one question; what it could not answer is kept in words."""
    command = [sys.executable, "-m", "attncalc", "verify", *question.split(), "--device", device, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parent.parent)
    if done.returncode not in (0, 1):
        return {"question": question, "error": done.stderr.strip(), "checks": []}
    answer = json.loads(done.stdout)
    return {
        "question": question,
        "checks": [{key: check[key] for key in KEPT} for check in answer["checks"]],
        **{key: answer[key] for key in ("device", "times", "scaling", "notes")},
    }


def line(answer: dict[str, Any]) -> str:
    """One row: what was asked, how many checks agree, how far peaks are off."""
    checks = answer["checks"]
    peaks = [
        abs(c["measured"] / c["predicted"] - 1) for c in checks if c["name"].startswith("peak_") and c["predicted"]
    ]
    most = f"{100 * max(peaks):.3f} %" if peaks else "-"
    agree = f"{sum(c['ok'] for c in checks)} of {len(checks)}" if checks else answer.get("error", "nothing")
    return f"| `{answer['question']}` | {agree} | {len(peaks)} | {most} |"


def page(answers: list[dict[str, Any]], device: str) -> str:
    """All of it as Markdown, what disagrees spelled out."""
    facts = next(a["device"] for a in answers if "device" in a)
    failed = [(a["question"], c) for a in answers for c in a["checks"] if not c["ok"]]
    lines = [
        f"# {facts['name']}, torch {facts['torch']}",
        "",
        f"Written by `python3 docs/measured/measure.py --device {device}`; each row is one `attncalc verify`.",
        "",
        "| `attncalc verify` | checks that agree | peaks measured | furthest off |",
        "|---|---:|---:|---:|",
        *(line(answer) for answer in answers),
        "",
        f"What disagrees: {len(failed)} checks." if failed else "Nothing disagrees.",
    ]
    if failed:
        lines += ["", "| asked | check | predicted | measured |", "|---|---|---:|---:|"]
        lines += [f"| `{q}` | {c['of']} {c['name']} | {c['predicted']} | {c['measured']} |" for q, c in failed]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Ask everything, write both files, and leave with 1 where something disagrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu")
    parser.add_argument("--output", type=Path, default=HERE, help="folder to write to")
    given = parser.parse_args()
    answers = []
    for question in RUNS[given.device.partition(":")[0]]:
        answers.append(ask(question, given.device))
        sys.stderr.write(line(answers[-1]) + "\n")
        device = next((a["device"] for a in answers if "device" in a), {"name": given.device})
        name = re.sub(r"\W+", "-", device["name"].lower()).strip("-")
        # after each answer: what was measured is kept, whatever ends this
        (given.output / f"{name}.json").write_text(json.dumps(answers, indent=None, separators=(",", ":")) + "\n")
        if "device" in answers[-1]:
            (given.output / f"{name}.md").write_text(page(answers, given.device))
    sys.exit(not all(check["ok"] for answer in answers for check in answer["checks"]))


if __name__ == "__main__":
    main()
