"""`--mmproj`: the projector of a multimodal model on llama.cpp's first GPU."""

from pathlib import Path

import gguf
import pytest
from asking import Ask, results
from gguf_files import write_gguf
from tables import each

Type = gguf.GGMLQuantizationType
MODEL = ("fit", "llama3.1-8b:q4_k_m", "-c", "4096")


@pytest.fixture
def projector(tmp_path: Path) -> Path:
    shapes = {
        "v.patch_embd.weight": (14, 14, 3, 1024),
        "mm.0.weight": (1024, 4096),
        "mm.0.bias": (4096,),
    }
    types = {"v.patch_embd.weight": Type.F16, "mm.0.weight": Type.F16, "mm.0.bias": Type.F32}
    return write_gguf(
        tmp_path / "mmproj-f16.gguf", "clip", {"has_vision_encoder": True}, shapes, types
    )


# 14 x 14 x 3 x 1024 and 1024 x 4096 weights of 2 bytes, and 4096 of 4
SIZE = 14 * 14 * 3 * 1024 * 2 + 1024 * 4096 * 2 + 4096 * 4


@each("gpu", [["--gpu", "24GB"], ["--gpu", "cpu", "--ram", "24GB"], ["--gpu", "2xrtx-4090"]])
def test_the_projectors_weights_leave_less_for_the_cache(
    ask: Ask, projector: Path, gpu: list[str]
) -> None:
    without = results(ask(*MODEL, *gpu, "--json"))
    answer = ask(*MODEL, *gpu, "--mmproj", str(projector), "--json")
    document, found = answer.document, results(answer)
    if "2xrtx-4090" in gpu:  # on the first GPU only, which is the tightest with it
        assert sum(row["outside_buffers"] for row in document["devices"][:2]) - SIZE == 2 * (
            30 * 2**30 // 100 * 3 // 2
        )
    else:
        assert without["kv_memory"] - found["kv_memory"] == SIZE
    assert f" --mmproj {projector} " in document["launch_command"]
    assert any("compute buffer is not counted" in note for note in document["notes"])


def test_it_is_read_in_a_pasted_command(ask: Ask, projector: Path) -> None:
    command = (
        "llama-server",
        "-m",
        "llama3.1-8b",
        "--mmproj",
        str(projector),
        "-c",
        "4096",
        "-ngl",
        "99",
    )
    pasted = ask("fit", "--gpu", "24GB", "--json", "--", *command)
    parts = {part["name"]: part["expected"] for part in pasted.document["runtime"]}
    assert parts["projector"] == SIZE


@each(
    ("file", "options", "message"),
    [
        ("missing.gguf", [], "missing.gguf: there is no such file"),
        ("model.gguf", [], "it is not a projector, whose architecture is clip"),
        ("text.gguf", [], "text.gguf"),
        ("mmproj-f16.gguf", ["--reserve", "1GiB"], "--mmproj cannot be combined with --reserve"),
        ("mmproj-f16.gguf", ["--engine", "vllm"], "--mmproj has no effect on engine vllm"),
    ],
)
def test_another_file_or_engine_is_an_error(
    ask: Ask, projector: Path, file: str, options: list[str], message: str
) -> None:
    write_gguf(projector.parent / "model.gguf", "llama", {}, {"output.weight": (32, 32)})
    (projector.parent / "text.gguf").write_text("not a file of weights")
    model = (
        ("fit", "llama3.1-8b", "--engine", "llamacpp")
        if "--engine" not in options
        else ("fit", "llama3.1-8b")
    )
    answer = ask(*model, "--gpu", "24GB", "--mmproj", str(projector.parent / file), *options)
    assert (answer.code, message in answer.err, "tip: " in answer.err) == (2, True, True)
