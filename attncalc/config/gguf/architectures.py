"""The architectures of GGUF files: those that attncalc reads, and what llama.cpp decides by an
architecture's name.

Sizes are in the keys and shapes of the file, whatever the architecture. Its name decides which
layers have a sliding window, which layers have no cache of their own, and whether the model is an
encoder.

Source: src/llama-arch.cpp, src/llama-model.cpp and load_arch_hparams in src/models/*.cpp of
llama.cpp b11312, as in llama-cpp-python 0.3.36.
"""

from ...errors import did_you_mean
from ...records import NamedTuple


class Windows(NamedTuple):
    """Which layers have a sliding window."""

    # Every period-th layer has none, unless the file has `attention.sliding_window_pattern`; 0 if
    # all have one; None for an architecture whose files always have the pattern
    period: int | None
    dense_first: bool = False  # the first layer of a period has none, not the last
    # Tokens of the window if the file does not have `attention.sliding_window`; None for no windows
    # then
    default: int | None = None
    # whether the window is `default` tokens whatever the file has, as long as that is not 0
    fixed: bool = False
    chunked: bool = False  # whether it is a chunk instead of a window (Llama 4)
    layers: int | None = None  # only models with so many layers have windows


class Architecture(NamedTuple):
    """What llama.cpp decides by the name."""

    # Which layers have a sliding window; None if llama.cpp stores all layers as full attention
    windows: Windows | None = None
    # The first layers, which have a cache of their own, as the others have not; None for all
    own_kv_layers: int | None = None
    encoder: bool = False  # whether it is an encoder, which has no cache and no head


_PLAIN = Architecture()
_ENCODER = Architecture(encoder=True)
_PLAIN_NAMES = (
    *(
        "llama",
        "deci",
        "falcon",
        "baichuan",
        "grok",
        "gpt2",
        "gptneox",
        "mpt",
        "starcoder",
        "refact",
        "bloom",
    ),
    *(
        "stablelm",
        "qwen",
        "qwen2",
        "qwen2moe",
        "qwen2vl",
        "qwen3",
        "qwen3moe",
        "qwen3next",
        "qwen3vl",
    ),
    *(
        "qwen3vlmoe",
        "qwen35",
        "qwen35moe",
        "phi2",
        "phi3",
        "phimoe",
        "plamo",
        "codeshell",
        "orion",
        "internlm2",
    ),
    *(
        "minicpm",
        "gemma",
        "starcoder2",
        "mamba",
        "mamba2",
        "jamba",
        "xverse",
        "command-r",
        "dbrx",
        "olmo",
    ),
    *(
        "olmoe",
        "openelm",
        "arctic",
        "deepseek",
        "deepseek2",
        "deepseek2-ocr",
        "deepseek32",
        "glm-dsa",
    ),
    *(
        "chatglm",
        "glm4",
        "glm4moe",
        "bitnet",
        "jais",
        "jais2",
        "nemotron",
        "nemotron_h",
        "nemotron_h_moe",
    ),
    *(
        "exaone",
        "granite",
        "granitemoe",
        "granitehybrid",
        "chameleon",
        "bailingmoe",
        "bailingmoe2",
        "dots1",
    ),
    *(
        "arcee",
        "ernie4_5",
        "ernie4_5-moe",
        "falcon-h1",
        "hunyuan-moe",
        "hunyuan-dense",
        "hunyuan_vl",
        "smollm3",
    ),
    *(
        "lfm2moe",
        "seed_oss",
        "apertus",
        "minimax-m2",
        "pangu-embedded",
        "mistral3",
        "mistral4",
        "paddleocr",
    ),
    *("maincoder", "kimi-linear", "talkie", "hy_v3"),
)
_ENCODER_NAMES = (
    "bert",
    "nomic-bert",
    "nomic-bert-moe",
    "neo-bert",
    "jina-bert-v2",
    "jina-bert-v3",
    "eurobert",
    "llama-embed",
)
_BY_PATTERN = Architecture(Windows(None))

# The architectures that attncalc reads.
ARCHITECTURES = {
    **dict.fromkeys(_PLAIN_NAMES, _PLAIN),
    **dict.fromkeys(_ENCODER_NAMES, _ENCODER),
    "gemma2": Architecture(Windows(2, default=4096)),
    "gemma3": Architecture(Windows(6)),
    "gemma3n": Architecture(Windows(5), own_kv_layers=20),
    "gemma4": _BY_PATTERN,
    "gemma-embedding": Architecture(Windows(6), encoder=True),
    "modern-bert": Architecture(Windows(3, dense_first=True), encoder=True),
    "cohere2": Architecture(Windows(4)),
    "gpt-oss": Architecture(Windows(2)),
    "olmo2": Architecture(Windows(4)),
    "exaone4": Architecture(Windows(4, default=4096, layers=64)),
    "exaone-moe": Architecture(Windows(4, default=128)),
    "llama4": Architecture(Windows(4, default=8192, fixed=True, chunked=True)),
    "smallthinker": Architecture(Windows(4, dense_first=True, default=4096, fixed=True)),
    "afmoe": Architecture(Windows(4)),
    "plamo3": Architecture(Windows(8)),
    "lfm2": Architecture(Windows(0)),
    "deepseek4": Architecture(Windows(0)),
    "mimo2": _BY_PATTERN,
    "step35": _BY_PATTERN,
    "granite_swa": _BY_PATTERN,
    "maple": _BY_PATTERN,
    "spark2_5": _BY_PATTERN,
    "cohere2moe": Architecture(Windows(4, dense_first=True)),
    "laguna": Architecture(Windows(4, dense_first=True)),
    "mellum": Architecture(Windows(4)),
    "muse-glimmer": Architecture(Windows(4)),
}

_EXPANDED = "llama.cpp expands its latent before it stores it, which is not modelled"
_DIFFUSION = "it is a diffusion model, whose passes have no cache"
_LOOPS = (
    "llama.cpp runs its layers several times, each time with a cache of its own, which is not "
    "modelled"
)
_SPEECH = "it makes speech, and not text"
_DRAFT = "it only proposes tokens for another model"
_MIXED = "its linear attention beside gated latents is not read from GGUF"
_INDEXED = "its indexer and its connections of several streams are not read from GGUF"
_RWKV = "only RWKV-4 is modelled, which llama.cpp does not have"
# Why attncalc does not read an architecture.
UNSUPPORTED = {
    "clip": "it is a projector (mmproj) that goes with a language model; name the language model's "
    "file",
    **dict.fromkeys(("minicpm3", "plm"), _EXPANDED),
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
    **dict.fromkeys(("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), _RWKV),
    **dict.fromkeys(
        ("t5", "t5encoder"), "its encoder and decoder are not read from GGUF; use its config.json"
    ),
    "plamo2": "its Mamba layers are not modelled",
    "grovemoe": "its adjugate experts are not modelled",
    "cogvlm": "its vision experts are not modelled",
    "wavtokenizer-dec": "it decodes audio",
    **dict.fromkeys(("nanbeige", "hrm_text"), _LOOPS),
    **dict.fromkeys(("qwen3tts", "pockettts"), _SPEECH),
    **dict.fromkeys(("eagle3", "dflash", "gemma4-assistant"), _DRAFT),
    **dict.fromkeys(("bailingmoe3", "kimi-k3"), _MIXED),
    **dict.fromkeys(("glm5-next", "hy_v4", "qwen4exp"), _INDEXED),
    "dots3note": "its latents of sliding windows are not modelled",
    "minimax-01": "its lightning attention is not read from GGUF",
    "minimax-m3": "the V that llama.cpp stores beside its indexer's keys is not modelled",
}


def unsupported_reason(name: str) -> str:
    """Return why an architecture is not read, as the end of a sentence."""
    if name in UNSUPPORTED:
        return f"is not supported: {UNSUPPORTED[name]}"
    return f"is not supported. {did_you_mean(name, ARCHITECTURES).capitalize()}".rstrip(". ")
