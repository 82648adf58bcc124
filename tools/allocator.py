"""Simulate torch's caching allocator over steps of torchtitan, with and without expandable
segments.

    python tools/allocator.py llama3-8b --gpus 32,64

A step allocates what `train` predicts (FSDP, `--recompute op`, compiled): gathered weights, what
layers keep and compute again, logits and their gradient. AdamW's moments follow the first step.
Left out is what FSDP allocates in streams of its own. Printed are the most allocated and reserved
bytes.
"""

import argparse
import sys
from collections.abc import Iterable

from attncalc.cost.training.fits import train_result
from attncalc.cost.training.step import StageBudget
from attncalc.questions.train.request import read_train_request
from attncalc.records import NamedTuple

MIB = 2**20
GIB = 2**30
BATCH = 2
TOKENS = 8192


class Block(NamedTuple):
    """A part of a segment."""

    size: int  # bytes
    segment: int  # the segment; 0 is that of small blocks that grows, and 1 that of large ones
    start: int  # its first byte there
    is_small: bool  # whether it is of the pool of small blocks


class Allocator:
    """One stream's blocks, as c10/cuda/CUDACachingAllocator.cpp keeps them: best fit, split, merged
    when freed.
    """

    def __init__(self, *, expandable: bool) -> None:
        self.expandable = expandable
        self.free: list[Block] = []
        self.ends = [0, 0]
        self.segments = 1
        self.held = self.reserved = self.most_held = 0

    def allocate(self, size: int) -> Block:
        size = -(-size // 512) * 512
        is_small = size <= MIB
        found = min(
            (block for block in self.free if block.size >= size and block.is_small == is_small),
            default=None,
        )
        if found:
            self.free.remove(found)
        elif self.expandable:
            found = self._grown(size, is_small)
        else:
            found = self._segment(size, is_small)
        rest = found.size - size
        if rest >= 512 if is_small else rest > MIB:
            self.free.append(found._replace(size=rest, start=found.start + size))
            found = found._replace(size=size)
        self.held += found.size
        self.most_held = max(self.most_held, self.held)
        return found

    def _segment(self, size: int, is_small: bool) -> Block:
        if is_small:
            whole = 2 * MIB
        elif size < 10 * MIB:
            whole = 20 * MIB
        else:
            whole = -(-size // (2 * MIB)) * 2 * MIB
        self.segments += 1
        self.reserved += whole
        return Block(whole, self.segments, 0, is_small)

    def _grown(self, size: int, is_small: bool) -> Block:
        segment, page = (0, 2 * MIB) if is_small else (1, 20 * MIB)
        end = self.ends[segment]
        last = next(
            (b for b in self.free if b.segment == segment and b.start + b.size == end), None
        )
        if last:
            self.free.remove(last)
        start = last.start if last else end
        more = -(-(start + size - end) // page) * page
        self.ends[segment] += more
        self.reserved += more
        return Block(self.ends[segment] - start, segment, start, is_small)

    def release(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.held -= block.size
            merged = block
            for other in [one for one in self.free if one.segment == block.segment]:
                if (
                    other.start + other.size == merged.start
                    or merged.start + merged.size == other.start
                ):
                    self.free.remove(other)
                    merged = merged._replace(
                        size=merged.size + other.size, start=min(merged.start, other.start)
                    )
            self.free.append(merged)


def step(memory: Allocator, budget: StageBudget, outside: list[int], logits: int) -> None:
    """Allocate and free what a step does: forward pass, loss, backward pass."""
    (layer,) = budget.saved.layers
    weights = [2 * tensor.total for tensor in layer.params]
    kept = [int(tensor.size) for tensor in layer.kept]
    again = [int(tensor.size) for tensor in layer.tensors if tensor not in layer.kept]
    hidden = int(layer.hidden)
    count = int(layer.layers.count)

    def new(*sizes: int) -> list[Block]:
        return [memory.allocate(size) for size in sizes]

    gathered = new(*outside)
    saved = []
    stream = new(hidden)
    for _ in range(count):
        used = new(*weights)
        of_layer = new(*kept)
        temporary = new(*again)
        saved.append((of_layer, stream))
        stream = new(hidden)
        memory.release([*temporary, *used])
    normed = new(hidden)
    loss = new(logits)
    gradient = new(logits)
    memory.release(loss)
    of_head = new(outside[0])
    flowing = new(hidden)
    memory.release([*gradient, *normed, *stream])
    for of_layer, stream in reversed(saved):
        used = new(*weights)
        temporary = new(*again, *sorted([*kept, *again])[-3:])
        gradients = new(*weights)
        flows = new(hidden)
        memory.release([*temporary, *used, *of_layer, *gradients, *flowing, *stream])
        flowing = flows
    memory.release([*new(outside[0]), *gathered, *of_head, *flowing])


def main() -> None:
    """Print the allocated and reserved bytes of three steps for each number of GPUs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--gpus", default="32,64")
    given = parser.parse_args()
    for gpus in map(int, given.gpus.split(",")):
        run = read_train_request(
            given.model,
            {
                "fsdp": True,
                "dtype": "bf16",
                "gpus": gpus,
                "batch": BATCH,
                "context": TOKENS,
                "recompute": "op",
                "compile": True,
                "loss": "compiled",
            },
        ).run
        budget = train_result(run, plain=True).budget
        trained = budget.states.trained_tensors
        outside = [2 * tensor.total for tensor in trained if tensor.part in ("embedding", "head")]
        shards = [
            -(-4 * tensor.elements // gpus) for tensor in trained for _ in range(tensor.copies)
        ]
        for expandable in (False, True):
            memory = Allocator(expandable=expandable)
            for shard in shards:
                memory.allocate(shard)
            for number in range(3):
                step(memory, budget, outside, 2 * BATCH * TOKENS * int(run.model.vocab_size or 0))
                for shard in [*shards, *shards] if number == 0 else ():
                    memory.allocate(shard)
            line = (
                f"{memory.most_held / GIB:.2f} GiB allocated, {memory.reserved / GIB:.2f} reserved"
            )
            sys.stdout.write(f"{gpus} GPUs, {'expandable' if expandable else 'segments'}: {line}\n")


if __name__ == "__main__":
    main()
