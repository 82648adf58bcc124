"""Models that vLLM had and has no more, or never had, by the model_type of their config.json.

Read from _PREVIOUSLY_SUPPORTED_MODELS and _OOT_SUPPORTED_MODELS in models/registry.py
of vLLM 0.33.0, which name classes; a class stands beside each model_type.
"""

from collections.abc import Iterator

from ...attention import Sliding
from ...model import ModelSpec
from ...records import NamedTuple
from ..engine import Refusal
from ..switches import Number
from .options import VllmArgs


class Dropped(NamedTuple):
    """A model whose class later versions do not have."""

    architecture: str  # its class in vLLM
    last: str  # the last version that has it


# {model_type: what was dropped}
_DROPPED = {
    "mllama": Dropped("MllamaForConditionalGeneration", "0.10.2"),
    "jais": Dropped("JAISLMHeadModel", "0.22.0"),
    "internlm": Dropped("InternLMForCausalLM", "0.23.0"),
    "qwen": Dropped("QWenLMHeadModel", "0.23.0"),
    "xverse": Dropped("XverseForCausalLM", "0.23.0"),
    "bamba": Dropped("BambaForCausalLM", "0.23.0"),
    "minimax": Dropped("MiniMaxForCausalLM", "0.23.0"),
    "minimax_text_01": Dropped("MiniMaxText01ForCausalLM", "0.23.0"),
    "minimax_m1": Dropped("MiniMaxM1ForCausalLM", "0.23.0"),
    "baichuan": Dropped("BaichuanForCausalLM", "0.23.0"),
    "aquila": Dropped("AquilaForCausalLM", "0.24.0"),
    "grok-1": Dropped("Grok1ModelForCausalLM", "0.24.0"),
    "telechat": Dropped("TeleChatForCausalLM", "0.25.0"),
    "arctic": Dropped("ArcticForCausalLM", "0.28.0"),
    "mpt": Dropped("MptForCausalLM", "0.28.0"),
    "stablelm_epoch": Dropped("StableLMEpochForCausalLM", "0.28.0"),
    "RefinedWeb": Dropped("RWForCausalLM", "0.28.0"),
    "RefinedWebModel": Dropped("RWForCausalLM", "0.28.0"),
}
# The same for models that later versions run with the code of transformers.
_LEFT_TO_TRANSFORMERS = {
    "phi4_multimodal": Dropped("Phi4MultimodalForCausalLM", "0.12.0"),
    "ernie": Dropped("ErnieModel", "0.23.0"),
    "dots1": Dropped("Dots1ForCausalLM", "0.23.0"),
    "aya_vision": Dropped("AyaVisionForConditionalGeneration", "0.24.0"),
    "musicflamingo": Dropped("MusicFlamingoForConditionalGeneration", "0.24.0"),
    "persimmon": Dropped("PersimmonForCausalLM", "0.25.0"),
    "fuyu": Dropped("FuyuForCausalLM", "0.25.0"),
    "chameleon": Dropped("ChameleonForConditionalGeneration", "0.28.0"),
}
# {model_type: its class}: models that a plugin for vLLM has, once the last version above dropped
# encoder-decoders.
_IN_PLUGIN = {
    "bart": Dropped("BartForConditionalGeneration", "0.10.2"),
    "mbart": Dropped("MBartForConditionalGeneration", "0.10.2"),
    "florence2": Dropped("Florence2ForConditionalGeneration", "0.10.2"),
}
_PLUGIN = "https://github.com/vllm-project/bart-plugin"
# {model_type: its class}: models that no version has, and that do not run with the code of
# transformers either.
_NEVER = {
    "openai-gpt": "OpenAIGPTLMHeadModel",
    "gpt_neo": "GPTNeoForCausalLM",
    "gpt_neox_japanese": "GPTNeoXJapaneseForCausalLM",
    "codegen": "CodeGenForCausalLM",
    "xglm": "XGLMForCausalLM",
    "xlm": "XLMWithLMHeadModel",
    "xlnet": "XLNetLMHeadModel",
    "rwkv": "RwkvForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
    "longt5": "LongT5ForConditionalGeneration",
    "switch_transformers": "SwitchTransformersForConditionalGeneration",
    "t5gemma": "T5GemmaForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
    "nllb-moe": "NllbMoeForConditionalGeneration",
    "marian": "MarianMTModel",
    "fsmt": "FSMTForConditionalGeneration",
    "led": "LEDForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "plbart": "PLBartForConditionalGeneration",
    "mvp": "MvpForConditionalGeneration",
    "blenderbot": "BlenderbotForConditionalGeneration",
    "blenderbot-small": "BlenderbotSmallForConditionalGeneration",
    "speech_to_text": "Speech2TextForConditionalGeneration",
    "moonshine": "MoonshineForConditionalGeneration",
}


# The same before vLLM ran more classes of transformers.
_LATE = {"biogpt": "BioGptForCausalLM"}
# model_types whose classes are not cut into pipeline stages (SupportsPP of the classes in
# model_executor/models of 0.32.0).
_WITHOUT_STAGES = (
    *("aria", "gemma3n", "gemma3n_text", "hrm_text", "idefics3", "mamba2", "paddleocr_vl"),
    *("phi4mm", "smolvlm", "whisper", "zamba2"),
)


def missing_model(model: ModelSpec, args: VllmArgs) -> Refusal | None:
    """Return why a version of vLLM does not have the model, in its words; None if it has."""
    model_type = model.model_type or ""
    if model_type == "qwen2" and _has_some_windows(model):
        return Refusal(
            "Sliding window for some but all layers is not supported", "Use --engine transformers."
        )
    if args.pp > 1 and model_type in _WITHOUT_STAGES:
        return Refusal("Pipeline parallelism is not supported for this model", "Use --tp.")
    never = _NEVER.get(model_type)
    if not args.version.runs_more_of_transformers:
        never = never or _LATE.get(model_type)
    if never:
        return Refusal(
            f"Model architectures ['{never}'] are not supported for now",
            "Use --engine transformers.",
        )
    dropped = _DROPPED.get(model_type)
    if dropped and args.version.number > _number(dropped.last):
        return Refusal(
            f"Model architecture {dropped.architecture} was supported in vLLM until "
            f"v{dropped.last}, and is not supported anymore",
            f"Use --engine-version {dropped.last}.",
        )
    in_plugin = _IN_PLUGIN.get(model_type)
    if in_plugin and args.version.number > _number(in_plugin.last):
        return Refusal(
            f"Model architecture {in_plugin.architecture} is not supported in-tree anymore",
            f"Install the plugin at {_PLUGIN}, or use --engine-version {in_plugin.last}.",
        )
    return None


def _has_some_windows(model: ModelSpec) -> bool:
    """Return whether some of the layers have a window, and others have none."""
    kinds = {
        isinstance(cached.span, Sliding)
        for _, layers in model.groups()
        for cached in layers.cache()
    }
    return len(kinds) == 2


def transformers_note(args: VllmArgs) -> Iterator[str]:
    """Yield that a version runs the model with the code of transformers, if it had its own
    before.
    """
    left = _LEFT_TO_TRANSFORMERS.get(args.model_type or "")
    if left and args.version.number > _number(left.last):
        yield (
            f"vLLM {args.version.name} runs {left.architecture} with the code of transformers: "
            f"{left.last} was the last version with its own."
        )


def _number(version: str) -> Number:
    """Return '0.10.2' as (0, 10, 2)."""
    return tuple(int(part) for part in version.split("."))
