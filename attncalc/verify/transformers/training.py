"""One training step of a transformers class without memory for its weights: what it saves, holds,
and its peak.

The class runs under torch's FakeTensorMode, where tensors have shapes and no data, on a fake CPU.
On the meta device scaled_dot_product_attention would take the math path, which saves the scores
that flash does not save.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode

from ...model import Head
from ...records import NamedTuple
from ...search import grouped
from ..training.saved import ROPE, SavedTensor, SavedTensors, bytes_of, state_bytes
from .kernels import stand_ins
from .model import LAYER, READS_TOKEN_VALUES, find_class, has_towers, is_language, quiet

# Names of the probabilities of dropout in config classes.
DROPOUT = re.compile(r"dropout|pdrop")
# The operator of scaled_dot_product_attention's flash kernel on a CPU; its math path is several
# operators.
FLASH = "_scaled_dot_product_flash_attention_for_cpu"


class TrainingStep(NamedTuple):
    """What one training step of a class holds, in bytes."""

    name: str  # the class
    attention: str  # its implementation of attention: 'sdpa', 'eager'
    has_stand_ins: bool  # whether stand-ins replace kernels of recurrent layers
    # Paths of the layers that call the flash kernel; others call the math path of 'sdpa', or are
    # eager
    flash: frozenset[str]
    saved: tuple[SavedTensor, ...]  # the tensors that the forward pass saves
    parameters: int  # of all parameters of the language side, tied ones once
    gradients: int  # of their gradients
    states: int  # of AdamW's two moments
    # The largest sum of all tensors but towers that exist together during a second step; 0 if it
    # was not measured
    peak: int

    def saved_by_layer(self) -> dict[str, int]:
        """Return the bytes saved by each layer, by its path; those outside of all layers are ''."""
        sizes = grouped((layer_path(tensor.path), tensor.bytes) for tensor in self.saved)
        return {path: sum(size) for path, size in sizes.items()}

    @property
    def rope_tables(self) -> int:
        """The bytes of RoPE's cosines and sines outside of the layers, which all layers share."""
        shared = [tensor for tensor in self.saved if not layer_path(tensor.path)]
        return sum(tensor.bytes for tensor in shared if ROPE.search(tensor.path))


def layer_path(path: str) -> str:
    """Return the path of the layer that a module is in; '' outside of all layers."""
    match = LAYER.match(path)
    if match:
        return match[0]
    return ""


def training_step(
    config: Mapping[str, Any],
    dtype: torch.dtype,
    head: Head | None,
    batch: int,
    tokens: int,
    *,
    recompute: bool = False,
    eager: bool = False,
    peak: bool = True,
) -> TrainingStep:
    """Train the class of `config` for two steps with AdamW, and return what it holds.

    Args:
        recompute: use the class's own gradient checkpointing, which keeps the input of each layer
            only.
        eager: use its eager attention even if it has another.
        peak: whether to measure the peak, which takes most of the time.
    """
    with ExitStack() as during:
        for context in (quiet(), _without_packing(), FakeTensorMode(allow_non_fake_inputs=True)):
            during.enter_context(context)
        model_class, hf_config = find_class(config, head)
        has_stand_ins = during.enter_context(stand_ins(model_class))
        attention = "sdpa" if model_class._supports_sdpa and not eager else "eager"
        model = _to_train(model_class, hf_config, dtype, attention)
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        ids = torch.zeros(batch, tokens, dtype=torch.long)
        inputs = {"input_ids": ids, "labels": ids, "use_cache": False}
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        saved = SavedTensors(model)
        with saved.recording(), _Flash(saved) as flash:
            loss: Tensor = model(**inputs).loss
        loss.backward()
        gradients = bytes_of(p.grad for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        del loss
        beside = has_towers(model)
        parameters = bytes_of(
            p for name, p in model.named_parameters() if is_language(name, beside)
        )
        towers = bytes_of(model.parameters()) - parameters
        return TrainingStep(
            type(model).__name__,
            attention,
            has_stand_ins,
            frozenset(map(layer_path, flash.paths)),
            tuple(saved.tensors),
            parameters,
            gradients,
            state_bytes(optimizer),
            _peak(model, optimizer, inputs) - towers if peak else 0,
        )


def _to_train(model_class: Any, hf_config: Any, dtype: torch.dtype, attention: str) -> Any:
    """Return the class's model in training, without dropout and without values."""
    from transformers.initialization import no_init_weights

    _leave_out_dropout(hf_config)
    with no_init_weights():  # some read values
        model = model_class._from_config(
            hf_config, dtype=dtype, attn_implementation=attention
        ).train()
    model.tie_weights()
    for module in model.modules():
        if hasattr(module, READS_TOKEN_VALUES):
            setattr(module, READS_TOKEN_VALUES, lambda *_: None)
    return model


def _leave_out_dropout(hf_config: Any) -> None:
    """Set the probabilities of dropout to 0, as fine-tuning mostly does: each would save a mask."""
    for name, value in list(vars(hf_config).items()):
        if hasattr(value, "model_type"):
            _leave_out_dropout(value)
        elif DROPOUT.search(name) and isinstance(value, (int, float)):
            setattr(hf_config, name, 0.0)


@contextmanager
def _without_packing() -> Iterator[None]:
    """Let transformers assume that no sequences are packed, as it does after reading positions,
    which are fake here.

    It would make a mask otherwise, and expand K and V to all query heads for it.
    """
    import transformers.masking_utils as masks

    found = masks.find_packed_sequence_indices
    masks.find_packed_sequence_indices = lambda *_: None
    try:
        yield
    finally:
        masks.find_packed_sequence_indices = found


def _peak(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Mapping[str, Any]) -> int:
    """Return the peak of a step by torch's MemTracker, which equals that of the allocator to the
    byte.
    """
    tracker = MemTracker()
    tracker.track_external(model, optimizer, inputs["input_ids"])
    with tracker:
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


class _Flash(TorchDispatchMode):
    """Notes the modules that call the flash kernel."""

    def __init__(self, saved: SavedTensors) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.paths: set[str] = set()
        self._saved = saved

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if FLASH in str(op):
            self.paths.add(self._saved.path)
        return op(*args, **(kwargs or {}))
