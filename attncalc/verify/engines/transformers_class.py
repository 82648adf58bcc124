"""The program that runs a model's own class of transformers for `verify --engine transformers`.

python transformers_class.py FOLDER --context 128: it makes the class of the folder's config.json
with random weights, generates a token after a prompt and another one in a decode step, with the
cache that the class makes, and prints the bytes of its weights and of the cache after each.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

# The outputs in which a class returns its cache.
_CACHES = ("past_key_values", "cache_params")


def arguments() -> Any:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("folder")
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--source", type=int, default=0)
    parser.add_argument("--dtype", required=True)
    return parser.parse_args()


def tensors_of(value: object, visited: set[int]) -> Iterator[Any]:
    """Yield each tensor of a cache, but lengths and positions, which have one dimension at most."""
    import torch

    if id(value) in visited:
        return
    visited.add(id(value))
    parts: Iterable[object] = ()
    if isinstance(value, torch.Tensor):
        if value.dim() > 1:
            yield value
    elif isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    elif type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__"):
        parts = [part for name, part in vars(value).items() if name != "config"]
    for part in parts:
        yield from tensors_of(part, visited)


def size_of(tensors: list[Any]) -> int:
    """Return the bytes of the tensors' elements, of equal tensors once."""
    sizes = {(t.data_ptr(), t.numel()): t.numel() * t.element_size() for t in tensors}
    return sum(sizes.values())


def held_by(tensors: list[Any]) -> int:
    """Return the bytes of memory that the tensors hold: a view holds all of what it is a view
    of.
    """
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def excess_over(tensors: list[Any], itemsize: int) -> int:
    """Return by how many bytes the tensors are larger than with elements of `itemsize` bytes."""
    return sum(t.numel() * max(0, t.element_size() - itemsize) for t in tensors)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def make_model(folder: str, dtype: Any, device: str) -> Any:
    """Return the class that the config names, with random weights."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    model_class = getattr(transformers, config.architectures[0])
    with torch.device(device):
        model = model_class._from_config(config, dtype=dtype)
    return model.to(device).eval()


def main() -> None:
    asked = arguments()
    import torch
    import transformers

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    say(f"class: {versions}, on {device}")
    model = make_model(asked.folder, getattr(torch, asked.dtype), device)
    parameters = [*model.parameters()]
    size = size_of([*model.state_dict().values()])
    buffers = size - size_of(parameters)
    wider = excess_over(parameters, getattr(torch, asked.dtype).itemsize)
    say(f"weights: {size} bytes of {type(model).__name__}, {buffers} in buffers, {wider} of fp32")
    lengths = iter((asked.context - 1, asked.context))

    def measure(module: Any, inputs: Any, out: Any) -> None:
        caches = [out[name] for name in _CACHES if out.get(name) is not None]
        found = [*tensors_of(caches, set())]
        names = ", ".join(type(cache).__name__ for cache in caches)
        sizes = f"{size_of(found)} bytes, {held_by(found)} held"
        say(f"cache: {next(lengths)} tokens, {sizes}, {names}")

    model.register_forward_hook(measure)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    inputs = {"input_ids": torch.randint(vocabulary, (1, asked.context - 1), device=device)}
    if asked.source:
        inputs["decoder_input_ids"] = inputs["input_ids"]
        inputs["decoder_input_ids"][:, 0] = model.config.decoder_start_token_id
        inputs["input_ids"] = torch.randint(vocabulary, (1, asked.source), device=device)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    model.generation_config.eos_token_id = None
    with torch.inference_mode():
        model.generate(**inputs, max_new_tokens=2, do_sample=False, use_cache=True)


if __name__ == "__main__":
    main()
