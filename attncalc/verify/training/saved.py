"""The tensors that autograd saves for the backward pass, by the module that saves them first."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from ...records import NamedTuple

# Names of the modules that make RoPE's cosines and sines, which all layers share.
ROPE = re.compile(r"rotary|rope")


class SavedTensor(NamedTuple):
    """A storage that autograd saved, with the first tensor in it."""

    # the innermost module that saved it, or that made it for all layers; '' in the model itself
    path: str
    shape: tuple[int, ...]  # of the tensor, which may be a view of a part of the storage
    dtype: str  # of the tensor: 'bfloat16'
    bytes: int  # of the whole storage, which a view keeps alive

    @property
    def name(self) -> str:
        """Its module, shape and dtype: 'mlp.act_fn [2, 512, 14336] bfloat16'."""
        return f"{self.path} {list(self.shape)} {self.dtype}".strip()


class SavedTensors:
    """Records the tensors that are saved while `recording`.

    Each storage counts once. Parameters do not count, but casts of them do, as autocast makes them.
    """

    def __init__(self, model: nn.Module) -> None:
        self.tensors: list[SavedTensor] = []  # what was saved, in order
        self._model = model
        self._storages = {
            p.untyped_storage()._cdata: p.untyped_storage() for p in model.parameters()
        }
        self._paths: list[str] = []
        self._makers: dict[int, tuple[str, object]] = {}

    @property
    def path(self) -> str:
        """The innermost module that runs; '' outside of all modules."""
        if self._paths:
            return self._paths[-1]
        return ""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the code inside saves; `tensors` holds it afterwards."""
        hooks: list[Any] = []
        for path, module in self._model.named_modules():
            hooks.append(
                module.register_forward_pre_hook(lambda *_, path=path: self._paths.append(path))
            )
            hooks.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            with saved_tensors_hooks(self._pack, lambda tensor: tensor):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _leave(self, _module: nn.Module, _inputs: object, output: object) -> None:
        path = self._paths.pop()
        if ROPE.search(path):
            tables = [table for table in tree_leaves(output) if isinstance(table, Tensor)]
            self._makers |= {
                t.untyped_storage()._cdata: (path, t.untyped_storage()) for t in tables
            }

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = storage  # kept, so that its address is not used again
            dtype = str(tensor.dtype).removeprefix("torch.")
            path = self._makers.get(storage._cdata, (self.path,))[0]
            self.tensors.append(SavedTensor(path, tuple(tensor.shape), dtype, storage.nbytes()))
        return tensor


def bytes_of(tensors: Iterable[Tensor | None]) -> int:
    """Return the bytes of the tensors' storages, each once; of a sharded tensor those of this
    rank.
    """
    local = [t.to_local() if hasattr(t, "to_local") else t for t in tensors if t is not None]
    return sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in local}.values())


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of an optimizer's states, without its counts of steps."""
    states: list[object] = []
    for state in optimizer.state.values():
        states += [value for name, value in state.items() if name != "step"]
    return bytes_of(value for value in states if isinstance(value, Tensor))
