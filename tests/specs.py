"""Hypothesis strategies for small models, attention kinds and spans."""

from hypothesis import strategies as st

from attncalc import Chunked, Full, Grouped, Head, Latent, Layers, Mlp, ModelSpec, Sliding, Stack

SPANS = st.one_of(
    st.just(Full()), st.builds(Sliding, st.integers(1, 64)), st.builds(Chunked, st.integers(1, 64))
)


@st.composite
def grouped(draw: st.DrawFn) -> Grouped:
    kv, share = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3]))
    d_v = draw(st.sampled_from([None, 4, 24]))
    return Grouped(kv * share, kv, draw(st.sampled_from([8, 16, 40])), d_v, span=draw(SPANS))


@st.composite
def latent(draw: st.DrawFn) -> Latent:
    q = draw(st.sampled_from([None, 12]))
    return Latent(draw(st.sampled_from([1, 4])), 16, 8, 4, 8, q_lora_rank=q, span=draw(SPANS))


KINDS = st.one_of(grouped(), latent())


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    """Draw a small model with one to three kinds of layers."""
    groups = tuple(
        Layers(
            f"kind{i}",
            draw(st.integers(1, 3)),
            attention=kind,
            mlp=draw(st.sampled_from([None, Mlp(24)])),
        )
        for i, kind in enumerate(draw(st.lists(KINDS, min_size=1, max_size=3)))
    )
    return ModelSpec("m", "m", (Stack("decoder", groups, 32),), vocab_size=11, head=Head("lm"))


CONTEXTS = st.integers(1, 200)
