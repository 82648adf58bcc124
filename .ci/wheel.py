"""Install the wheel without extras in an empty environment, and run every command of it once.

`python .ci/wheel.py` builds the wheel; `python .ci/wheel.py WHEEL` takes one that is built. It
needs only the standard library, so that every Python and system that the workflow names can run it.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIG = REPOSITORY / "docs/examples/qwen3-next-80b-a3b"
# 4,096 tokens * 80 layers * K and V of 8 heads * 128 in 2 bytes
LLAMA2_70B = 4096 * 80 * 2 * 8 * 128 * 2

# Exit codes and command lines. `verify` needs torch, which a plain wheel does not bring.
COMMANDS: tuple[tuple[int, str], ...] = (
    (0, "--version"),
    (0, "help"),
    (0, "help fit"),
    (0, "kv llama2-70b"),
    (0, "kv llama2-70b --json"),
    (0, "kv llama2-70b --explain"),
    (0, "kv llama2-70b --format csv"),
    (0, "kv llama2-70b --format markdown"),
    (0, "kv llama2-70b -o kv.json"),
    (2, "kv llama2-70b -o kv.json"),
    (0, "kv llama2-70b -o kv.json --force"),
    (0, "params gpt3 --json"),
    (0, "flops gpt3 --explain"),
    (0, "memory llama2-70b --json"),
    (0, "compare llama2-70b"),
    (0, "compare llama2-70b qwen3-32b --json"),
    (1, "fit llama2-70b --gpu h100 --json"),
    (0, "fit llama3-8b --gpu h100 --engine vllm"),
    (0, "fit llama3-8b --gpu h100 --engine sglang"),
    (0, "fit llama3-8b --gpu h100 --engine llamacpp"),
    (0, "fit llama3-8b --gpu h100 --engine all --json"),
    (0, "fit llama3-8b --gpu h100 --prompt 4K --output-len 1K"),
    (0, "gpus"),
    (0, "gpus h100 --json"),
    (0, "presets"),
    (0, "presets show gpt2"),
    (0, "presets schema"),
    (0, "kv CONFIG --json"),
    (0, "params CONFIG"),
    (0, "kv model.yaml"),
    (0, "params weights"),
    (0, "kv small.gguf --json"),
    (0, "--show-completion bash"),
    (2, "kv no-such-model"),
    (2, "kv no-such-folder/config.json"),
    (2, "kv"),
    (2, "no-such-command"),
    (3, "verify gpt2"),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        attncalc = installed(folder)
        write_files(folder)
        failed = [line for code, line in COMMANDS if not passes(attncalc, line, code, folder)]
        cache = json.loads((folder / "kv.json").read_text(encoding="utf-8"))["results"][0]["value"]
        if cache != LLAMA2_70B:
            failed.append("kv.json")
            sys.stdout.write(f"kv.json has {cache} and not {LLAMA2_70B} bytes\n")
    sys.stdout.write(f"{len(COMMANDS) - len(failed)} passed, {len(failed)} failed\n")
    sys.exit(1 if failed else 0)


def installed(folder: Path) -> Path:
    """Return the command `attncalc` of the wheel, installed in a new environment in `folder`."""
    wheel = sys.argv[1] if len(sys.argv) > 1 else ""
    if not wheel:
        pip(sys.executable, "wheel", "--no-deps", "-w", str(folder), str(REPOSITORY))
        (built,) = folder.glob("*.whl")
        wheel = str(built)
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip(str(programs / "python"), "install", wheel)
    return programs / "attncalc"


def pip(python: str, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", *arguments], check=True)


def write_files(folder: Path) -> None:
    """Write a model file, a folder with a config.json and weights, and a GGUF file."""
    text = (REPOSITORY / "presets/models/gpt2.yaml").read_text(encoding="utf-8")
    (folder / "model.yaml").write_text(text, encoding="utf-8")

    weights = folder / "weights"
    weights.mkdir()
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 10, "n_positions": 4, "n_ctx": 4}
    (weights / "config.json").write_text(
        json.dumps({"model_type": "gpt2", **sizes}), encoding="utf-8"
    )
    shapes = {
        "wte.weight": (10, 8),
        "wpe.weight": (4, 8),
        "h.0.ln_1.weight": (8,),
        "h.0.ln_1.bias": (8,),
        "h.0.attn.c_attn.weight": (8, 24),
        "h.0.attn.c_attn.bias": (24,),
        "h.0.attn.c_proj.weight": (8, 8),
        "h.0.attn.c_proj.bias": (8,),
        "h.0.ln_2.weight": (8,),
        "h.0.ln_2.bias": (8,),
        "h.0.mlp.c_fc.weight": (8, 32),
        "h.0.mlp.c_fc.bias": (32,),
        "h.0.mlp.c_proj.weight": (32, 8),
        "h.0.mlp.c_proj.bias": (8,),
        "ln_f.weight": (8,),
        "ln_f.bias": (8,),
    }
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    head = json.dumps(header).encode()
    (weights / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(offset))
    (folder / "small.gguf").write_bytes(gguf())


def gguf() -> bytes:
    """Return a GGUF file of a llama with one layer; its tensors are in F32 (type 0)."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {
        "llama.block_count": 1,
        "llama.context_length": 16,
        "llama.embedding_length": 8,
        "llama.feed_forward_length": 16,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.vocab_size": 10,
    }
    block = {
        "attn_norm": (8,),
        "attn_q": (8, 8),
        "attn_k": (8, 4),
        "attn_v": (8, 4),
        "attn_output": (8, 8),
    }
    block |= {"ffn_norm": (8,), "ffn_gate": (8, 16), "ffn_up": (8, 16), "ffn_down": (16, 8)}
    shapes = {"token_embd.weight": (8, 10), "output_norm.weight": (8,)}
    shapes |= {f"blk.0.{name}.weight": shape for name, shape in block.items()}
    fields = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    fields += [text(name) + struct.pack("<II", 4, number) for name, number in numbers.items()]
    tensors, offset = [], 0
    for name, shape in shapes.items():
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        tensors.append(text(name) + sizes + struct.pack("<IQ", 0, offset))
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        offset += -(-size // 32) * 32
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(fields + tensors)
    return start + bytes(-len(start) % 32 + offset)


def passes(attncalc: Path, line: str, code: int, folder: Path) -> bool:
    """Return whether the command line ends with that exit code, and an answer or an error; print it
    if not.
    """
    arguments = [str(CONFIG) if word == "CONFIG" else word for word in line.split()]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [str(attncalc), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    is_right = done.returncode == code and bool(done.stdout) == (code < 2 and "-o" not in arguments)
    if code > 1:
        is_right = is_right and done.stderr.startswith(b"error: ")
    if is_right and "--json" in arguments:
        json.loads(done.stdout)
    if not is_right:
        sys.stdout.write(
            f"attncalc {line}: exit code {done.returncode} and not {code}\n{done.stdout!r}\n"
            f"{done.stderr!r}\n"
        )
    return is_right


if __name__ == "__main__":
    main()
