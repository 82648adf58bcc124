"""The questions that attncalc answers: a folder each, imported when its question is asked.

The modules beside the folders are what questions share: options, how they become a model, a
workload or a call, and what results have in common.
"""

from ..records import NamedTuple


class Listed(NamedTuple):
    """A question in the list."""

    help: str
    # whether a command of another program, such as one that starts a server, is this question: its
    # folder then has a module `pasted`
    pasted: bool = False


# {question: its line}, in the order in which they are listed.
QUESTIONS = {
    "kv": Listed("KV cache: total, per sequence and per token."),
    "params": Listed("Parameters: attention by matrix, MLP, embedding, total."),
    "flops": Listed("FLOPs of a prefill, a decode step or a training step."),
    "memory": Listed("Activation memory: score matrix and peak, by kernel."),
    "compare": Listed("One model with MHA, GQA, MQA and MLA; or several models."),
    "fit": Listed("How much GPU memory it needs, and what fits on which GPUs.", pasted=True),
    "train": Listed("Whether training fits: memory per GPU by part, FLOPs, days.", pasted=True),
    "plan": Listed("From users to GPUs: how many, of which kind, and at what price."),
    "sweep": Listed("A row per combination of models, contexts, GPUs and other options."),
    "verify": Listed("Real torch layers, measured and compared with the formulas."),
    "gpus": Listed("Known GPUs: memory, bandwidth, FLOP/s."),
    "presets": Listed("Built-in models: list, show or add one."),
    "explain": Listed("A term of the field on one screen, with an example."),
    "schema": Listed("JSON Schemas of the commands' JSON, and of your own files."),
}
