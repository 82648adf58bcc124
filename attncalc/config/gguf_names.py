"""Which of a repository's GGUF files is meant, by llama.cpp's rules for `-hf org/name:Q4_K_M`.

Source: find_best_model and gguf_filename_is_model in common/download.cpp of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

DEFAULT_TAGS = ("Q4_K_M", "Q8_0")
"""The quantizations that are taken if none is named, in this order; else the first file."""

_NOT_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf", re.IGNORECASE)
_TAG = re.compile(
    r"[-._/](?P<tag>(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|B?F16|F32|MXFP4\w*|NVFP4\w*))(?:-00001-of-\d{5})?\.gguf",
    re.IGNORECASE,
)


def gguf_models(names: Iterable[str]) -> list[str]:
    """Return the sorted GGUF files that are language models, of those in several parts only the first."""
    return sorted(name for name in names if _is_model(name))


def gguf_file(names: Iterable[str], wanted: str = "") -> str | None:
    """Return the GGUF file that `wanted` means, or None.

    Args:
        names: The files of the repository, with their folders.
        wanted: A file, or a quantization such as 'Q4_K_M' in any case; '' for llama.cpp's default.
    """
    models = gguf_models(names)
    for tag in (wanted,) if wanted else DEFAULT_TAGS:
        by_name = [name for name in models if name.lower() == tag.lower()]
        # 'F16' is not 'x-BF16.gguf', though llama.cpp would take it.
        whole = [name for name in models if re.search(rf"(?<![A-Z0-9]){re.escape(tag)}[.-]", name, re.IGNORECASE)]
        if found := by_name or whole:
            return found[0]
    return models[0] if models and not wanted else None


def quantizations(names: Iterable[str]) -> list[str]:
    """Return the quantizations of the GGUF models, as one can name them after 'org/name:'."""
    # Only the end: '_Q4_Q4_Q4...' of 500 characters would take milliseconds, and a hub may list thousands of names.
    tags = (_TAG.search(name[-80:]) for name in gguf_models(names))
    return list(dict.fromkeys(match["tag"] for match in tags if match))


def _is_model(name: str) -> bool:
    base = name.rpartition("/")[2]
    return (
        base.lower().endswith(".gguf")
        and not any(word in base for word in _NOT_MODELS)
        and not _LATER_SHARD.search(base)
    )
