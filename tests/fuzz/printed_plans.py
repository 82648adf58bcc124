"""A row of `plan` is the question that its launch command is: `fit` answers both alike."""

import shlex
from random import Random
from typing import Any

from attncalc.errors import AttncalcError
from attncalc.questions.plan.answer import read_plan
from attncalc.questions.plan.figures import row_facts, row_figures
from attncalc.serving.answer import Answer
from attncalc.serving.launch import launch_command

from .printed_commands import GPUS, USERS, Values, models, request_of, words_of


def check_plan(random: Random) -> bool:
    """Check that a row of a plan is what `fit` answers to its command. Return whether there is a
    row.
    """
    engine = random.choice(("vllm", "vllm", "sglang", "llamacpp"))
    gpu = random.choice(GPUS[engine])
    options: dict[str, Any] = {
        "engine": engine,
        "gpu": gpu,
        "users": 100,
        "prompt": random.choice((500, 3000)),
        "output": 500,
        "all": True,
    }
    of_plan: Values = {
        "kv_dtype": ("fp8",),
        "weights_dtype": ("fp8", "all", "int4"),
        "shared_prefix": (300,),
    }
    options |= {
        name: random.choice(of_plan[name])
        for name in random.sample([*of_plan], random.randrange(2))
    }
    if engine != "llamacpp":
        options["tp"] = random.choice((1, 2, 4, 8))
    if engine == "llamacpp":
        options.pop("weights_dtype", None)
    model = random.choice(models())
    try:
        plan = read_plan([model], options).plan()
    except AttncalcError:
        return False
    for row in random.sample(plan.rows, min(2, len(plan.rows))):
        facts = row_facts(row)
        figures = {figure.name: figure.value for figure in row_figures(row)}
        if not facts["launch_command"]:
            continue
        users: dict[str, Any] = {name: options[name] for name in USERS if name in options}
        before = ["--gpu", gpu, *words_of(users)]
        if facts["checkpoint"]:
            before = [model, "--weights-dtype", facts["weights_dtype"], *before]
        if row.candidate.resolved.whole_layers:
            before += ["--gpus", str(row.candidate.split.gpus)]
        command = random.choice(facts["launch_command"].splitlines())  # of any node
        line = [*before, "--", *shlex.split(command)]
        answer = Answer.to(request_of(line))
        again = {
            "verdict": answer.result.verdict,
            "concurrent_average": answer.users and answer.users.average,
            "concurrent_worst": answer.users and answer.users.worst,
            "launch_command": launch_command(answer.resolved),
        }
        first = {name: facts[name] if name in facts else figures[name] for name in again}
        assert again == first, f"plan {model} {options}\nfit {shlex.join(line)}\n{first}\n{again}"
    return bool(plan.rows)
