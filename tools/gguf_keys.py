"""Write the keys of GGUF files that llama.cpp knows (attncalc/config/gguf/known_keys.txt).

    python tools/gguf_keys.py PATH --build b11739

PATH is llama.cpp's `src/llama-arch.cpp`, or the library built from it, such as `libllama.so` of
`llama-cpp-py-sync` (tools/llamacpp_buffers.py says how it is installed). The keys that only
llama.cpp's converter writes are those of the installed `gguf` package.
"""

import argparse
import re
import sys
import textwrap
from pathlib import Path

import gguf

sys.path.insert(0, str(Path(__file__).parent.parent))

from attncalc.config.gguf.keys import KNOWN_KEYS

# A key as LLM_KV_NAMES has it, in the source and in the library: '%s.block_count'.
_KEY = re.compile(rb'["\0]%s\.([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*)["\0]')
_HEAD = (
    "# The keys of llama.cpp {}, without the name of the architecture: LLM_KV_NAMES in\n"
    "# src/llama-arch.cpp, and Keys in gguf-py/gguf/constants.py. Most say what the tensors say\n"
    "# too. Keys that begin with 'rope.' are left out. tools/gguf_keys.py writes this file.\n"
)


def keys_of(content: bytes) -> set[str]:
    """Return the keys in llama-arch.cpp, or in a library."""
    # a string ends where the next one begins
    return {key.decode() for key in _KEY.findall(content.replace(b"\0", b"\0\0"))}


def keys_of_converter() -> set[str]:
    """Return the keys of the `gguf` package."""
    keys = set()
    for group in vars(gguf.Keys).values():
        texts = vars(group).values() if isinstance(group, type) else ()
        keys |= {text for text in texts if isinstance(text, str) and text.startswith("{arch}.")}
    keys = {key.removeprefix("{arch}.") for key in keys}
    return {key for key in keys if "{" not in key}


def text_of(keys: set[str], build: str) -> str:
    """Return the file's content."""
    kept = sorted(key for key in keys if not key.startswith("rope."))
    lines = textwrap.wrap(" ".join(kept), 100, break_on_hyphens=False, break_long_words=False)
    return _HEAD.format(build) + "\n".join(lines) + "\n"


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("path", type=Path, help="llama-arch.cpp, or libllama.so")
    parser.add_argument("--build", required=True, help="its build, as b11739")
    args = parser.parse_args()
    keys = keys_of(args.path.read_bytes())
    if len(keys) < 100:
        raise SystemExit(f"{args.path} has {len(keys)} keys: it is not llama.cpp's")
    KNOWN_KEYS.write_text(text_of(keys | keys_of_converter(), args.build))
    sys.stdout.write(f"{KNOWN_KEYS.name}: {len(keys)} keys of llama.cpp\n")


if __name__ == "__main__":
    main()
