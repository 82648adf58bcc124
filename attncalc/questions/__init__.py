"""The questions that attncalc answers: a folder each, imported when its question is asked.

The modules beside the folders are what questions share: options, how they become a model, a
workload or a call, and what results have in common.
"""

# {question: its help}, in the order in which they are listed.
COMMANDS = {
    "kv": "KV cache: total, per sequence and per token.",
    "params": "Parameters: attention by matrix, MLP, embedding, total.",
    "flops": "FLOPs of a prefill, a decode step or a training step.",
    "memory": "Activation memory: score matrix and peak, by kernel.",
    "compare": "One model with MHA, GQA, MQA and MLA; or several models.",
    "fit": "How much GPU memory it needs, and what fits on which GPUs.",
    "train": "Whether training fits: memory per GPU by part, FLOPs, days.",
    "plan": "From users to GPUs: how many, of which kind, and at what price.",
    "sweep": "A row per combination of models, contexts, GPUs and other options.",
    "verify": "Real torch layers, measured and compared with the formulas.",
    "gpus": "Known GPUs: memory, bandwidth, FLOP/s.",
    "presets": "Built-in models: list, show or add one.",
    "explain": "A term of the field on one screen, with an example.",
    "schema": "JSON Schemas of the commands' JSON, and of your own files.",
}
