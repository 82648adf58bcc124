"""What transformers' own class of a model holds, keeps and multiplies.

The class is built on torch's meta device, where a tensor has a shape and a dtype and no storage: a model of any
size is built in a second, and nothing is read but the config.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from ..errors import CannotCheckError
from ..model import Head
from ..units import truncate

ATTENTION = re.compile(r"(Attention|MLA|Mixer|DeltaNet|ShortConv|MambaLayer|RecurrentBlock|xLSTMLayer)$")
"""How the classes call what stands in a layer as its attention."""
RESIDUAL_NORM = re.compile(r"(^|\.)(layer_norm|LayerNorm|ln|self_attn_layer_norm)\.")
"""What some of them hold beside it: the norm of the residual (T5, BERT and its kin)."""
POSITIONS = re.compile(r"relative_attention_bias\.")
"""T5's table of relative positions, in the first layer's attention or in each."""
LAYER = re.compile(r"(.*?)\.\d+(?=\.|$)")
"""The layer that a module is in, from its path, and the list that the layer is in."""
LANGUAGE = re.compile(r"(^|\.)(language_model|text_model|lm_head|vision_embed_tokens)\.")
"""The language side of such a model, by its names; Fuyu embeds patches of a picture as it does tokens."""
TOWER = re.compile(r"vision|visual|image|audio|speech|codec|_extend")
"""The other parts of a model that reads more than text."""
LOOKS_AT_TOKENS = "warn_if_padding_and_no_attention_mask"
"""A warning that some classes look for, which tokens without values cannot give."""
CORRECTION = re.compile(r"(e_score_correction_bias|balancing_biases)$")
"""A router's bias that is trained and kept in the checkpoint, though the class holds it as a buffer."""


class Unit(NamedTuple):
    """An attention module: where it is, what its stack reads, the layer it is in, and its parameters.

    aside: parameters in it that are no part of attention here, and are not among `params`.
    """

    path: str
    reads: str
    layer: str
    params: int
    aside: int


class Theirs:
    """The model of a config as transformers builds it, with experts that return zeros: routing needs data."""

    def __init__(self, config: Mapping[str, Any], dtype: torch.dtype, head: Head | None) -> None:
        """`head`: what follows the last layer, for a config that names no class.

        CannotCheckError: transformers has no class for the config, or its class does not take it.
        """
        with quiet():
            try:
                self.model = _built(config, dtype, head)
            except CannotCheckError:
                raise
            except Exception as error:  # another library's, of any kind
                what = f"model_type '{truncate(str(config.get('model_type')))}'"
                raise CannotCheckError(f"{what}: transformers cannot build it: {line(error)}") from None
        self.model.eval()
        self.has_towers = any(re.search(r"(language|text)_model\.", name) for name, _ in self.model.named_parameters())
        self.has_experts = False
        for module in self.model.modules():
            name = type(module).__name__
            if hasattr(module, LOOKS_AT_TOKENS):
                setattr(module, LOOKS_AT_TOKENS, lambda *_: None)
            if name.endswith("Experts") and not name.endswith("TopKExperts"):
                self.has_experts = True
                module.forward = lambda hidden_states, *_, **__: torch.zeros_like(hidden_states)

    @property
    def name(self) -> str:
        return type(self.model).__name__

    def language(self, path: str) -> bool:
        """Whether that is a part of what reads and writes text: all of it, where there is nothing else."""
        found = LANGUAGE.search(path)
        before = path[: found.start()] if found else path
        return not TOWER.search(before) and (found is not None or not self.has_towers)

    def params(self) -> tuple[int, dict[str, int]]:
        """Parameters of the language side, each tied tensor once, and those of the other parts by their names."""
        held, others = 0, dict[str, int]()
        sizes = {name: parameter.numel() for name, parameter in self.model.named_parameters()}
        around = {name[:i] for name in filter(self.language, sizes) for i, c in enumerate(name) if c == "."}
        for name, size in sizes.items():
            if self.language(name):
                held += size
            else:
                parts = name.split(".")
                part = next(p for i, p in enumerate(parts) if ".".join(parts[: i + 1]) not in around)
                others[part] = others.get(part, 0) + size
        return held, others

    def corrections(self) -> int:
        """Elements of routers' biases that are held as buffers."""
        return sum(
            b.numel() for name, b in self.model.named_buffers() if CORRECTION.search(name) and self.language(name)
        )

    def tied_head(self) -> int:
        """Elements of an lm head that is the token table itself; 0 for any other."""
        own: Any = self.model
        head, table = own.get_output_embeddings(), own.get_input_embeddings()
        tied = head is not None and getattr(head, "weight", None) is getattr(table, "weight", head)
        return int(head.weight.numel()) if tied else 0

    def units(self, apart: Collection[str]) -> list[Unit]:
        """Every attention module of the language side, in order.

        apart: what the stacks read whose table of relative positions is not counted as attention.
        """
        found = []
        last = "."
        for path, module in self.model.named_modules():
            place = LAYER.match(path)
            if path.startswith(f"{last}.") or not place or not ATTENTION.search(type(module).__name__):
                continue
            if self.language(f"{path}."):
                last = path
                reads = self._reads(place[1])
                own = sum(p.numel() for p in own_parameters(module, reads in apart))
                every = sum(p.numel() for p in module.parameters())
                found.append(Unit(path, reads, place[0], own, every - own))
        return found

    def attention(self, units: Collection[Unit], apart: Collection[str]) -> int:
        """Parameters of those modules, each once that several of them share."""
        held = {
            id(p): p.numel()
            for unit in units
            for p in own_parameters(self.model.get_submodule(unit.path), unit.reads in apart)
        }
        return sum(held.values())

    def _reads(self, prefix: str) -> str:
        """What the stack that holds a list of layers reads."""
        return "source" if self.crosses and "encoder" in prefix.split(".") else "target"

    @property
    def crosses(self) -> bool:
        """Whether it is an encoder with a decoder."""
        return bool(getattr(self.model.config, "is_encoder_decoder", False))

    @property
    def input(self) -> str:
        """What its first tokens come from: 'input_ids', 'pixel_values' or 'input_features'."""
        return str(getattr(self.model, "main_input_name", "input_ids"))


def own_parameters(module: nn.Module, without_positions: bool) -> Iterator[nn.Parameter]:
    """The parameters of an attention module that are attention's."""
    for name, parameter in module.named_parameters():
        if not RESIDUAL_NORM.search(name) and not (without_positions and POSITIONS.search(name)):
            yield parameter


def _built(config: Mapping[str, Any], dtype: torch.dtype, head: Head | None) -> nn.Module:
    """The class that `config` names, or that of its model_type, on the meta device."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise CannotCheckError(f"transformers {transformers.__version__} has no model_type '{truncate(str(kind))}'")
    own = CONFIG_MAPPING[kind].from_dict(dict(config))
    named: Any = getattr(transformers, str((config.get("architectures") or [""])[0]), None)
    if not isinstance(named, type) or not issubclass(named, transformers.PreTrainedModel):
        named = _by_type(own, head)
    if named is None:
        what = "language model" if head else "model"
        raise CannotCheckError(
            f"transformers {transformers.__version__} has no {what} of '{truncate(str(kind))}' alone"
        )
    with torch.device("meta"):
        model: nn.Module = named._from_config(own, dtype=dtype, attn_implementation="eager")
    return model.to(dtype)


def _by_type(own: Any, head: Head | None) -> Any:
    """The class for a config that names none: with an lm head, or without."""
    from transformers.models.auto import modeling_auto as auto

    tables = [auto.MODEL_MAPPING]
    if head and head.kind == "lm":
        tables = [auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING]
        tables += [auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING, auto.MODEL_FOR_MULTIMODAL_LM_MAPPING]
        tables += [auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.MODEL_FOR_MASKED_LM_MAPPING]
    found = next((table[type(own)] for table in tables if type(own) in table), None)
    return found[0] if isinstance(found, tuple) else found


@contextmanager
def quiet() -> Iterator[None]:
    """No download and no warning of the library's while it works."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def line(error: Exception) -> str:
    """An error in one line."""
    return truncate(f"{type(error).__name__}: {error}".split("\n")[0], 200)
