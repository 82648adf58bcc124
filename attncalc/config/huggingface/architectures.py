"""The model_type of a class that a config names in `architectures`, for a config without a
model_type.
"""

import re
from collections.abc import Iterable

# The end of a class's name: 'ForCausalLM' in 'LlamaForCausalLM'.
_TASK = re.compile(
    r"(For[A-Z]\w*|(With)?LMHead|ModelWithLMHead|DoubleHeads|MT|Encoder|(?<!Encoder)Decoder"
    r"|_Reasoning_V3)?(Model)?$"
)

# The words that name draft models in vLLM, SGLang, TensorRT-LLM and SpecForge, wherever they are:
# 'EagleLlamaForCausalLM', 'DeepseekV3MTPForCausalLM', 'LlamaForCausalLMEagle3'. NVIDIA's Eagle 2.5
# is a model with images.
_DRAFT = re.compile(
    r"^(Peagle|HASS)(?=[A-Z])"
    r"|(M(TP|tp)|Next[Nn]|Draft(er)?|DFlash\d*|DSpark|Medusa|Speculator)(?![a-z])"
    r"|E(agle|AGLE)(?!2_5_VL)\d*(?![a-z])"
    r"|XPressModel$"
)

# Classes that are not named as their model_type, without the task.
_OTHER_NAMES = {
    "decilm": "nemotron-nas",
    "eagle3llama": "llama",
    "eaglellama": "llama",
    "hunyuandensev1": "hunyuan_v1_dense",
    "hunyuanmoev1": "hunyuan_v1_moe",
    "inkling": "inkling_mm_model",
    "minimaxm3sparse": "minimax_m3_vl",
    "nemotron35transcribe": "nemo_speechlm",
    "speech2text": "speech_to_text",
    "step3p7text": "step3p5",
}

# {model_type: other names of its classes, without the task}: Kimi K2 has DeepSeek-V3's.
_NAMES_OF_CLASSES = {
    "RefinedWeb": ("rw",),
    "RefinedWebModel": ("rw",),
    "bailing_hybrid": ("bailing_moe_v2_5", "bailing_moe_v3"),
    "deepseek_ref": ("deepseek_v4",),
    "glmga": ("glm46v",),
    "gpt-sw3": ("gpt2",),
    "internlm3": ("llama",),
    "iquestcoder": ("llama",),
    "kimi_k2": ("deepseek_v3",),
    "llama_bidirec": ("llama_bidirectional",),
    "phi-msft": ("phi",),
    "pp_chart2table": ("got_ocr2",),
    "shieldgemma2": ("gemma3",),
    "step3p7": ("step3p7_flash",),
}


def is_class_of(class_name: str, model_type: str) -> bool:
    """Return whether a class is named as a model_type, or as its releases name it."""
    names = (model_type, *_NAMES_OF_CLASSES.get(model_type, ()))
    return model_type_of_class(class_name, names) in names


def model_type_of_class(class_name: str, known: Iterable[str]) -> str | None:
    """Return the model_type in `known` that a class of transformers, or of a vendor's own, belongs
    to, or None.

    A class is named as its model_type: 'Qwen2MoeForCausalLM' belongs to 'qwen2_moe',
    'MiniCPM3ForCausalLM' to 'minicpm3', and 'Gemma3ForCausalLM' to 'gemma3_text', because 'gemma3'
    is the model with images.
    """
    stem = letters_of(_TASK.sub("", class_name))
    by_letters = {letters_of(name): name for name in sorted(known, reverse=True)}
    found = None
    if stem and class_name.endswith("ForCausalLM"):
        found = by_letters.get(stem + "text") or by_letters.get(stem)
    elif stem:
        found = by_letters.get(stem)
    return found or _OTHER_NAMES.get(stem)


def is_draft_class(class_name: str) -> bool:
    """Return whether a class is named as a draft model for speculative decoding, whose config has
    its target's model_type.
    """
    return _DRAFT.search(class_name) is not None


def has_own_eagle(class_name: str) -> bool:
    """Return whether a class is one model's own EAGLE draft: CosyVoice3Eagle3LlamaForCausalLM.

    AngelSlim's has one layer, although its config repeats the target's 24.
    """
    return re.search(r"[a-z0-9]Eagle3?(?=[A-Z])", class_name) is not None


def letters_of(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(c for c in name.lower() if c.isalnum())
