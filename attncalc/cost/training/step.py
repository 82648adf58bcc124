"""The most that a GPU holds at any moment of a training step.

What stays all the time is in states.py, what stays until its backward pass in activations.py. The
peak is at one of a few moments: when the loss is differentiated, in the backward pass of the last
layer (all activations), in that of the first (all gradients), or when the optimizer steps.
"""

from collections.abc import Iterator

from ...attention.saved import SavedTensor
from ...model import ModelSpec
from ...quantity import (
    Quantity,
    ceil_div,
    exact_div,
    named,
    quantity,
    summed,
    symbol,
    symbol_like,
    total,
)
from ...records import NamedTuple
from ...units import MIB, dtype
from ..params import params
from .activations import SHARED_MASK, LayerSaved, StageSaved, kept_parts, stage_saved
from .classes import class_math
from .offloading import in_backward, on_gpu, on_host
from .setup import CHUNKS, Stage, Training
from .states import States, states

# Bytes of cuBLAS's workspace, 4096 KiB x 2 and 16 KiB x 8, or 32 MiB on Hopper; the threads of the
# forward and of the backward pass have one each (aten/src/ATen/cuda/CublasHandlePool.cpp).
WORKSPACE = 65 * MIB // 8
WORKSPACE_HOPPER = 32 * MIB

LOADING = "loading of the checkpoint"
LOSS = "backward pass of the loss"
GRADIENTS = "gradients"


class Held(NamedTuple):
    """Bytes that are held at a moment besides the states."""

    name: str  # what they are: 'activations'
    meaning: str  # the same in words
    size: Quantity  # bytes


class StepMoment(NamedTuple):
    """A moment of a step that may be its peak."""

    name: str  # the moment in words: 'backward pass of the loss'
    held: tuple[Held, ...]  # what is held besides the states

    @property
    def size(self) -> int:
        """Return the bytes held besides the states."""
        return sum(int(held.size) for held in self.held)


class Cached(NamedTuple):
    """Bytes that the caching allocator holds at the peak beside those that are allocated."""

    # The logits in 16 bits, which are freed before the loss is differentiated: no larger tensor
    # fits there
    logits: int = 0
    # what FSDP allocates in streams of its own at other moments, since streams share no memory
    streams: int = 0
    transposes: int = 0  # transposed weights, which the upper end of the range has


class StageBudget(NamedTuple):
    """The memory of one GPU of a stage at its peak."""

    stage: Stage
    states: States  # weights, gradients, optimizer states
    saved: StageSaved  # what one micro-batch saves
    # bytes of the activations of all micro-batches in flight, by part
    activations: dict[str, Quantity]
    workspaces: Quantity  # bytes of cuBLAS's workspaces
    moments: tuple[StepMoment, ...]  # the moments that may be the peak
    cached: Cached  # what the allocator holds at the peak besides
    # Bytes while a checkpoint is loaded, of the full state dict and a shard; 0 if not asked for
    loading: Quantity

    @property
    def peak(self) -> StepMoment:
        """Return the moment of a step with the most bytes."""
        return _peak(self.moments)

    @property
    def resident(self) -> int:
        """Return the bytes of weights, optimizer states and references."""
        s = self.states
        return sum(map(int, (s.weights, s.frozen_weights, s.master, s.moments, s.references)))

    @property
    def always(self) -> int:
        """Return the bytes that are held at every moment."""
        return self.resident + int(self.workspaces)

    @property
    def allocated_in_step(self) -> int:
        """Return the most bytes that tensors hold in a step."""
        return self.always + self.peak.size

    @property
    def peaks_at_loading(self) -> bool:
        """Return whether tensors hold more while a checkpoint is loaded than in a step."""
        return int(self.loading) > self.allocated_in_step

    @property
    def allocated(self) -> int:
        """Return the most bytes that tensors hold: what torch.cuda.max_memory_allocated counts."""
        return max(self.allocated_in_step, int(self.loading))

    @property
    def largest(self) -> int:
        """Return the bytes of the largest tensor of a step: of the logits or of an activation."""
        sizes: list[int] = []
        for layer in self.saved.layers:
            sizes += [tensor.size for tensor in layer.tensors]
        for moment in self.moments:
            sizes += [held.size for held in moment.held if held.name == "logits"]
        return max(map(int, sizes), default=0)

    def held(self, name: str) -> int:
        """Return the bytes of one kind that are held at the peak."""
        return sum(int(held.size) for held in self.peak.held if held.name == name)


def stage_budget(run: Training, stage: Stage, *, plain: bool = False) -> StageBudget:
    """Return the memory of one GPU of a stage. With `plain` the activations carry no formulas,
    which is faster.
    """
    model = stage.model.plain() if plain else stage.model.symbolic()
    held = states(run, stage)
    saved = stage_saved(run, stage, model)
    parts = {
        part: quantity(_in_flight(stage, size))
        for part, size in kept_parts(run, saved).items()
        if size
    }
    if "activations" in run.offload:
        parts = on_gpu(saved)
        held = held._replace(on_host=total((held.on_host, on_host(saved))))
    moments = tuple(_Moments(run, stage, model, held, saved, parts))
    cached = _cached(run, model, held, saved, _peak(moments))._replace(transposes=held.transposes)
    loading = _loading(run)
    return StageBudget(stage, held, saved, parts, _workspaces(run), moments, cached, loading)


def _workspaces(run: Training) -> Quantity:
    """Return the bytes of cuBLAS's workspaces; 0 on an Apple GPU, which has no cuBLAS."""
    if run.is_mps:
        return quantity(0)
    is_hopper = run.gpu is not None and (run.gpu.compute_capability or (0,))[0] == 9
    size = WORKSPACE_HOPPER if is_hopper else WORKSPACE
    return quantity(2 * symbol("workspace", size, "bytes of a workspace of cuBLAS"))


def _loading(run: Training) -> Quantity:
    """Return the bytes that a GPU holds while a checkpoint is loaded; 0 if it is not loaded whole.

    lightning's FSDP gathers all weights on each GPU, beside its shard: load_raw has the full state
    dict with rank0_only=False (lightning/fabric/strategies/fsdp.py, _load_raw_module_state).
    """
    if not run.load_full_state_dict or run.ranks == 1:
        return quantity(0)
    stored = run.dtype if run.lora else run.param_dtype
    n = symbol("N", int(params(run.model).total), "parameters of the model")
    size = symbol("bytes", dtype(stored).bits // 8, f"bytes of a weight in {stored}")
    whole = n * size
    return quantity(
        whole + ceil_div(whole, symbol("gpus", run.ranks, "GPUs that share the weights"))
    )


def _peak(moments: tuple[StepMoment, ...]) -> StepMoment:
    return max(moments, key=lambda moment: moment.size)


def _cached(
    run: Training, model: ModelSpec, held: States, saved: StageSaved, peak: StepMoment
) -> Cached:
    """Return what the allocator holds at the peak besides.

    FSDP gathers into a buffer, which it copies to the weights, and reduces gradients in streams of
    their own (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: foreach_all_gather,
    foreach_reduce).
    """
    size = symbol("bytes", dtype(run.dtype).bits // 8, f"bytes of an element in {run.dtype}")
    logits: int = 0
    is_cast = run.loss == "full" and dtype(run.dtype).bits == 16 and not run.is_megatron
    is_cast = is_cast and class_math(model.model_type).upcasts_loss
    if peak.name == LOSS and is_cast and not run.hold_logits:
        vocabulary = model.vocab_size or 0
        logits = saved.tokens * vocabulary * size
    if not _reduces_layers(run):
        return Cached(logits)
    gathered = symbol(
        "N_outside", held.outside, "parameters of embedding and head"
    ) * size + _gathered_layer(run, held)
    later = held.gradients - total(h.size for h in peak.held if h.meaning == GRADIENTS)
    return Cached(logits, gathered + later)


def _gathered_layer(run: Training, held: States) -> Quantity:
    """Return the bytes of a layer's weights that FSDP gathers: of quantized matrices, what they are
    packed into.
    """
    if run.weights_dtype:
        return symbol(
            "layer", held.layer_bytes, f"bytes of a layer that are gathered, in {run.weights_dtype}"
        )
    size = symbol("bytes", dtype(run.dtype).bits // 8, f"bytes of an element in {run.dtype}")
    return quantity(symbol("N_layer", held.layer, "parameters of a layer") * size)


def budgets(run: Training, *, plain: bool = False) -> tuple[StageBudget, ...]:
    """Return the memory of one GPU of each stage."""
    return tuple(stage_budget(run, stage, plain=plain) for stage in run.stages)


def most_loaded(run: Training, *, plain: bool = False) -> StageBudget:
    """Return the memory of one GPU of the stage that needs the most."""
    if len(run.stages) > 1 and not plain:
        index = max(budgets(run, plain=True), key=lambda budget: budget.allocated).stage.number
        return stage_budget(run, run.stages[index])
    return max(budgets(run, plain=plain), key=lambda budget: budget.allocated)


def _in_flight(stage: Stage, size: int) -> int:
    """Return the bytes of the activations of all micro-batches in flight. `size` is those of
    one.
    """
    above, below = stage.in_flight
    if above > 1:
        size = symbol_like(size, "in_flight", above, "micro-batches in flight") * size
    if below == 1:
        return size
    return ceil_div(size, symbol_like(size, "stages_per_gpu", below, "stages of a GPU"))


class _Moments:
    """The moments of a step that may be its peak."""

    def __init__(
        self,
        run: Training,
        stage: Stage,
        model: ModelSpec,
        held: States,
        saved: StageSaved,
        parts: dict[str, Quantity],
    ) -> None:
        self.run = run
        self.stage = stage
        self.model = model
        self.held = held
        self.saved = saved
        self.vocabulary = model.vocab_size or 0
        self.kept = Held(
            "activations", "activations kept for the backward pass", total(parts.values())
        )
        self.grads = Held("gradients", GRADIENTS, held.gradients)
        self.always = (self.grads,) if _holds_gradients(run) else ()
        self.of_head = _head_gradients(run, stage, model, held)
        self.buffers = _communication(run, stage, held)
        # the same gradients at every moment of the layers
        self.is_whole = not _reduces_layers(run) and (
            bool(self.always) or run.optimizer_in_backward
        )
        self.has_loss = bool(stage.is_last and model.head and model.head.kind == "lm")
        mask = total(tensor.size for tensor in saved.outside if tensor.name == SHARED_MASK)
        self.mask = (
            (Held("activations", "the mask that recomputed layers share", mask),) if mask else ()
        )
        self.logits: tuple[Held, ...] = ()
        if self.has_loss and run.hold_logits and run.loss == "full":
            size = symbol(
                "bytes", dtype(run.dtype).bits // 8, f"bytes of an element in {run.dtype}"
            )
            output = quantity(saved.tokens * self.vocabulary * size)
            self.logits = (Held("logits", "the model's output, which the loop holds", output),)

    def __iter__(self) -> Iterator[StepMoment]:
        run = self.run
        stepping = _stepping(self.run, self.held)
        if self.has_loss:
            # In chunks, the head has gradients of the first ones while the loss of another is
            # differentiated.
            with_loss: tuple[Held, ...] = self.always
            if not with_loss and run.loss not in ("full", "compiled"):
                with_loss = self.of_head
            if run.loss == "chunked" and run.compile:
                head = total(held.size for held in self.of_head)
                held_already = 0 if self.always else 1
                at_loss = _compiled_chunks(run, self.model, self.saved, head, held_already)
            else:
                at_loss = _loss(run, self.model, self.saved)
            of_loss = (*with_loss, self.kept, *at_loss)
            yield self._moment(LOSS, of_loss, self.buffers.loss)
        before, at_embedding = self._embedding()
        yield from at_embedding
        for layer in self.saved.layers:
            yield from self._layer(layer, before)
        at_step: tuple[Held, ...] = (self.grads,)
        if stepping:
            at_step = (self.grads, Held("temporary", "the optimizer's temporaries", stepping))
        yield self._moment("optimizer step", at_step, self.buffers.step)

    def _moment(self, name: str, held: tuple[Held, ...], buffers: int) -> StepMoment:
        communication = Held("communication", "buffers of collective operations", quantity(buffers))
        return StepMoment(name, (*held, *self.logits, communication))

    def _embedding(self) -> tuple[Held, list[StepMoment]]:
        """Return the gradients before the backward pass of the embedding, and its moments."""
        run = self.run
        held = self.held
        is_tied = _is_tied(run, self.model)
        end = self.buffers.end
        embedding = _embedding_gradient(run, self.stage, held)
        if embedding is None:
            reduced = quantity(0)
            if _reduces_layers(run):
                reduced = _outside_gradients(run, held, run.ranks)
            before = _without(self.grads, reduced)
            if not end:
                return before, []
            return before, [self._moment("backward pass of the embedding", (before,), end)]
        # A tied table has a gradient of the head already; a step with more micro-batches has those
        # of earlier ones.
        others = int(is_tied) + len(self.always)
        found = []
        hidden = self.saved.layers[0].hidden
        parts = [
            ("backward pass of the embedding", others, hidden),
            # the gradient of the head's cast weights, which no other tensor shares, is added to in
            # place
            ("sum of the embedding's gradients", 2 if is_tied and not run.autocasts else others, 0),
        ]
        if (
            is_tied
            and run.loss == "compiled"
            and run.compile
            and not run.is_fsdp
            and dtype(run.grad_dtype).bits == 16
        ):
            # Compiled with the model, both gradients of the table come last, the embedding's as a
            # sum in fp32 (embedding_dense_backward in torch/_decomp/decompositions.py): the logits'
            # gradient stays until then.
            size = symbol("bytes_logit", 2, "bytes of a gradient")
            logits = self.saved.tokens * self.vocabulary * size
            parts.append(
                ("sum of the compiled embedding's gradients", 2 + 2, quantity(logits + hidden))
            )
        for name, copies, others_held in parts:
            besides = symbol(
                "copies_grad", copies, "gradients of the embedding besides the one that stays"
            )
            more = Held(
                "temporary",
                "gradients of the embedding and of its output",
                quantity(besides * embedding + others_held),
            )
            found.append(self._moment(name, (self.grads, more, *self.mask), end))
        if is_tied or self.is_whole:
            return self.grads, found
        return _without(self.grads, embedding), found

    def _layer(self, layer: LayerSaved, before_embedding: Held) -> Iterator[StepMoment]:
        run = self.run
        buffers = self.buffers
        reduces: tuple[Held, ...] = ()
        if _reduces_layers(run):
            reduces = self.of_head
            first = (*self.always, *reduces)
        elif self.is_whole and run.zero >= 2:  # whole until they are reduced to shards
            first = (self.grads, *self.of_head)
        elif self.is_whole:
            first = (self.grads,)
        else:
            first = self.of_head
        of = "" if len(self.saved.layers) == 1 else f" ({layer.group})"
        one = Held("activations", "activations of one layer", total(t.size for t in layer.kept))
        for moment in _layer_moments(layer, is_fused=run.kernel == "eager-fused"):
            freed = total(t.size for t in layer.kept if t in moment.freed)
            more = Held(
                "temporary",
                "recomputed activations, and gradients of activations",
                _recomputed_and_gradients(layer, moment),
            )
            done: tuple[Held, ...] = ()
            later = quantity(0)
            if not self.is_whole:
                done, later = _own_gradients(run, self.held, layer, moment)
            kept = self.kept
            if "activations" in run.offload:
                one = kept = kept._replace(size=in_backward(layer))
            if not layer.is_whole:  # whose backward pass comes after that of whole layers
                done_before = (other.kept_size for other in self.saved.layers if other.is_whole)
                kept = _without(kept, total(done_before))
            last = _without(kept, freed)
            earlier = _without(before_embedding, later)
            where = f"backward pass of the {moment.name} in the"
            yield self._moment(f"{where} last layer{of}", (*first, *done, last, more), buffers.last)
            if buffers.middle != buffers.last and last.size > one.size:
                but_one = (*first, *done, _without(last, one.size), more)
                yield self._moment(f"{where} last layer but one{of}", but_one, buffers.middle)
            own = (*reduces, *done) if _reduces_layers(run) else ()
            of_first = (earlier, *own, _without(one, freed), more, *self.mask)
            yield self._moment(f"{where} first layer{of}", of_first, buffers.first)


def _holds_gradients(run: Training) -> bool:
    """Return whether gradients exist at every moment of a step.

    Those of earlier micro-batches do. Megatron's stay in a buffer of their own
    (megatron/core/distributed/param_and_grad_buffer.py), and so do those of DeepSpeed's ZeRO 3
    (grad_partitions_flat_buffer in runtime/zero/stage3.py).
    """
    is_zero_3 = run.is_deepspeed and run.zero == 3
    return run.gradient_accumulation > 1 or run.is_megatron or is_zero_3


def _is_tied(run: Training, model: ModelSpec) -> bool:
    """Return whether embedding and head train one table: beside adapters they have copies of their
    own.
    """
    return bool(run.lora is None and model.head and model.head.tied)


def _reduces_layers(run: Training) -> bool:
    """Return whether whole gradients exist beside the shards until a layer is reduced, as in
    FSDP.
    """
    return run.is_fsdp and run.ranks > 1


def _embedding_gradient(run: Training, stage: Stage, held: States) -> Quantity | None:
    """Return the bytes of the embedding's whole gradient, which is computed last; None if no such
    tensor stays.
    """
    tables = [t for t in held.trained_tensors if t.name == "embedding"]
    if not (stage.is_first and tables) or run.zero >= 2 or run.optimizer_in_backward:
        return None
    table = sum(t.total for t in tables)
    name = run.dtypes_of(tables[0]).grad
    size = symbol("bytes_grad", dtype(name).bits // 8, f"bytes of a gradient in {name}")
    return quantity(symbol("N_embedding", table, "trained parameters of the embedding") * size)


def _head_gradients(
    run: Training, stage: Stage, model: ModelSpec, held: States
) -> tuple[Held, ...]:
    """Return the gradients that exist when the backward pass of the last layer begins."""
    if not stage.is_last:
        return ()
    of_head = [tensor for tensor in held.trained_tensors if tensor.part == "head"]
    n = sum(tensor.total for tensor in of_head)
    if _is_tied(run, model):
        n += sum(tensor.total for tensor in held.trained_tensors if tensor.name == "embedding")
    head = symbol("N_head", n, "trained parameters of the head")
    name = _whole_gradients(run)
    if of_head and of_head[0].is_saved:
        name = run.dtypes_of(of_head[0]).grad
    size = dtype(name).bits // 8
    if n:
        return (Held("gradients", "gradients of the head", quantity(head * size)),)
    return ()


def _outside_gradients(run: Training, held: States, ranks: int = 1) -> Quantity:
    """Return the bytes of the gradients of embedding and head, or of one of `ranks` shards."""
    outside = [t for t in held.trained_tensors if t.part in ("embedding", "head")]
    if not outside:
        return quantity(0)
    name = run.dtypes_of(outside[0]).grad
    n = sum(tensor.total for tensor in outside) // ranks
    of = " on one rank" if ranks > 1 else ""
    trained = symbol(
        "N_outside_shard" if ranks > 1 else "N_outside_trained",
        n,
        f"trained parameters of embedding and head{of}",
    )
    return quantity(trained * (dtype(name).bits // 8))


def _whole_gradients(run: Training) -> str:
    """Return the dtype of gradients before they are reduced: in FSDP that of the activations."""
    if _reduces_layers(run):
        return run.dtype
    return run.grad_dtype


# Tensors as large as a weight that exist when autograd adds one of several gradients of it: their
# sum until now, another one, and the new sum (torch/csrc/autograd/input_buffer.cpp; seen with torch
# 2.13 for any number of calls of F.linear).
SUMMED = 3


def _compiled_chunks(
    run: Training, model: ModelSpec, saved: StageSaved, head: Quantity, held_already: int
) -> tuple[Held, ...]:
    """Return what torchtune's chunked loss holds when it is compiled, beside gradients of the head
    that are held already.

    Only the function of one chunk is compiled (apply_compile_strategy in
    modules/loss/ce_chunked_output_loss.py): it keeps the chunk's logits and no copy in fp32.
    Autograd first turns all logits into gradients, chunk by chunk, since their nodes are newest:
    there are the logits and one chunk more. Then the head's gradients of the chunks are summed,
    while the gradient of the first chunk's logits is gone.
    """
    size = symbol("bytes", dtype(run.dtype).bits // 8, f"bytes of an element in {run.dtype}")
    logits = quantity(saved.tokens * (model.vocab_size or 0) * size)
    chunk = quantity(ceil_div(logits, symbol("chunks", CHUNKS, "chunks of the logits")))
    summed_up = quantity((SUMMED - held_already) * head - chunk) if head else chunk
    held = Held("logits", "logits, or their gradients", logits)
    if int(summed_up) <= int(chunk):
        return held, Held("temporary", "gradient of one chunk of the logits", chunk)
    return held, Held("temporary", "sum of the head's gradients, less one chunk", summed_up)


def _loss(run: Training, model: ModelSpec, saved: StageSaved) -> tuple[Held, ...]:
    """Return what the loss holds while it is differentiated.

    transformers (loss/loss_utils.py) converts logits to fp32; older classes, such as BERT's, do
    not. torch saves the log-probabilities, and computes two gradients of that size: of these, and
    of the logits. loss_parallel, which torchtitan has with sequence parallelism, has one more
    (`grad_input + torch.exp(x)` in torch/distributed/tensor/parallel/loss.py).
    Megatron turns one copy in fp32 into probabilities and then into their gradient, in place, and
    casts that (megatron/core/tensor_parallel/cross_entropy.py). When compiled, the loss saves the
    logits as they are, and computes one gradient; two if it is compiled with the whole model:
    torch.compile(model), measured on an H200. In chunks, each chunk's logits stay in the dtype of
    the activations. A fused loss computes the gradients of its input and of the head with the loss,
    and stores logits of one chunk only (Liger-Kernel's fused_linear_cross_entropy.py).
    """
    vocabulary = model.vocab_size or 0
    logits = saved.tokens * vocabulary
    size = symbol("bytes", dtype(run.dtype).bits // 8, f"bytes of an element in {run.dtype}")
    fp32 = symbol("fp32", 4, "bytes of an element in fp32")
    copies = symbol("copies", 3, "log-probabilities and two gradients")
    if run.is_fsdp and run.sequence_parallel:
        copies = symbol("copies", 4, "log-probabilities, two gradients, and the probabilities")
    if run.loss == "compiled":
        if run.compile and not run.is_fsdp:
            gradients = logits * symbol("copies", 2, "gradients")
        else:
            gradients = logits
        return (
            Held("logits", "logits", quantity(logits * size)),
            Held("temporary", "gradient of the logits", quantity(gradients * size)),
        )
    if run.loss == "full" and run.is_megatron:
        cast = logits * size if dtype(run.dtype).bits == 16 else 0
        return (
            Held("logits", "probabilities in fp32, or their gradient", quantity(logits * fp32)),
            Held("temporary", "gradient of the logits", quantity(cast)),
        )
    if run.loss == "full":
        if class_math(model.model_type).upcasts_loss:
            element = fp32
            of = " in fp32"
        else:
            element = size
            of = ""
        return (
            Held("logits", f"log-probabilities{of}", quantity(logits * element)),
            Held(
                "temporary",
                f"gradients of the logits{of}",
                quantity(logits * element * (copies - 1)),
            ),
        )
    if run.loss == "chunked":
        chunks = symbol("chunks", CHUNKS, "chunks of the logits")
        return (
            Held("logits", "logits", quantity(logits * size)),
            Held(
                "temporary",
                "one chunk in fp32 with its gradients",
                quantity(ceil_div(logits * fp32 * copies, chunks)),
            ),
        )
    width = model.table_width
    chunk = maximum_chunk(int(saved.tokens), int(vocabulary), int(width))
    rows = symbol("chunk", chunk, "tokens of a chunk")
    return (
        Held("logits", "gradient of the head's input", quantity(saved.tokens * width * size)),
        Held(
            "temporary",
            "logits of one chunk and their gradient",
            quantity(rows * vocabulary * (size + fp32)),
        ),
    )


def maximum_chunk(tokens: int, vocabulary: int, width: int) -> int:
    """Return the tokens of a chunk of Liger's fused loss: its logits are about as large as its
    input.
    """
    factor = -(-vocabulary // width)
    share = -(-tokens // factor)
    return min(tokens, 1 << max(0, share - 1).bit_length())


class _LayerMoment(NamedTuple):
    """A moment in the backward pass of a layer."""

    name: str  # what is differentiated
    freed: list[SavedTensor]  # the saved tensors whose operations are over
    temporary: Quantity  # bytes of the gradients of activations
    # the parts of the layer, and the matrices of this one's, whose gradients do not exist yet
    later: tuple[str, ...]


def _layer_moments(layer: LayerSaved, *, is_fused: bool) -> Iterator[_LayerMoment]:
    """Yield the moments of a layer's backward pass that may be its peak: first of its MLP, then of
    its attention.

    Kernels that save no scores have the gradients of q, k, v and the output.
    """
    yield from _mlp_moments(layer)
    scores: dict[str, int] = {}
    for tensor in layer.tensors:
        if tensor.is_score and not tensor.is_statistic:
            scores[tensor.name] = tensor.size
    if scores:
        temporary = _gradients_of_scores(scores, is_fused=is_fused)
    elif layer.layers.attention.widths().n_heads:
        temporary = total(t.size for t in layer.tensors if t.name in ("q", "k", "v", "output"))
    # a recurrent layer: the gradients of its largest tensor, such as W_in's output, and of its own
    # output
    else:
        sizes = [t.size for t in layer.tensors if t.part == "attention"]
        if not sizes:
            return
        temporary = quantity(max(sizes, key=int) + layer.hidden)
    before_output = []
    for param in layer.params:
        if param.part == "attention" and param.name not in ("W_o", "W_out"):
            before_output.append(param.name)
    name = "attention" if layer.layers.attention.widths().n_heads else "recurrence"
    yield _LayerMoment(name, _after_kernel(layer), temporary, tuple(before_output))


def _gradients_of_scores(scores: dict[str, int], *, is_fused: bool) -> Quantity:
    """Return the bytes of the gradients of the softmax, where the scores are saved.

    CUDA's softmax has three tensors as large as the scores: the gradient of its output and that
    times the output in fp32, and the result (softmax_backward_cuda_out in
    aten/src/ATen/native/cuda/SoftMax.cu). Megatron's fused one writes the result over the gradient
    of its output, which with dropout is another tensor than that of dropout's output.
    """
    result = scores.get("probabilities", 0)
    if is_fused:
        return quantity(2 * result if "probabilities after dropout" in scores else result)
    in_fp32 = scores.get("probabilities in fp32", result)
    return quantity(2 * in_fp32 + (result or in_fp32))


def _mlp_moments(layer: LayerSaved) -> Iterator[_LayerMoment]:
    """Yield the moments of the backward pass of a layer's MLP that may be the layer's peak.

    At the MLP's product the gradients of it and of both operands exist, and its own copy for W_down
    is freed. At the first matrices their weights have gradients, and those of gate and up are
    turned into gradients of the input: of both at once where transformers stacks experts
    (integrations/moe.py), one after the other elsewhere.
    """
    mlp = [t for t in layer.tensors if t.part == "mlp"]
    experts = [t for t in mlp if t.name.startswith("experts' ")]
    inside = [t.size for t in experts or mlp if t.name.removeprefix("experts' ") in ("gate", "up")]
    if not inside:  # ReLU saves its result only
        inside = [t.size for t in mlp if t.name.endswith("activation")]
    if not inside:
        return
    hidden = layer.hidden
    product = [t for t in mlp if t.input_of == ("W_down",)]
    temporary = quantity(summed([*inside, inside[0], hidden]))
    yield _LayerMoment(
        "MLP's product", product, temporary, ("attention", "W_gate", "W_up", "router")
    )
    inputs = [i for i, t in enumerate(mlp) if "W_up" in t.input_of]
    if inputs:
        size = mlp[inputs[-1]].size
        of_both = [*inside, size] if experts else [inside[0], size, size]
        own = mlp[inputs[-1] + 1 :]
        yield _LayerMoment(
            "MLP's first matrices", own, quantity(summed([*of_both, hidden])), ("attention",)
        )


def _after_kernel(layer: LayerSaved) -> list[SavedTensor]:
    """Return the tensors of a layer that are freed before the backward pass of the attention
    kernel.

    They are those that the forward pass saves after the kernel, and the operand of PV if softmax
    saves another.
    """
    names = [tensor.name for tensor in layer.tensors]
    last = -1
    for i, tensor in enumerate(layer.tensors):
        if tensor.part == "attention":
            last = i
    if "probabilities" in names and "probabilities in fp32" in names:
        last = names.index("probabilities in fp32")
    elif layer.tensors[last].input_of in (("W_o",), ("W_out",)):
        last -= 1
    return list(layer.tensors[last + 1 :])


def _own_gradients(
    run: Training, held: States, layer: LayerSaved, moment: _LayerMoment
) -> tuple[tuple[Held, ...], Quantity]:
    """Return the gradients of a layer that exist at a moment of its backward pass, and the bytes of
    those to come.
    """
    if run.lora or not held.gradients:
        return (), quantity(0)
    ranks = run.ranks if run.zero >= 2 and not _reduces_layers(run) else 1
    of_later = [t for t in layer.params if {t.part, t.name.removesuffix(" bias")} & {*moment.later}]
    name = _whole_gradients(run)
    size = symbol("bytes_grad", dtype(name).bits // 8, f"bytes of a gradient in {name}")
    done = sum(t.total for t in layer.params if t not in of_later) // ranks
    later = sum(t.total for t in of_later) // ranks
    exist = quantity(symbol("N_done", done, "parameters of the layer that have gradients") * size)
    if _reduces_layers(run):  # no part of the layer has been reduced
        later = (done + later) // run.ranks
        size = symbol(
            "bytes_reduced",
            dtype(run.grad_dtype).bits // 8,
            f"bytes of a gradient in {run.grad_dtype}",
        )
    to_come = quantity(
        symbol("N_later", later, "parameters of the layer without gradients yet") * size
    )
    return (Held("gradients", "gradients of the layer", exist),), to_come


def _recomputed_and_gradients(layer: LayerSaved, moment: _LayerMoment) -> Quantity:
    """Return the bytes of what is computed again for a layer's backward pass, and of gradients of
    activations.
    """
    others = (*layer.kept, *moment.freed)
    again = [tensor.size for tensor in layer.tensors if tensor not in others]
    if layer.together > 1:  # the other layers of the chunk
        of_one = total(tensor.size for tensor in layer.tensors)
        again.append(quantity((layer.together - 1) * of_one))
    return total((*again, moment.temporary))


def _without(held: Held, size: Quantity) -> Held:
    if size:
        return held._replace(size=quantity(held.size - size))
    return held


def _stepping(run: Training, held: States) -> Quantity | None:
    """Return the temporaries of the optimizer's step.

    torch.optim: a fused step has none, a foreach step has one tensor per trained one, and a loop
    two of the largest. transformers' Adafactor (optimization.py) has two in fp32 of a tensor's
    size, and fp32 copies of its weight and gradient of 16 bits.
    """
    if run.master_weights and not run.optimizer_in_backward and "optimizer" not in run.offload:
        copied = _copied_by_step(run, held)
        if copied:
            return copied
    largest = symbol(
        "largest",
        held.largest.elements * held.largest.stacked,
        "elements of the largest trained tensor",
    )
    if run.in_optimizer.kind == "factored":
        copies = 2
        if not run.master_weights:
            of_largest = run.dtypes_of(held.largest)
            bits_of_both = [dtype(of_largest.param).bits, dtype(of_largest.grad).bits]
            copies += bits_of_both.count(16)
        return quantity(4 * symbol("copies", copies, "tensors of its size in fp32") * largest)
    if run.optimizer_step == "fused" or run.optimizer_in_backward or "optimizer" in run.offload:
        return None
    if run.optimizer_step == "foreach":
        return _one_per_trained(run, held)
    bits = dtype(run.dtypes_of(held.largest).moment).bits
    return quantity(2 * largest * symbol("bytes_moment", bits // 8, "bytes of a moment"))


def _one_per_trained(run: Training, held: States) -> Quantity:
    """Return the bytes of one tensor per trained one, in the dtype of its moments."""
    shards = run.ranks if run.zero else 1
    own = [tensor for tensor in held.trained_tensors if not tensor.is_saved]
    saved = [tensor for tensor in held.trained_tensors if tensor.is_saved]
    parts = []
    for of, tensors in (("", own), ("_saved", saved)):
        if tensors:
            n = -(-sum(tensor.total for tensor in tensors) // shards)
            bits = dtype(run.dtypes_of(tensors[0]).moment).bits
            size = symbol(f"bytes{of}_moment", bits // 8, "bytes of a moment")
            parts.append(quantity(symbol(f"N_step{of}", n, "parameters of one optimizer") * size))
    return total(parts)


def _copied_by_step(run: Training, held: States) -> Quantity:
    """Return the bytes that the step of an optimizer with fp32 weights copies.

    Gradients of 16 bits are copied into fp32 (megatron/core/optimizer/optimizer.py,
    _copy_model_grads_to_main_grads), by DeepSpeed after its shard into one tensor
    (stage_1_and_2.py, stage3.py: step); and updated weights into 16 bits before they become fp8
    (cast_master_weights_to_fp8 of Transformer Engine).
    """
    ranks = run.ranks if run.zero else 1
    bits = dtype(run.grad_dtype).bits
    n = -(-sum(tensor.total for tensor in held.trained_tensors) // ranks)
    if run.zero == 3:
        n = min(n, run.sub_group_size)
    if run.zero and not run.is_megatron:
        copies = 4 + bits // 8
    elif bits == 16:
        copies = 4
    else:
        copies = 0
    if run.fp8 == "weights":
        copies += 2
    shard = symbol("N_step", n, "parameters of a step of one rank")
    return quantity(shard * symbol("bytes_step", copies, "bytes of the step's copies"))


class Buffers(NamedTuple):
    """The bytes of buffers for communication at each moment."""

    loss: int  # in the backward pass of the loss
    last: int  # in that of the last layer
    middle: int  # in that of the layer before, while the gradients of the last one are reduced
    first: int  # in that of the first layer
    end: int  # while the gradients of embedding and head are reduced
    step: int  # in the optimizer's step


def _communication(run: Training, stage: Stage, held: States) -> Buffers:
    """Return the buffers of collective operations, and of the hidden states between the stages of a
    pipeline.
    """
    size = symbol("bytes", dtype(run.dtype).bits // 8, f"bytes of an element in {run.dtype}")
    found = _collectives(run, held, size)
    if run.pp > 1:
        hidden = stage.model.main.d_model * run.workload.batch * exact_div(run.workload.new, run.cp)
        elements = symbol("hidden", hidden, "elements of the hidden states between stages")
        between = 2 * elements * size
        found = Buffers(
            loss=between + found.loss,
            last=between + found.last,
            middle=between + found.middle,
            first=between + found.first,
            end=between + found.end,
            step=found.step,
        )
    return found


def _collectives(run: Training, held: States, size: Quantity) -> Buffers:
    """Return the buffers of collective operations.

    Megatron reduces gradients in their own buffer
    (megatron/core/distributed/param_and_grad_buffer.py). DistributedDataParallel copies gradients
    into buckets (torch/nn/parallel/distributed.py, gradient_as_bucket_view). FSDP holds the
    gathered weights outside the layers, of the layer that runs and of the next, and the gradients
    of the layer before in the dtype in which they are reduced
    (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py). DeepSpeed allocates a whole bucket,
    also with one GPU: ZeRO 1 and 2 for each backward pass, or two with overlap_comm, and they
    gather weights in place (stage_1_and_2.py, backward); ZeRO 3 for the whole run, with up to
    max_live_parameters gathered (stage3.py), but with one GPU none (_no_gather_coalesced in
    partition_parameters.py).
    """
    if run.is_megatron or (run.ranks == 1 and not run.is_deepspeed):
        return Buffers(0, 0, 0, 0, 0, 0)
    if run.zero == 0:
        buckets = named(
            held.gradients, "buckets", "DistributedDataParallel's buckets: a copy of the gradients"
        )
        return Buffers(buckets, buckets, buckets, buckets, buckets, buckets)
    if run.is_fsdp:
        one = symbol("N_layer", held.layer, "parameters of a layer")
        outside = symbol("N_outside", held.outside, "parameters of embedding and head")
        of_layer = _gathered_layer(run, held)
        gathered = outside * size + of_layer
        found = Buffers(gathered, gathered + of_layer, gathered + of_layer, gathered, 0, 0)
        if not run.lora:
            reduced = symbol(
                "bytes_grad",
                dtype(run.grad_dtype).bits // 8,
                f"bytes of a gradient in {run.grad_dtype}",
            )
            found = found._replace(
                middle=found.middle + one * reduced, first=gathered + one * reduced
            )
        of_outside = _outside_gradients(run, held)
        if of_outside:
            found = found._replace(end=outside * size + of_outside)
        return found
    bucket = symbol("bucket", run.reduce_bucket_size, "elements of a bucket") * size
    if run.zero < 3:
        if run.overlap_comm:
            bucket = symbol("buckets", 2, "buckets of overlap_comm") * bucket
        return Buffers(bucket, bucket, bucket, bucket, bucket, 0)
    whole = sum(t.total for t in held.tensors) if run.ranks > 1 else 0
    n = min(run.stage3_max_live_parameters, whole)
    both = bucket + symbol("live", n, "parameters that are gathered at once") * size
    return Buffers(both, both, both, both, both, bucket)
