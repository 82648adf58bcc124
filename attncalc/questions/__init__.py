"""The questions that attncalc answers: a folder each, imported when its question is asked.

Each folder declares its question in its `__init__.py` (question.py). The modules beside the folders
are what questions share: options, how they become a model, a workload or a call, and what results
have in common.
"""

from ..records import NamedTuple


class Listed(NamedTuple):
    """A question in the list: what is asked of all questions, without importing any."""

    help: str
    # its functions of `attncalc` in Python, each as "module.function" of its folder; the first one
    # asks the question
    calls: tuple[str, ...] = ()
    # its place on the page's form, counted from 1; 0 if it is not there
    on_page: int = 0
    # whether a command of another program, such as one that starts a server, is this question: its
    # folder then has a module `pasted`
    pasted: bool = False
    # whether a sweep can have rows of it, with a flag of its name
    swept: bool = False

    @property
    def function(self) -> str:
        """The function in Python that asks the question; '' without one."""
        if not self.calls:
            return ""
        return self.calls[0].rpartition(".")[2]


# {question: its line}, in the order in which they are listed.
QUESTIONS = {
    "kv": Listed(
        "KV cache: total, per sequence and per token.", calls=("answer.kv_cache",), on_page=2
    ),
    "params": Listed(
        "Parameters: attention by matrix, MLP, embedding, total.", calls=("answer.params",)
    ),
    "flops": Listed(
        "FLOPs of a prefill, a decode step or a training step.",
        calls=("answer.flops", "answer.growth", "answer.crossover"),
    ),
    "memory": Listed(
        "Activation memory: score matrix and peak, by kernel.", calls=("answer.activations",)
    ),
    "compare": Listed(
        "One model with MHA, GQA, MQA and MLA; or several models.",
        calls=("answer.compare", "intensity.decode_intensity"),
        on_page=3,
    ),
    "fit": Listed(
        "How much GPU memory it needs, and what fits on which GPUs.",
        calls=("answer.fit", "answer.roofline", "answer.users", "vram.vram", "what_fits.what_fits"),
        on_page=1,
        pasted=True,
    ),
    "train": Listed(
        "Whether training fits: memory per GPU by part, FLOPs, days.",
        calls=("answer.train",),
        on_page=5,
        pasted=True,
        swept=True,
    ),
    "plan": Listed(
        "From users to GPUs: how many, of which kind, and at what price.",
        calls=("answer.plan",),
        on_page=4,
    ),
    "sweep": Listed(
        "A row per combination of models, contexts, GPUs and other options.", calls=("call.sweep",)
    ),
    "verify": Listed("Real torch layers, measured and compared with the formulas."),
    "gpus": Listed("Known GPUs: memory, bandwidth, FLOP/s."),
    "presets": Listed("Built-in models: list, show or add one."),
    "explain": Listed("A term of the field on one screen, with an example."),
    "schema": Listed("JSON Schemas of the commands' JSON, and of your own files."),
}


def homes() -> dict[str, str]:
    """Return {function in Python: the module of the package that has it}, the first ones first."""
    found: dict[str, str] = {}
    for question, listed in QUESTIONS.items():
        for call in listed.calls:
            module, _, name = call.partition(".")
            found[name] = f"questions.{question}.{module}"
    return found
