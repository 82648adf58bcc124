"""The model class that transformers has for a config: its parameters and its attention modules.

The class is built on torch's meta device, where a tensor has a shape and a dtype but no storage: a
model of any size is built in a second, and only the config is read.
"""

import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ...errors import CannotCheckError
from ...model import Head
from ...records import NamedTuple
from ...units import truncate

# Class names of attention modules, and of the modules that replace them in recurrent layers.
ATTENTION = re.compile(
    r"(Attention|MLA|Mixer|DeltaNet|ShortConv|MambaLayer|RecurrentBlock|xLSTMLayer)$"
)
# The norm of the residual, which some attention modules contain (T5, BERT and its relatives).
RESIDUAL_NORM = re.compile(r"(^|\.)(layer_norm|LayerNorm|ln|self_attn_layer_norm)\.")
# T5's table of relative positions, in the attention of the first layer or of each layer.
POSITIONS = re.compile(r"relative_attention_bias\.")
# From a module's path: its layer, and in group 1 the list of layers.
LAYER = re.compile(r"(.*?)\.\d+(?=\.|$)")
# Names of the language side of a multimodal model. Fuyu embeds patches of an image as it embeds
# tokens.
LANGUAGE = re.compile(r"(^|\.)(language_model|text_model|lm_head|vision_embed_tokens)\.")
# Names of the other parts of a multimodal model.
TOWER = re.compile(r"vision|visual|image|audio|speech|codec|_extend")
# A method of some classes that reads token values, which meta tensors do not have.
READS_TOKEN_VALUES = "warn_if_padding_and_no_attention_mask"
# A router's bias that checkpoints contain, although the class holds it as a buffer.
CORRECTION = re.compile(r"(e_score_correction_bias|balancing_biases)$")


def has_towers(model: nn.Module) -> bool:
    """Return whether a class has towers of other inputs beside its language model."""
    return any(re.search(r"(language|text)_model\.", name) for name, _ in model.named_parameters())


def is_language(path: str, has_towers: bool) -> bool:
    """Return whether a path belongs to the language side of a class; always true for a text-only
    model.
    """
    match = LANGUAGE.search(path)
    before = path[: match.start()] if match else path
    return not TOWER.search(before) and (match is not None or not has_towers)


class AttentionModule(NamedTuple):
    path: str  # its name in the model
    side: str  # the tokens that its stack processes: 'target' or 'source'
    layer: str  # path of its layer
    params: int  # elements of the parameters that attncalc counts as attention
    # elements of its other parameters: a norm of the residual, a table of positions
    other_params: int


class TransformersModel:
    """The model of a config as transformers builds it. Its experts return zeros, because routing
    needs values.
    """

    def __init__(self, config: Mapping[str, Any], dtype: torch.dtype, head: Head | None) -> None:
        """Build the class that the config names, or else the one for its model_type and `head`.

        Raises CannotCheckError if transformers has no class for the config, or its class cannot be
        built from it.
        """
        with quiet():
            try:
                self.model = _on_meta(config, dtype, head)
            except CannotCheckError:
                raise
            except Exception as error:  # the class may raise anything
                model_type = truncate(str(config.get("model_type")))
                raise CannotCheckError(
                    f"transformers cannot build its class for model_type '{model_type}': "
                    f"{first_line(error)}"
                ) from None
        self.model.eval()
        for name, module in self.model.named_modules():
            # torch's FLOP counter fails if such a parameter is a module's input
            if name.endswith("rel_embeddings"):
                module.requires_grad_(False)
        self.has_towers = has_towers(self.model)
        self.has_experts = False
        for module in self.model.modules():
            name = type(module).__name__
            if hasattr(module, READS_TOKEN_VALUES):
                setattr(module, READS_TOKEN_VALUES, lambda *_: None)
            if name.endswith("Experts") and not name.endswith("TopKExperts"):
                self.has_experts = True
                module.forward = lambda hidden_states, *_, **__: torch.zeros_like(hidden_states)

    @property
    def name(self) -> str:
        return type(self.model).__name__

    def is_language(self, path: str) -> bool:
        """Whether the path belongs to the language side; always true for a text-only model."""
        return is_language(path, self.has_towers)

    def params(self) -> tuple[int, dict[str, int]]:
        """Return the parameters of the language side, tied tensors once, and those of the other
        parts by name.
        """
        language = 0
        other_parts = dict[str, int]()
        sizes = {name: parameter.numel() for name, parameter in self.model.named_parameters()}
        language_prefixes = set[str]()
        for name in filter(self.is_language, sizes):
            parts = name.split(".")
            language_prefixes |= {".".join(parts[:i]) for i in range(1, len(parts))}
        for name, size in sizes.items():
            if self.is_language(name):
                language += size
            else:
                parts = name.split(".")
                part = next(
                    p
                    for i, p in enumerate(parts)
                    if ".".join(parts[: i + 1]) not in language_prefixes
                )
                other_parts[part] = other_parts.get(part, 0) + size
        return language, other_parts

    def router_bias_buffers(self) -> int:
        """Return the elements of router biases that the class holds as buffers."""
        biases = [
            (name, buffer) for name, buffer in self.model.named_buffers() if CORRECTION.search(name)
        ]
        return sum(buffer.numel() for name, buffer in biases if self.is_language(name))

    def tied_head(self) -> int:
        """Return the elements of an lm head that is tied to the token embedding; 0 if it is not
        tied.
        """
        model: Any = self.model
        head = model.get_output_embeddings()
        table = model.get_input_embeddings()
        tied = head is not None and getattr(head, "weight", None) is getattr(table, "weight", head)
        if tied:
            return int(head.weight.numel())
        return 0

    def attention_modules(self, without_positions: Collection[str]) -> list[AttentionModule]:
        """Return every attention module of the language side, in order.

        Args:
            without_positions: the sides ('target', 'source') whose table of relative positions does
                not count as attention.
        """
        modules = []
        last = "."
        for path, module in self.model.named_modules():
            layer = LAYER.match(path)
            if (
                path.startswith(f"{last}.")
                or not layer
                or not ATTENTION.search(type(module).__name__)
            ):
                continue
            if self.is_language(f"{path}."):
                last = path
                side = self._side(layer[1])
                attention = sum(
                    p.numel() for p in attention_parameters(module, side in without_positions)
                )
                total = sum(p.numel() for p in module.parameters())
                modules.append(AttentionModule(path, side, layer[0], attention, total - attention))
        return modules

    def attention_params(
        self, modules: Collection[AttentionModule], without_positions: Collection[str]
    ) -> int:
        """Return the attention parameters of these modules, shared ones once."""
        sizes = {
            id(p): p.numel()
            for module in modules
            for p in attention_parameters(
                self.model.get_submodule(module.path), module.side in without_positions
            )
        }
        return sum(sizes.values())

    def _side(self, prefix: str) -> str:
        """Return the side of a stack, 'target' or 'source', from the path of its list of layers."""
        if self.is_encoder_decoder and "encoder" in prefix.split("."):
            return "source"
        return "target"

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(getattr(self.model.config, "is_encoder_decoder", False))

    @property
    def input_name(self) -> str:
        """Its main input: 'input_ids', 'pixel_values' or 'input_features'."""
        return str(getattr(self.model, "main_input_name", "input_ids"))


def attention_parameters(module: nn.Module, without_positions: bool) -> Iterator[nn.Parameter]:
    """Yield the parameters of an attention module that attncalc counts as attention."""
    for name, parameter in module.named_parameters():
        if not RESIDUAL_NORM.search(name) and not (without_positions and POSITIONS.search(name)):
            yield parameter


def _on_meta(config: Mapping[str, Any], dtype: torch.dtype, head: Head | None) -> nn.Module:
    """Return the class that `config` names, or that of its model_type, on the meta device."""
    model_class, hf_config = find_class(config, head)
    with torch.device("meta"):
        model: nn.Module = model_class._from_config(
            hf_config, dtype=dtype, attn_implementation="eager"
        )
    return model.to(dtype)


def find_class(config: Mapping[str, Any], head: Head | None) -> tuple[Any, Any]:
    """Return the class that `config` names, or that of its model_type, and the config as
    transformers reads it.

    Raises CannotCheckError if transformers has neither.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = config.get("model_type")
    if model_type not in CONFIG_MAPPING:
        raise CannotCheckError(
            f"transformers {transformers.__version__} has no model_type "
            f"'{truncate(str(model_type))}'"
        )
    hf_config = CONFIG_MAPPING[model_type].from_dict(dict(config))
    model_class: Any = getattr(transformers, str((config.get("architectures") or [""])[0]), None)
    if not isinstance(model_class, type) or not issubclass(
        model_class, transformers.PreTrainedModel
    ):
        model_class = _class_of_type(hf_config, head)
    if model_class is None:
        missing = "language model" if head else "model"
        raise CannotCheckError(
            f"transformers {transformers.__version__} has no {missing} class for "
            f"'{truncate(str(model_type))}'"
        )
    return model_class, hf_config


def _class_of_type(hf_config: Any, head: Head | None) -> Any:
    """Return the class of a config's type, with an lm head or without; None if there is none."""
    from transformers.models.auto import modeling_auto as auto

    tables = [auto.MODEL_MAPPING]
    if head and head.kind == "lm":
        tables = [
            auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
            auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        ]
        tables += [auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING, auto.MODEL_FOR_MULTIMODAL_LM_MAPPING]
        tables += [auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.MODEL_FOR_MASKED_LM_MAPPING]
    classes = next((table[type(hf_config)] for table in tables if type(hf_config) in table), None)
    if isinstance(classes, tuple):
        return classes[0]
    return classes


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from downloading and from printing warnings."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def first_line(error: Exception) -> str:
    """Return an error in one line."""
    return truncate(f"{type(error).__name__}: {error}".split("\n")[0], 200)
