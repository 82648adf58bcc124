"""The figures of `attncalc flops`."""

from ...cost.flops import Flops
from ...model import ModelSpec
from ...quantity import named, ratio
from ...show.figures import QUOTIENT, SUM, FigureRow, FigureRows, Given, ratio_row
from ...show.layers import attention_source
from ...show.report import Figure
from ...units import FLOP, NO_UNIT, TOKENS

KORTHIKANTI = "Korthikanti et al. 2022, arXiv:2205.05198, section 5"
MATMUL = "2 FLOP per multiply-add: a matrix of n weights costs 2 n FLOP per token"
_ONLY_TRAINING = "if the phase is not train, or the model has an encoder beside its decoder"
_CONTEXT = "at twice the context, relative to this context"
FIGURES = FigureRows(
    flops_total=FigureRow("total", FLOP, "the whole step, with exact scores", title="FLOPs"),
    flops_attention_projections=FigureRow(
        "attention projections", FLOP, "projections of q, k, v and the output"
    ),
    flops_attention_scores=FigureRow(
        "attention scores, exact for the mask", FLOP, "QK and PV for the pairs that the mask allows"
    ),
    flops_attention_scores_dense=FigureRow(
        "attention scores, dense", FLOP, "QK and PV for all pairs"
    ),
    flops_attention_qk_dense=FigureRow("of which QK, dense", FLOP, "QK alone, for all pairs"),
    flops_mlp=FigureRow("MLP", FLOP, "the MLPs"),
    flops_head=FigureRow("head", FLOP, "the lm head"),
    flops_total_dense=FigureRow(
        "total with dense scores", FLOP, "the whole step, with dense scores"
    ),
    flops_recomputation=FigureRow(
        "recomputation",
        FLOP,
        "what '--recompute' adds: a second forward pass of layers, of some matmuls, or of QK and "
        "PV",
    ),
    flops_6nd=FigureRow(
        "6 N D",
        FLOP,
        "6 x the parameters that a token uses, with the embedding, x tokens",
        _ONLY_TRAINING,
    ),
    flops_total_ratio_6nd=ratio_row(
        "total / 6 N D", "flops_total / flops_6nd", _ONLY_TRAINING, source=QUOTIENT
    ),
)
# {name of a figure: what scores overtake, in words, and the parts of it}.
OVERTAKEN = {
    "scores_overtake_context": ("projections", ["attention_projections"]),
    "scores_overtake_mlp_context": ("the MLP", ["mlp"]),
    "scores_overtake_both_context": ("projections and MLP", ["attention_projections", "mlp"]),
}
GROWTH = FigureRows(
    growth_total=ratio_row(
        "twice the context: total FLOP", f"flops_total {_CONTEXT}", source=QUOTIENT
    ),
    growth_attention_scores=ratio_row(
        "twice the context: attention scores", f"flops_attention_scores {_CONTEXT}", source=QUOTIENT
    ),
    **{
        name: FigureRow(
            f"scores cost more than {words} from a context of",
            TOKENS,
            f"the shortest context at which scores cost more than {words}",
            "if there is none",
            source="the smallest context for which the condition holds",
        )
        for name, (words, _) in OVERTAKEN.items()
    },
)
_STEPS = "its sequential operations"
_PATH = "its maximum path length"
# A layer of the model, and those of Table 1 of Vaswani et al. 2017.
COMPLEXITY = FigureRows(
    attention_flops_per_layer=FigureRow(
        "one attention layer of the model",
        FLOP,
        "one attention layer of the model: projections and exact scores",
        source=SUM,
    ),
    attention_projections_flops_per_layer=FigureRow(
        "its projections", FLOP, "its projections", source=MATMUL
    ),
    attention_scores_flops_per_layer=FigureRow(
        "its scores, exact for the mask",
        FLOP,
        "its scores, for the pairs that the mask allows",
        source=MATMUL,
    ),
    self_attention_flops_per_layer=FigureRow(
        "self-attention, n^2 d",
        FLOP,
        "self-attention of the same width, n^2 d in Vaswani et al. 2017",
    ),
    recurrent_flops_per_layer=FigureRow(
        "recurrent layer, n d^2", FLOP, "a recurrent layer of the same width, n d^2 there"
    ),
    convolutional_flops_per_layer=FigureRow(
        "convolutional layer, k n d^2",
        FLOP,
        "a convolutional layer of the same width, k n d^2 there",
    ),
    restricted_flops_per_layer=FigureRow(
        "restricted self-attention, r n d", FLOP, "self-attention to a neighborhood, r n d there"
    ),
    attention_sequential_steps=FigureRow(
        _STEPS, NO_UNIT, "sequential operations of one attention layer"
    ),
    attention_longest_path=FigureRow(
        _PATH, NO_UNIT, "maximum path length of one attention layer", "if information never arrives"
    ),
    recurrent_sequential_steps=FigureRow(
        _STEPS, NO_UNIT, "sequential operations of the recurrent layer"
    ),
    recurrent_longest_path=FigureRow(_PATH, NO_UNIT, "maximum path length of the recurrent layer"),
    convolutional_kernel=FigureRow(
        "width k of the convolution", NO_UNIT, "width k of the convolution, 3"
    ),
    convolutional_longest_path=FigureRow(
        _PATH, NO_UNIT, "maximum path length of the convolutional layer"
    ),
    restricted_neighborhood=FigureRow(
        "tokens r that restricted self-attention sees",
        NO_UNIT,
        "tokens r of the neighborhood: the model's narrowest window or chunk, or 128; at most n",
    ),
    restricted_longest_path=FigureRow(
        _PATH, NO_UNIT, "maximum path length of self-attention to a neighborhood"
    ),
)
OF_LAYERS = FigureRows(
    flops_total=FigureRow("all", FLOP, "all layers of this kind, with exact scores", source=SUM),
    flops_attention_projections=FIGURES["flops_attention_projections"]._replace(
        meaning="their projections of q, k, v and the output"
    ),
    flops_attention_scores=FIGURES["flops_attention_scores"]._replace(
        meaning="their QK and PV for the pairs that the mask allows"
    ),
    flops_attention_scores_dense=FIGURES["flops_attention_scores_dense"]._replace(
        meaning="their QK and PV for all pairs"
    ),
    flops_mlp=FIGURES["flops_mlp"]._replace(meaning="their MLPs"),
    flops_recomputation=FIGURES["flops_recomputation"]._replace(
        meaning="what '--recompute' adds to them"
    ),
)


def flops_figures(model: ModelSpec, counted: Flops) -> tuple[Figure, ...]:
    """Return the FLOPs by part, whose names scripts rely on."""
    rule = f"; {counted.rule}" if counted.rule else ""
    matmul = MATMUL + rule
    return FIGURES.filled(
        attention_source(model) + rule,
        flops_total=Given(counted.total, source=SUM),
        flops_total_dense=Given(counted.total_dense, source=SUM),
        flops_attention_projections=Given(counted.projections, source=matmul),
        flops_attention_scores=counted.scores,
        flops_attention_scores_dense=counted.scores_dense,
        flops_attention_qk_dense=counted.qk_dense,
        flops_mlp=Given(counted.mlp, source=matmul),
        flops_head=Given(counted.head, source=matmul),
        flops_recomputation=Given(counted.recomputation, source=KORTHIKANTI),
        flops_6nd=Given(counted.six_n_d, source="Kaplan et al. 2020, arXiv:2001.08361, 2.1"),
        flops_total_ratio_6nd=counted.six_n_d
        and ratio(
            named(counted.total, "flops_total", "FLOP of the step"),
            named(counted.six_n_d, "flops_6nd", "FLOP by the estimate"),
        ),
    )
