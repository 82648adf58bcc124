"""The picture of `attncalc verify --scaling`."""

import xml.etree.ElementTree as ET
from pathlib import Path

from asking import Ask

from attncalc.verify import need_torch

need_torch()


def test_scaling_draws_measured_points_on_predicted_lines(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "v.svg"
    arguments = (
        "verify",
        "gpt2",
        "--device",
        "cpu",
        "--scaling",
        "--context",
        "256",
        "--plot",
        str(file),
    )
    assert ask(*arguments).code == 0
    shown = ["".join(tag.itertext()) for tag in ET.parse(file).iter() if tag.tag.endswith("}text")]
    assert {"GPT-2 (124M)", "math", "Context (tokens)", "128", "256"} <= set(shown)
    assert any(text.startswith("Peak memory (") for text in shown)
    assert (
        shown[-1].startswith("points are measured, lines predicted")
        or "points are measured" in shown[-2]
    )
    assert "computed in fp32" in shown[-1]


def test_a_simulation_has_predicted_memory_and_no_times(ask: Ask) -> None:
    answer = ask("verify", "gpt2", "--simulate", "cuda", "--scaling", "--context", "256", "--plot")
    assert "Peak memory" in answer.out
    assert "Time" not in answer.out
