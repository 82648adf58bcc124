"""A quantization that only the name of a checkpoint tells, since another file than the config.json describes it."""

from __future__ import annotations

import re

_SCHEMES = re.compile(
    r"(?:^|[-_./ ])(?P<scheme>NVFP4|MXFP[48]|FP[48]|INT[348]|W\dA\d{1,2}|[2-8]BIT|AWQ|GPTQ|EXL[23]|HQQ|BNB|MLX)"
    r"(?=[-_./ ]|$)",
    re.I,
)
"""Names of schemes as releases have them: 'nvidia/Qwen3-235B-A22B-NVFP4'."""
_PLAIN = re.compile(r"unquantized|dequant|bf16|fp16|gguf|qat", re.I)
"""Words that say that the file's weights are not, or may not be, quantized."""


def scheme_in_name(name: str) -> str:
    """Return the scheme that the name of a checkpoint tells: 'NVFP4'; '' if it tells none."""
    found = _SCHEMES.search(name)
    return found["scheme"].upper() if found and not _PLAIN.search(name) else ""
