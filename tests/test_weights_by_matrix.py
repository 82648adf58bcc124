"""Weights of small models, counted matrix by matrix and layer by layer in plain numbers.

The counts of this file go over every single layer, and have no formulas and no groups of equal
layers.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from evaluate import text_of
from tables import each

from attncalc import AttncalcError, Grouped, Head, Layers, Mlp, ModelSpec, Stack, Workload
from attncalc.attention import Matrix
from attncalc.checkpoint import CheckpointWeights, StoredDtype, StoredTensor
from attncalc.cost.experts import Routing
from attncalc.cost.intensity import weights_read
from attncalc.cost.params import params
from attncalc.engines import find_engine
from attncalc.engines.base import DraftModel
from attncalc.engines.engine import ExtraWeights
from attncalc.engines.pipeline import split_into_stages
from attncalc.engines.vllm.options import VllmArgs
from attncalc.model import Tower
from attncalc.quantity import Quantity
from attncalc.quantization import Quantization, Role, Scheme
from attncalc.serving.weight_format import as_weights, multiplied_as, weight_format
from attncalc.serving.weights import Weights, weights
from attncalc.serving.weights_read import _stored_matrix_bytes, bytes_read
from attncalc.units import dtype

# The width of the models.
D = 48


def layers(name: str = "layers", count: int = 2, mlp: Mlp | None = None, **fields: Any) -> Layers:
    return Layers(name, count, **{"attention": Grouped(4, 2, 12), "mlp": mlp, **fields})


def model(*groups: Layers, **fields: Any) -> ModelSpec:
    stacks = fields.pop("stacks", (Stack("decoder", groups, D),))
    return ModelSpec(
        "toy", "Toy", stacks, **{"vocab_size": 101, "head": Head("lm"), "dtype": "bf16", **fields}
    )


DENSE = Mlp(80, gated=True, bias=True)
MIXTURE = Mlp(
    40, gated=True, n_experts=6, n_experts_per_token=2, n_shared_experts=3, router_bias=True
)
WIDE_SHARED = Mlp(40, n_experts=6, n_experts_per_token=2, d_ff_shared=56)
CROSS = Grouped(2, 2, 24)

MODELS = {
    "dense": model(layers(mlp=DENSE)),
    "tied": model(layers(mlp=DENSE), head=Head("lm", tied=True)),
    "two kinds in turn": model(
        layers("a", 1, DENSE),
        layers("b", 2),
        layers("a", 1, DENSE),
        layers("b", 1),
        layers("c", 1, WIDE_SHARED),
    ),
    "dense layers first": model(layers("dense", 1, DENSE), layers("experts", 3, MIXTURE)),
    "wide shared experts": model(layers("experts", 2, WIDE_SHARED)),
    "shared weights": model(
        layers("own", 1, DENSE),
        layers("again", 3, DENSE, shares_weights=True),
        layers("last", 2, Mlp(40)),
    ),
    "encoder and decoder": model(
        stacks=(
            Stack("encoder", (layers(mlp=Mlp(88), attention=Grouped(3, 3, 20)),), 60),
            Stack(
                "decoder",
                (layers("own", 2, DENSE, cross=CROSS), layers("last", 1, Mlp(40), cross=CROSS)),
                D,
            ),
        )
    ),
    "a classifier without a table": model(layers(mlp=DENSE), vocab_size=None, head=None),
    "tensors outside the layers": model(
        layers(mlp=DENSE), extra=(Matrix("out", 9, 7, applied_to="queries"),)
    ),
}


def every_layer(of: ModelSpec, stacks: Sequence[Stack]) -> Iterator[tuple[Stack, int, Layers]]:
    """Yield (stack, number, layer) of each single layer, numbered from the model's first one."""
    for stack in stacks:
        number = of.first_layer
        for group in stack.layers:
            for _ in range(group.count):
                yield stack, number, dataclasses.replace(group, count=1)
                number += 1


def stored_matrices(of: ModelSpec) -> Iterator[tuple[int, Role, int, Matrix]]:
    """Yield (layer, role, copies, matrix) of all matrices that are stored."""
    for stack, number, layer in every_layer(of, of.stacks):
        if not layer.shares_weights:
            for role, copies, matrix in layer.matrices_by_role(stack.d_model, of.d_source):
                yield number, role, int(copies), matrix


def read_matrices(
    of: ModelSpec, routing: Routing = "fewest"
) -> Iterator[tuple[int, Role, int, Matrix]]:
    """Yield (layer, role, copies, matrix) of the matrices that a step reads."""
    for stack, number, layer in every_layer(of, of.stacks[-1:]):
        for role, copies, matrix in layer.matrices_by_role(stack.d_model, of.d_source):
            if role == "experts" and layer.mlp:
                picked = layer.mlp.n_experts_per_token or 0
                yield number, role, int(copies) if routing == "all" else picked, matrix
            # those of the source are in the cache
            elif role != "cross" or matrix.applied_to != "keys":
                yield number, role, int(copies), matrix


# {dtype: the bytes of one output's row, of so many inputs}.
BYTES: dict[str, Callable[[int], int]] = {
    "fp8": lambda rows: 1 * rows,
    "fp32": lambda rows: 4 * rows,
    "int8": lambda rows: rows + 2,
    "int4": lambda rows: -(-rows // 2) + 2 * -(-rows // 128),
    "mxfp4": lambda rows: -(-rows // 2) + -(-rows // 32),
    "q8_0": lambda rows: rows + 2 * -(-rows // 32),
}


def in_one_dtype(
    found: Iterator[tuple[int, Role, int, Matrix]],
    name: str,
    everything: int,
    *,
    experts_only: bool,
    wide: int = 2,
) -> int:
    """Return the bytes with the matrices in a dtype, and everything else in `wide` bytes."""
    size, rest = 0, everything
    for _, role, copies, matrix in found:
        if role == "router" or (experts_only and role != "experts"):
            continue
        size += copies * matrix.cols * BYTES[name](matrix.rows)
        rest -= copies * matrix.rows * matrix.cols
    return size + wide * rest


def check_parts(counted: Weights) -> None:
    """Every symbol that has a formula itself has the value of the part of its name, and every
    formula its value.
    """
    parts = {name: part for name, _, part in counted.parts}
    assert len(parts) == len(counted.parts)
    for figure in (counted.total, *parts.values()):
        text_of(figure)
    for symbol in counted.total.formula.symbols:
        if symbol.name in parts:
            assert symbol.value == parts[symbol.name]


# Matrices in one dtype


@each("name", BYTES)
@each("of", MODELS)
def test_matrices_have_their_own_dtype_and_the_rest_the_models(of: str, name: str) -> None:
    toy = MODELS[of]
    counted = weights(toy, weights_dtype=name)
    expected = in_one_dtype(stored_matrices(toy), name, int(params(toy).total), experts_only=False)
    assert (counted.total, counted.dtype) == (expected, name)
    check_parts(counted)
    assert {"params_on_device", "params_linear"} <= {part for part, *_ in counted.parts}


ROUTINGS: tuple[Routing, ...] = ("fewest", "all")


@each(
    ("routing", "name"), [("fewest", "fp8"), ("fewest", "int8"), ("all", "mxfp4"), ("all", "fp8")]
)
@each("of", MODELS)
def test_a_step_reads_each_layers_matrices_and_the_experts_that_tokens_pick(
    of: str, routing: Routing, name: str
) -> None:
    toy = MODELS[of]
    step = Workload.decode(3, 20, source=5 if toy.encoder else None)
    everything = int(weights_read(toy, step, routing))
    read = bytes_read(toy, step, weights_dtype=name, routing=routing)
    assert read == in_one_dtype(read_matrices(toy, routing), name, everything, experts_only=False)
    text_of(read)


ONLY_EXPERTS = model(
    layers("no MLP", 1),
    layers("dense", 1, DENSE),
    layers("experts", 2, MIXTURE),
    experts_dtype="mxfp4",
)


def test_experts_dtype_is_that_of_routed_experts_only() -> None:
    """gpt-oss has mixtures only; here are layers with a dense MLP and with none beside them."""
    everything = int(params(ONLY_EXPERTS).total)
    counted = weights(ONLY_EXPERTS, weights_dtype="mxfp4")
    assert counted.total == in_one_dtype(
        stored_matrices(ONLY_EXPERTS), "mxfp4", everything, experts_only=True
    )
    assert counted.notes == (
        "Weights: mxfp4 (OCP MXFP4, one 8-bit exponent per 32 elements) is assumed for the "
        "matrices of routed "
        "experts, bf16 for everything else.",
    )
    check_parts(counted)
    labels = {name: label for name, label, _ in counted.parts}
    assert labels["params_linear"] == "of them in matrices of routed experts"
    # another dtype is that of all matrices
    wider = weights(ONLY_EXPERTS, weights_dtype="fp8")
    assert wider.total == in_one_dtype(
        stored_matrices(ONLY_EXPERTS), "fp8", everything, experts_only=False
    )
    assert wider.notes == (
        "Weights: fp8 (1 B) is assumed for the matrices of attention and MLPs, bf16 for "
        "embedding, head, routers, "
        "norms and biases.",
    )
    for routing in ROUTINGS:
        step = Workload.decode(2, 20)
        read = bytes_read(ONLY_EXPERTS, step, weights_dtype="mxfp4", routing=routing)
        everything = int(weights_read(ONLY_EXPERTS, step, routing))
        assert read == in_one_dtype(
            read_matrices(ONLY_EXPERTS, routing), "mxfp4", everything, experts_only=True
        )
        text_of(read)


@pytest.mark.parametrize("of", MODELS)
def test_without_another_dtype_every_parameter_has_the_models(of: str) -> None:
    toy = MODELS[of]
    everything = int(params(toy).total)
    for name in (None, "bf16"):
        counted = weights(toy, weights_dtype=name)
        assert (counted.total, counted.dtype, counted.notes) == (2 * everything, "bf16", ())
        assert [part for part, *_ in counted.parts] == ["params_on_device"]
    assert weights(toy, in_dtype="fp32").total == 4 * everything
    step = Workload.decode(3, 20, source=5 if toy.encoder else None)
    for name in (None, "bf16"):
        read = bytes_read(toy, step, weights_dtype=name)
        assert (read, read.formula.text) == (2 * weights_read(toy, step), "params_read * bytes")


def test_matrices_may_be_narrower_than_a_model_in_fp32() -> None:
    """bf16 has 2 bytes for the matrices, and fp32 4 for the rest."""
    toy, step = MODELS["dense"], Workload.decode(1, 20, dtype="fp32")
    read = bytes_read(toy, step, weights_dtype="fp8")
    everything = int(weights_read(toy, step))
    assert read == in_one_dtype(read_matrices(toy), "fp8", everything, experts_only=False, wide=4)
    matrices = sum(
        copies * matrix.rows * matrix.cols for *_, copies, matrix in stored_matrices(toy)
    )
    assert (
        weights(toy, in_dtype="fp32", weights_dtype="bf16").total
        == 4 * int(params(toy).total) - 2 * matrices
    )
    assert bytes_read(toy, step, weights_dtype="bf16") == 4 * everything - 2 * matrices


def test_a_model_without_matrices_in_its_layers_has_nothing_in_another_dtype() -> None:
    """Only a mixture has matrices of routed experts."""
    toy = dataclasses.replace(MODELS["dense"], experts_dtype="mxfp4")
    assert weights(toy, weights_dtype="mxfp4").total == 2 * params(toy).total
    step = Workload.decode(1, 20)
    read = bytes_read(toy, step, weights_dtype="mxfp4")
    assert (read, read.formula.text) == (2 * weights_read(toy, step), "params_read * bytes")


def test_the_models_dtype_is_one_that_layers_compute_in() -> None:
    with pytest.raises(
        AttncalcError,
        match="int8 can only be the dtype of a cache, since its elements share scales",
    ):
        weights(MODELS["dense"], in_dtype="int8")


@pytest.mark.parametrize(
    ("name", "rows", "size"),
    # int8: an fp16 scale per output; int4: an fp16 scale per 128 inputs; q8_0 as in a cache, per 32
    [
        ("int8", 1000, 1002),
        ("int4", 1000, 500 + 2 * 8),
        ("int4", 128, 66),
        ("int4", 129, 65 + 4),
        ("q8_0", 64, 68),
    ],
)
def test_rows_of_weights_have_the_scales_of_weights(name: str, rows: int, size: int) -> None:
    assert as_weights(name).row_bytes(rows) == size
    assert as_weights(name).bits == dtype(name).bits


# Schemes of a quantization

NARROW = Scheme("int4", 4, group=16)
WIDE = Scheme("fp8", 8, block=0, scale_bits=32, targets=("*down_proj", "*k_proj", "*.1.*"))
ROUTER = Scheme("int8", 8, targets=("re:.*gate$", "re:.*router$"))
TABLES = Scheme("int8", 8, group=32, targets=("re:.*embed_tokens", "re:.*lm_head"))
HEAD = Scheme("int8", 8, group=32, targets=("re:.*lm_head",))
QUANTIZATIONS = {
    "one scheme": Quantization("gptq", (NARROW,)),
    "one matrix of a layer, and a whole layer": Quantization("gptq", (WIDE, NARROW)),
    "routers": Quantization("mlx", (ROUTER, NARROW)),
    "tables": Quantization("mlx", (TABLES, NARROW)),
    "the head": Quantization("gptq", (HEAD, NARROW)),
    "layers left out": Quantization(
        "gptq", (NARROW,), ("model.layers.0.*", "re:.*layers.2.self_attn.*")
    ),
    "only the down projections": Quantization("gptq", (WIDE,)),
}


def scheme_bytes(scheme: Scheme, rows: int, cols: int) -> int:
    """Return the bytes of a matrix, counted output by output."""
    inputs = -(-rows // scheme.group) if scheme.group else 1
    scales = inputs * (cols if scheme.block else 1)
    return -(-rows * cols * scheme.bits // 8) + -(-scales * scheme.scale_bits // 8)


def tables(of: ModelSpec) -> list[tuple[Role, Matrix]]:
    """Return the embedding, and the head if it is a matrix of its own. A later stage has the head
    only.
    """
    if not of.vocab_size:
        return []
    matrix = Matrix("lm_head", D, of.vocab_size)
    if of.first_layer:
        return [("head", matrix)]
    own = of.head is not None and not of.head.tied
    return [("embedding", matrix), ("head", matrix)] if own else [("embedding", matrix)]


@each("how", QUANTIZATIONS)
@each("of", MODELS)
def test_each_matrix_has_the_scheme_of_its_module(of: str, how: str) -> None:
    quantization = QUANTIZATIONS[how]
    toy = dataclasses.replace(MODELS[of], quantization=quantization, weights_dtype="int4")
    everything = int(params(toy).total)
    size, in_schemes = 0, 0
    matrices = [*stored_matrices(toy), *((0, role, 1, matrix) for role, matrix in tables(toy))]
    for number, role, copies, matrix in matrices:
        if scheme := quantization.scheme_of(number, role, matrix.name):
            size += copies * scheme_bytes(scheme, matrix.rows, matrix.cols)
            in_schemes += copies * matrix.rows * matrix.cols
    counted = weights(toy, weights_dtype="int4")
    assert counted.total == size + 2 * (everything - in_schemes)
    check_parts(counted)


@each("how", QUANTIZATIONS)
@each("of", MODELS)
def test_a_step_reads_each_matrix_in_its_scheme(of: str, how: str) -> None:
    quantization = QUANTIZATIONS[how]
    toy = dataclasses.replace(MODELS[of], quantization=quantization, weights_dtype="int4")
    # of an embedding only rows are read, unless it is the head
    read_tables = tables(toy)[-1:] if toy.head else []
    for routing in ROUTINGS:
        step = Workload.decode(9, 20, source=5 if toy.encoder else None)
        size, in_schemes = 0, 0
        for number, role, copies, matrix in (
            *read_matrices(toy, routing),
            *((0, role, 1, matrix) for role, matrix in read_tables),
        ):
            if scheme := quantization.scheme_of(number, role, matrix.name):
                size += copies * scheme_bytes(scheme, matrix.rows, matrix.cols)
                in_schemes += copies * matrix.rows * matrix.cols
        read = bytes_read(toy, step, weights_dtype="int4", routing=routing)
        assert read == size + 2 * (int(weights_read(toy, step, routing)) - in_schemes)
        text_of(read)


def quantized(of: str, how: str, **fields: Any) -> ModelSpec:
    return dataclasses.replace(
        MODELS[of], quantization=QUANTIZATIONS[how], weights_dtype="int4", **fields
    )


@pytest.mark.parametrize("how", QUANTIZATIONS)
def test_later_stages_know_the_numbers_of_their_layers(how: str) -> None:
    """The second stage has layers 2 and 3, and as its table the head."""
    toy = quantized("dense layers first", how)
    whole = int(weights(toy, weights_dtype="int4").total)
    first, second = (
        int(weights(stage, weights_dtype="int4").total) for stage in split_into_stages(toy, 2)
    )
    assert first + second == whole
    stage = split_into_stages(toy, 2)[1]
    assert stage.first_layer == 2
    read = bytes_read(stage, Workload.decode(1, 20), weights_dtype="int4")
    # of 6 experts 2 are read, three matrices each
    unread = sum(
        4
        * (
            scheme_bytes(scheme, matrix.rows, matrix.cols)
            if scheme
            else 2 * matrix.rows * matrix.cols
        )
        for number in (2, 3)
        for matrix in MIXTURE.expert(D)
        for scheme in [QUANTIZATIONS[how].scheme_of(number, "experts", matrix.name)]
    )
    assert read == second - unread


def test_parts_name_their_scheme_by_a_number_if_there_are_several() -> None:
    one = weights(quantized("dense", "one scheme"), weights_dtype="int4")
    assert [name for name, *_ in one.parts] == ["params_on_device", "params_int4", "bytes_int4"]
    assert one.total.formula.text == "bytes_int4 + (params - params_int4) * bytes"
    assert (one.dtype, one.notes) == (
        "int4",
        (
            "Weights as released (gptq): int4 (4-bit elements, 16 bits of scale per 16); bf16 "
            "for everything else.",
        ),
    )
    two = weights(
        quantized("dense", "one matrix of a layer, and a whole layer"), weights_dtype="int4"
    )
    assert [name for name, *_ in two.parts] == [
        "params_on_device",
        "params_int4_1",
        "bytes_int4_1",
        "params_fp8_2",
        "bytes_fp8_2",
    ]
    assert two.dtype == "int4 and fp8"
    none = dataclasses.replace(
        MODELS["dense"], quantization=Quantization("gptq", ()), weights_dtype="int4"
    )
    assert (
        weights(none, weights_dtype="int4").total,
        weights(none, weights_dtype="int4").dtype,
    ) == (2 * params(none).total, "bf16")


def test_a_head_that_is_no_lm_head_has_no_table() -> None:
    """A pooler is a matrix of its own: the vocabulary's table is the embedding."""
    toy = quantized("dense", "tables", head=Head("pooler"))
    table = scheme_bytes(TABLES, D, 101)
    plain = quantized("dense", "one scheme", head=Head("pooler"))
    saved = int(weights(plain, weights_dtype="int4").total) - int(
        weights(toy, weights_dtype="int4").total
    )
    assert saved == 2 * D * 101 - table
    # a step reads no table
    step = Workload.decode(1, 20)
    assert bytes_read(toy, step, weights_dtype="int4") == bytes_read(
        plain, step, weights_dtype="int4"
    )


def test_released_weights_are_in_the_schemes_only_in_their_own_dtype() -> None:
    toy, step = quantized("dense", "one scheme"), Workload.decode(1, 20)
    assert (
        weights(toy, weights_dtype="fp8").total
        == weights(MODELS["dense"], weights_dtype="fp8").total
    )
    assert weights(toy).total == 2 * params(toy).total
    assert bytes_read(toy, step, weights_dtype="fp8") == bytes_read(
        MODELS["dense"], step, weights_dtype="fp8"
    )
    # the dtype of experts is released too
    experts = dataclasses.replace(toy, weights_dtype=None, experts_dtype="int4")
    assert weights(experts, weights_dtype="int4").total == weights(toy, weights_dtype="int4").total


def test_a_quantization_that_is_not_read_needs_a_dtype_or_files() -> None:
    toy = dataclasses.replace(MODELS["dense"], unread_quantization="it has no bits")
    with pytest.raises(
        AttncalcError, match="the quantization of Toy cannot be read: it has no bits"
    ):
        weights(toy)
    assert (
        weights(toy, weights_dtype="fp8").total
        == weights(MODELS["dense"], weights_dtype="fp8").total
    )
    assert weights(dataclasses.replace(toy, stored=files(9_000))).total == 9_000


@pytest.mark.parametrize(
    ("schemes", "given", "multiplied"),
    [
        ((("fp8", True),), "fp8", "bf16"),
        ((("fp8", False),), "fp8", "fp8"),
        # all matrices in the dtype have to be converted, and others do not matter
        ((("fp8", True), ("fp8", False)), "fp8", "fp8"),
        ((("fp8", True), ("int4", False), ("bf16", False)), "fp8", "bf16"),
        ((("int8", True),), "int8", "bf16"),
        # int4 is multiplied by kernels of its own
        ((("int4", True),), "int4", "int4"),
        ((("int4", True),), "fp8", "fp8"),
    ],
)
def test_weights_of_8_bits_are_converted_if_activations_are_not_quantized(
    schemes: tuple[tuple[str, bool], ...], given: str, multiplied: str
) -> None:
    found = tuple(Scheme(name, dtype(name).bits, weight_only=only) for name, only in schemes)
    toy = dataclasses.replace(
        MODELS["dense"],
        quantization=Quantization("compressed-tensors", found),
        weights_dtype=schemes[0][0],
    )
    assert multiplied_as(toy, dtype("bf16"), given).name == multiplied
    assert multiplied_as(MODELS["dense"], dtype("bf16"), given).name == given
    assert multiplied_as(toy, dtype("bf16"), None).name == "bf16"


# Files


def files(size: int, name: str = "F8_E4M3", **fields: Any) -> CheckpointWeights:
    return CheckpointWeights(1, 1, (StoredDtype(name, size, size),), size, **fields)


def in_files(size: int, of: str = "dense", **fields: Any) -> ModelSpec:
    return dataclasses.replace(MODELS[of], stored=files(size, **fields))


def test_files_are_divided_over_devices_as_the_parameters_are() -> None:
    toy = in_files(100_001)
    everything = int(params(toy).total)
    whole = weights(toy)
    assert (whole.total, whole.dtype, whole.parts) == (100_001, "as stored", ())
    assert whole.notes == ("Weights: the bytes of all tensors in its safetensors files.",)
    half = toy.shard(2)
    own = int(params(half).total)
    divided = weights(half)
    assert divided.total == -(-100_001 * own // everything)
    assert divided.notes == (
        f"Weights: the bytes of its safetensors files, divided as the parameters are: {own:,} of "
        f"{everything:,} on "
        "this device.",
    )
    # two stages of two devices each: the one with more parameters
    fullest = max(int(params(stage).total) for stage in split_into_stages(half, 2))
    assert weights(half, pp=2).total == -(-100_001 * fullest // everything)
    assert weights(toy, pp=2).total == -(
        -100_001
        * max(int(params(stage).total) for stage in split_into_stages(toy, 2))
        // everything
    )
    # a part without tensors of its own
    part = split_into_stages(toy, 2)[0]
    assert weights(toy, part=part).total == -(-100_001 * int(params(part).total) // everything)
    text_of(divided.total)
    assert weights(in_files(7, kind="GGUF")).notes == (
        "Weights: the bytes of all tensors in its GGUF files.",
    )


@pytest.mark.parametrize("other", ["fp32", "bf16"])
def test_in_another_dtype_files_do_not_count(other: str) -> None:
    toy = dataclasses.replace(in_files(9_000), dtype="fp16")
    assert weights(toy, in_dtype=other).total == weights(MODELS["dense"], in_dtype=other).total
    assert weights(toy, in_dtype="fp16").total == weights(toy).total == 9_000


def test_a_part_of_a_gguf_file_has_its_own_tensors() -> None:
    toy = in_files(100_001, kind="GGUF")
    tensors = (StoredTensor("output.weight", "F16", D, 500, 0, 0),)
    part = dataclasses.replace(
        split_into_stages(toy, 2)[1], stored=files(777, kind="GGUF", contents=tensors)
    )
    counted = weights(toy, part=part)
    assert (counted.total, counted.total.formula.text, counted.dtype) == (
        777,
        "model_buffer",
        "as stored",
    )
    # in another dtype the file's sizes do not count
    assert (
        weights(toy, part=part, weights_dtype="fp8").total
        == weights(
            MODELS["dense"], part=dataclasses.replace(part, stored=None), weights_dtype="fp8"
        ).total
    )


def test_a_step_reads_the_files_in_proportion() -> None:
    """The matrices have the files' bytes, less the rest in 2 bytes; of the rest a step leaves out
    the embedding.
    """
    toy, step = MODELS["dense"], Workload.decode(1, 20)
    everything = int(params(toy).total)
    matrices = sum(
        copies * matrix.rows * matrix.cols for *_, copies, matrix in stored_matrices(toy)
    )
    rest, table = everything - matrices, D * 101
    size = matrices + 2 * rest + 1000
    read = bytes_read(dataclasses.replace(toy, stored=files(size)), step)
    assert read == size - 2 * table
    text_of(read)
    assert read.formula.text == "bytes_linear_read + (params_read - params_linear_read) * bytes"
    toy = dataclasses.replace(toy, stored=files(size))
    in_matrices = _stored_matrix_bytes(toy, weight_format(toy, "bf16", None), matrices)
    text_of(in_matrices)
    assert in_matrices.formula.text.startswith(
        "min(params_linear_read * (weights - (params - params_linear) * bytes) //"
    )
    # as many bytes as the rest alone has: files in proportion to parameters
    small = bytes_read(dataclasses.replace(toy, stored=files(2 * rest)), step)
    assert small == matrices * 2 * rest // everything + 2 * (rest - table)
    assert bytes_read(
        dataclasses.replace(toy, stored=files(2 * rest + matrices)), step
    ) == matrices + 2 * (rest - table)
    # never more than 2 bytes for each
    large = bytes_read(dataclasses.replace(toy, stored=files(10 * size)), step)
    assert large == 2 * (everything - table)
    # elements are known of files without quantization: 3 bytes for every 2 parameters, rounded down
    plain = CheckpointWeights(
        1, 1, (StoredDtype("BF16", 2 * everything, 3 * everything + 1),), 3 * everything + 1
    )
    read = bytes_read(dataclasses.replace(toy, stored=plain), step)
    assert read == (everything - table) * (3 * everything + 1) // (2 * everything)
    text_of(read)
    assert read.formula.text == "params_read * weights_stored // elements"


# What an engine holds beside the language model


VLLM = find_engine("vllm")


def engine_args(**fields: Any) -> VllmArgs:
    return VllmArgs(dtype("bf16"), dtype("bf16"), **fields)


TOWERS = (Tower("vision", 1001, 501), Tower("audio", 300, 0))


def test_towers_are_loaded_beside_the_language_model() -> None:
    """Of 1,001 parameters 501 are divided: 251 on each of two devices, beside 500. Files have them
    already.
    """
    toy = dataclasses.replace(MODELS["dense"], towers=TOWERS)
    own = 2 * int(params(MODELS["dense"]).total)
    counted = weights(toy)
    assert counted.total == own + 2 * 1001 + 2 * 300
    assert [(part.name, part.label, part.size) for part in counted.extra] == [
        ("weights_vision_tower", "vision tower", 2002),
        ("weights_audio_tower", "audio tower", 600),
    ]
    check_parts(counted)
    assert [name for name, *_ in counted.parts] == [
        "weights_model",
        "params_on_device",
        "weights_vision_tower",
        "weights_audio_tower",
    ]
    assert [part.size.formula.text for part in counted.extra] == 2 * [
        "(params_split + params_whole) * bytes"
    ]
    half = weights(toy.shard(2))
    assert [part.size for part in half.extra] == [2 * (251 + 500), 600]
    assert weights(toy, engine=find_engine("transformers")).extra == counted.extra
    assert weights(toy, engine=find_engine("llamacpp")).extra == ()  # in a file of their own
    assert weights(dataclasses.replace(toy, stored=files(9_000))).total == 9_000
    assert [part.size for part in weights(toy, in_dtype="fp32").extra] == [4004, 1200]


def with_extra(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> None:
    """Let vLLM hold 70 bytes, and nothing under another name."""

    def extra(stage: ModelSpec, args: VllmArgs, held: Any) -> list[Any]:
        seen.append(held)
        return [
            ExtraWeights("weights_copies", "copies", Quantity(70)),
            ExtraWeights("weights_nothing", "nothing", Quantity(0)),
        ]

    monkeypatch.setattr(find_engine("vllm"), "extra_weights", extra)


def test_an_engines_extra_weights_need_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    with_extra(monkeypatch, seen)
    toy = dataclasses.replace(MODELS["dense"], towers=TOWERS[1:])
    own = 2 * int(params(toy).total)
    assert weights(toy, engine=VLLM).total == own + 600
    counted = weights(toy, engine=VLLM, args=engine_args())
    assert counted.total == own + 600 + 70
    assert [part.name for part in counted.extra] == ["weights_audio_tower", "weights_copies"]
    check_parts(counted)
    assert weights(toy, args=engine_args()).total == own + 600
    assert len(seen) == 1
    # files have the towers, and not the copies
    stored = weights(dataclasses.replace(toy, stored=files(9_000)), engine=VLLM, args=engine_args())
    assert (stored.total, [part.name for part in stored.extra]) == (9_070, ["weights_copies"])


def test_extra_weights_are_computed_from_how_the_engine_holds_each_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    with_extra(monkeypatch, seen)

    def bits(toy: ModelSpec, name: str | None) -> tuple[str, list[int]]:
        weights(toy, engine=VLLM, args=engine_args(), weights_dtype=name)
        held = seen[-1]
        assert held.dtype.name == "bf16"
        return held.experts_dtype, [
            held.bits(layer, role, matrix)
            for layer, role, matrix in (
                (0, "attention", "W_q"),
                (0, "experts", "W_up"),
                (0, "experts", "W_down"),
                (1, "experts", "W_up"),
            )
        ]

    assert bits(MODELS["dense"], None) == ("bf16", [16, 16, 16, 16])
    assert bits(MODELS["dense"], "int4") == ("int4", [4, 4, 4, 4])
    assert bits(ONLY_EXPERTS, "mxfp4") == ("mxfp4", [16, 4, 4, 4])
    assert bits(ONLY_EXPERTS, "fp8") == ("fp8", [8, 8, 8, 8])
    # a scheme has its own bits: down and layer 1 in fp8, and 3 bits of int3 for the rest
    three = NARROW._replace(bits=3)
    schemes = Quantization("gptq", (WIDE, three))
    released = dataclasses.replace(
        MODELS["dense layers first"], quantization=schemes, weights_dtype="int4"
    )
    assert bits(released, "int4") == ("int4", [3, 3, 8, 8])
    assert bits(released, "fp8") == ("fp8", [8, 8, 8, 8])
    left_out = dataclasses.replace(
        released, quantization=QUANTIZATIONS["only the down projections"]
    )
    assert bits(left_out, "int4") == ("int4", [16, 16, 8, 8])
    # files have the matrices in the released dtype
    stored = dataclasses.replace(released, stored=files(9_000))
    assert bits(stored, None) == ("int4", [3, 3, 8, 8])
    experts = dataclasses.replace(ONLY_EXPERTS, stored=files(9_000))
    assert bits(experts, None) == ("mxfp4", [16, 4, 4, 4])


def notes(toy: ModelSpec, **options: Any) -> tuple[str, ...]:
    return weights(toy, **options).notes


def test_a_cast_of_fp32_is_noted() -> None:
    cast = "Weights are released in fp32; vLLM holds them in fp16."
    wide = dataclasses.replace(MODELS["dense"], dtype="fp32")
    assert notes(wide, in_dtype="fp16", engine=VLLM) == (cast,)
    assert notes(wide, in_dtype="fp16") == ()  # no engine casts them
    assert notes(wide, engine=VLLM) == notes(MODELS["dense"], in_dtype="fp16", engine=VLLM) == ()


def test_a_checkpoint_that_the_engine_does_not_load_has_a_warning() -> None:
    """vLLM never loaded MLX's checkpoints, and has no HQQ from 0.14 on (layers/quantization)."""

    def warned(method: str, name: str | None, version: str | None = None, **fields: Any) -> bool:
        schemes = Quantization(method, (NARROW,))
        toy = dataclasses.replace(
            MODELS["dense"], quantization=schemes, weights_dtype="int4", **fields
        )
        args = engine_args(engine_version=version) if version else None
        found = notes(toy, weights_dtype=name, engine=VLLM, args=args)
        text = (
            f"warning: vLLM does not load {method} checkpoints; the figures only show their size."
        )
        assert set(found) <= {text, *notes(toy, weights_dtype=name)}
        return text in found

    assert warned("mlx", "int4")
    assert not warned("gptq", "int4")
    assert not warned("mlx", "fp8")  # weights in another dtype are another checkpoint
    assert warned("mlx", None, stored=files(9_000))
    assert not warned("mlx", None)
    assert (warned("hqq", "int4", "0.13.0"), warned("hqq", "int4", "0.14.0")) == (False, True)
    plain = dataclasses.replace(MODELS["dense"], weights_dtype="int4")
    assert not any(
        note.startswith("warning") for note in notes(plain, weights_dtype="int4", engine=VLLM)
    )
    mlx = dataclasses.replace(plain, quantization=Quantization("mlx", (NARROW,)))
    assert not any(note.startswith("warning") for note in notes(mlx, weights_dtype="int4"))


def test_a_draft_model_is_beside_the_weights() -> None:
    draft = DraftModel("EAGLE", 5_000, ())
    plain = weights(MODELS["dense"], weights_dtype="fp8")
    both = weights(MODELS["dense"], weights_dtype="fp8", draft=draft)
    assert both.total == plain.total + 5_000
    assert both.extra == (ExtraWeights("weights_draft", "drafter, EAGLE", Quantity(5_000)),)
    assert [name for name, *_ in both.parts] == [
        "weights_model",
        *(name for name, *_ in plain.parts),
        "weights_draft",
    ]
    check_parts(both)
    # beside towers the language model's weights stay as they are
    with_tower = dataclasses.replace(MODELS["dense"], towers=TOWERS[1:])
    three = weights(with_tower, weights_dtype="fp8", draft=draft)
    assert three.total == plain.total + 600 + 5_000
    assert [name for name, *_ in three.parts] == [
        "weights_model",
        "params_on_device",
        "params_linear",
        "weights_audio_tower",
        "weights_draft",
    ]
    assert {name: part for name, _, part in three.parts}["weights_model"] == plain.total
    check_parts(three)


def test_formulas_of_several_groups_name_what_they_add() -> None:
    """Two groups have matrices: each is a symbol with its own meaning."""
    counted = weights(MODELS["dense layers first"], weights_dtype="int8")
    parts = {name: part for name, _, part in counted.parts}
    meanings = {
        name: [symbol.meaning for symbol in parts[name].formula.symbols]
        for name in ("params_linear", "bytes_linear")
    }
    assert meanings == {
        f"{what}_linear": [
            f"{what} of matrices of attention and MLPs, {group}" for group in ("dense", "experts")
        ]
        for what in ("params", "bytes")
    }
