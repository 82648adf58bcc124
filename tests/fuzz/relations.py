"""How the answer of a case relates to those of similar cases: other formats, larger inputs, limits,
shards.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from .case import WRITERS, Case, Result, run_case
from .damage import quoted
from .oracles import check_json, check_result, figures

Data = dict[str, Any]
Relation = Callable[[Case, Result, Data], None]
# {command: its figures that never become smaller with a larger batch or a longer context}.
SIZES = {
    "kv": ("kv_cache", "kv_cache_per_sequence", "kv_cache_all_devices"),
    "flops": ("flops_total", "flops_total_dense", "flops_attention_scores", "flops_mlp"),
    "memory": ("score_matrix", "peak_math", "peak_flash"),
    "fit": ("kv_needed", "kv_bytes_per_sequence"),
}
# Figures of one sequence, which a larger batch need not enlarge.
NEEDS_BATCH = {"kv_cache_per_sequence", "kv_bytes_per_sequence"}
# Figures of `fit` that never become smaller with more memory.
LIMITS = ("kv_tokens", "max_context", "max_batch", "kv_blocks")
EXACT = re.compile(r"(\d{1,3}(?:,\d{3})+) (?:B|FLOP)(?![\w/])")
NUMBER = re.compile(r"\d[\d,.]*")


def check_relations(case: Case, result: Result, relations: Sequence[Relation]) -> None:
    """Raise AssertionError if the answer contradicts that of a similar case.

    Args:
        case: A case that was answered.
        result: Its answer.
        relations: The relations to check; without any, the answer in JSON is.
    """
    asked = case
    arguments = tuple(argument for argument in case.arguments if argument != "--quiet")
    case = case._replace(arguments=arguments, environment=_quiet(case), terminal=False)
    if (
        case.arguments[:1] in (("verify",), ("presets",), ("gpus",), ("sweep",), ())
        or result.code > 1
    ):
        return
    # which is text, with --json too
    if case.arguments[0] == "help" or {"--help", "-h"} & {*case.arguments}:
        return
    as_json = case._replace(arguments=(*_without_output(case.arguments), "--json"))
    answer = result
    if as_json != asked:
        answer = run_case(as_json)
        check_result(as_json, answer)
    if answer.code > 1:
        return
    data = json.loads(answer.out)
    for relation in relations:
        # of no one GPU
        if relation in _OF_FORMATS or not re.match(r"attncalc\.(vram|what_fits)/", data["schema"]):
            relation(as_json, answer, data)


def _quiet(case: Case) -> dict[str, str]:
    kept = ("HF_HOME", "HF_HUB_CACHE")
    return {name: value for name, value in case.environment.items() if name in kept}


def _without_output(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line without the options that choose the output."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("--format", *WRITERS):
            skip = True
        elif word not in ("--json", "--explain", "--force"):
            kept.append(word)
    return tuple(kept)


def _with(case: Case, names: tuple[str, ...], value: object) -> Case:
    """Return the case with an option set, under the first of its names."""
    words = list(case.arguments)
    for i, word in enumerate(words):
        if word in names and i + 1 < len(words):
            del words[i : i + 2]
            break
    return case._replace(arguments=(*words, names[0], str(value)))


def _has(case: Case, *names: str) -> bool:
    return any(word in names for word in case.arguments)


def _answer(case: Case) -> tuple[Result, Data]:
    result = run_case(case)
    check_result(case, result)
    return result, json.loads(result.out) if result.code < 2 else {}


def _values(data: Data) -> dict[str, Any]:
    return {figure["name"]: figure["value"] for figure in data.get("results", ())}


def same_twice(case: Case, result: Result, data: Data) -> None:
    """The same command gives the same answer: nothing is left over from the commands before it."""
    assert run_case(case) == result, case.arguments


def csv_equals_json(case: Case, result: Result, data: Data) -> None:
    """CSV has the figures of JSON, each once."""
    if data.get("checks"):
        return
    answer = run_case(case._replace(arguments=(*case.arguments[:-1], "--format", "csv")))
    assert answer.code == result.code, answer
    columns = ("name", "value", "unit", "formula", "substituted")
    table = csv.DictReader(io.StringIO(answer.out))
    if "value" not in (table.fieldnames or ()):  # a row per variant, as of `compare`
        return
    rows = {tuple(row[column] for column in columns) for row in table}
    expected = {
        tuple("" if figure[column] is None else str(figure[column]) for column in columns)
        for figure in figures(data)
    }
    assert rows == expected, rows ^ expected


def screen_equals_json(case: Case, result: Result, data: Data) -> None:
    """Every exact figure on the screen is one of JSON, and the first one of JSON is on the
    screen.
    """
    command = case.arguments[0]
    if command not in ("kv", "flops", "params", "memory"):
        return
    answer = run_case(case._replace(arguments=case.arguments[:-1]))
    assert answer.code == result.code, answer
    shown = {int(match.replace(",", "")) for match in EXACT.findall(_flat(answer.out))}
    known = {figure["value"] for figure in figures(data)}
    known |= {figure["value"] * data["model"]["tp"] for figure in figures(data) if figure["value"]}
    assert shown <= known, (case.arguments, shown - known)
    first = data["results"][0]["value"]
    assert f"{first:,}" in answer.out, (case.arguments, first)


def explanation_equals_json(case: Case, result: Result, data: Data) -> None:
    """--explain shows the value of every figure of JSON that has symbols, if its formula is more
    than one.
    """
    full = ["--full"] if case.arguments[0] == "flops" else []  # whose Table 1 is shown on demand
    explained = case._replace(arguments=(*case.arguments[:-1], "--explain", *full))
    answer = run_case(explained)
    check_result(explained, answer)
    assert answer.code == result.code, answer
    if data.get("checks"):
        return
    text = _flat(answer.out)
    if case.arguments[0] == "flops" and len(data.get("layers", [])) == 1:
        # The parts of the only group of layers are those of the model.
        data = {**data, "layers": []}
    for figure in figures(data):
        is_shown = figure["symbols"] and not figure["formula"].isidentifier()
        if (
            is_shown
            and type(figure["value"]) is int
            and figure["unit"] in ("B", "FLOP", "parameters")
        ):
            assert f"= {figure['value']:,}" in text, (case.arguments, figure)


def markdown_equals_screen(case: Case, result: Result, data: Data) -> None:
    """Markdown has the numbers of the screen."""
    if case.arguments[0] not in ("kv", "params", "flops", "memory", "compare"):
        return
    # which repeats a table's title
    arguments = tuple(one for one in case.arguments[:-1] if one != "--plain")
    screen = run_case(case._replace(arguments=arguments)).out
    markdown = run_case(case._replace(arguments=(*arguments, "--format", "markdown"))).out
    assert _numbers(screen) == _numbers(markdown), case.arguments


def _flat(text: str) -> str:
    return " ".join(text.split())


def _numbers(text: str) -> list[str]:
    """Return the numbers of a text in order of size, without Markdown's escapes."""
    plain = re.sub(r"&[a-z]+;|\\(?=[^\w\s])", "", text)
    return sorted(number.rstrip(".,") for number in NUMBER.findall(plain))


def larger_batch(case: Case, result: Result, data: Data) -> None:
    """No figure of a size becomes smaller with a larger batch; `fit` does not begin to fit."""
    _check_larger(case, data, ("-b", "--batch"), data["workload"].get("batch"), NEEDS_BATCH)


def longer_context(case: Case, result: Result, data: Data) -> None:
    """No figure of a size becomes smaller with a longer context; `fit` does not begin to fit.

    The math kernel is an exception. Beyond a window it gets a mask of 1 byte per pair and makes a
    bias of 2 bytes of it. Up to the window it makes a mask of 4 bytes itself.
    """
    if not _has(case, "--past", "auto", "-1"):
        context = data["workload"].get("context")
        _check_larger(case, data, ("-c", "--context", "--max-model-len"), context, {"peak_math"})


def _check_larger(
    case: Case, data: Data, names: tuple[str, ...], value: Any, except_for: set[str]
) -> None:
    command = case.arguments[0]
    if (
        command not in SIZES
        or not value
        or _has(case, "--lengths", "--log", "--vllm-log", "--prompt", "--input-len")
    ):
        return
    for larger in (value + 1, 2 * value):
        result, changed = _answer(_with(case, names, larger))
        if result.code > 1:  # the context is longer than the engine or the model allows
            return
        before, after = _values(data), _values(changed)
        for name in set(SIZES[command]) - except_for:
            if before.get(name) is not None and after.get(name) is not None:
                assert after[name] >= before[name], (
                    case.arguments,
                    name,
                    value,
                    larger,
                    before[name],
                    after[name],
                )
        if command == "fit" and not _is_refused(data) and data["verdict"] == "does_not_fit":
            assert changed["verdict"] != "fits", (case.arguments, value, larger)


def more_memory(case: Case, result: Result, data: Data) -> None:
    """`fit` holds no fewer tokens and sequences with more memory for the cache."""
    memory = _values(data).get("kv_memory")
    if not _has(case, "--kv-memory", "--kv-cache-memory-bytes") or not memory:
        return
    _, changed = _answer(
        _with(case, ("--kv-memory", "--kv-cache-memory-bytes"), memory + memory // 3 + 1)
    )
    before, after = _values(data), _values(changed)
    for name in LIMITS:
        if before.get(name) is not None and after.get(name) is not None:
            assert after[name] >= before[name], (case.arguments, name)
    assert (data["verdict"], changed.get("verdict")) != ("fits", "does_not_fit"), case.arguments


def limits_hold(case: Case, result: Result, data: Data) -> None:
    """`fit`'s longest context and largest batch fit, and one more does not."""
    if (
        case.arguments[0] != "fit"
        or _has(case, "--log", "--vllm-log", "all", "auto", "-1")
        or _is_refused(data)
    ):
        return
    if data["engine"] == "vllm" and not _has(case, "--allow-long-max-model-len"):
        case = case._replace(arguments=(*case.arguments, "--allow-long-max-model-len"))
    of_context = ("-c", "--context", "--max-model-len")
    if not _has(case, *of_context):  # llama.cpp's is the longest for the batch
        case = case._replace(arguments=(*case.arguments, "-c", str(data["workload"]["context"])))
    for name, options in (("max_context", of_context), ("max_batch", ("-b", "--batch"))):
        # -b is of all replicas
        most = (_values(data).get(name) or 0) * (data["dp"] if name == "max_batch" else 1)
        # the memory may hold more
        is_own = name == "max_context" and most == data["model"]["max_context"]
        for number, wrong in (
            ((most, "does_not_fit"), (most + 1, "fits"))[: 1 if is_own else 2] if most else ()
        ):
            answer, changed = _answer(_with(case, options, number))
            if answer.code > 1 or _is_refused(changed):
                break
            assert changed["verdict"] != wrong, (case.arguments, name, number, changed["verdict"])


def _is_refused(data: Data) -> bool:
    """Whether the engine does not start, for a reason other than memory."""
    return bool(data["summary"].startswith("DOES NOT START"))


def fewest_gpus_hold(case: Case, result: Result, data: Data) -> None:
    """`fit`'s fewest GPUs hold the model, and fewer do not, unless their number divides no heads:
    --pp is chosen.
    """
    fewest = _values(data).get("min_gpus")
    if (
        case.arguments[0] != "fit"
        or not fewest
        or _has(case, "--log", "--vllm-log", "all", "auto", "-1")
    ):
        return
    taken = (
        "--gpus",
        "--tp",
        "--pp",
        "--dp",
        "--dcp",
        "--attn-dp",
        "--enable-dp-attention",
        "--tensor-split",
    )
    names = {name for name in case.arguments if name.startswith("-")}
    if (
        any(name.startswith(taken) or "parallel" in name or "-size" in name for name in names)
        or data["gpus"] != 1
    ):
        return
    if _is_refused(data):
        return
    for gpus, wrong in ((fewest, "does_not_fit"), (fewest - 1, "fits")):
        if gpus:
            answer, changed = _answer(_with(case, ("--gpus",), gpus))
            if answer.code < 2 and changed["pp"] == 1:
                assert changed["verdict"] != wrong, (case.arguments, gpus, changed["verdict"])


def shards_sum_to_the_whole(case: Case, result: Result, data: Data) -> None:
    """Two devices hold at least the whole, and each of them no more than the whole."""
    totals = {"kv": "kv_cache", "params": "params_total", "flops": "flops_total"}
    names = ("--tp", "--tensor-parallel-size")
    if case.arguments[0] not in totals or _has(case, *names):
        return
    answer, changed = _answer(_with(case, names, 2))
    if answer.code > 1:
        return
    name = totals[case.arguments[0]]
    whole, part = _values(data)[name], _values(changed)[name]
    assert part <= whole <= 2 * part, (case.arguments, whole, part)
    if name == "kv_cache":
        assert _values(changed)["kv_cache_all_devices"] == 2 * part, case.arguments


def batch_is_linear(case: Case, result: Result, data: Data) -> None:
    """Two sequences need twice the cache of one, and twice the FLOPs."""
    names = {"kv": ("kv_cache",), "flops": ("flops_total", "flops_mlp", "flops_attention_scores")}
    command, batch = case.arguments[0], data["workload"].get("batch")
    if command not in names or _has(case, "--lengths") or not batch:
        return
    answer, changed = _answer(_with(case, ("-b", "--batch"), 2 * batch))
    for name in names[command] if answer.code < 2 else ():
        before, after = _values(data)[name], _values(changed)[name]
        assert before is None or after == 2 * before, (case.arguments, name, before, after)


def added_preset_equals_its_config(case: Case, result: Result, data: Data) -> None:
    """The model file that `presets add` writes has the figures of the config.json."""
    model = case.arguments[1]
    if case.arguments[0] not in ("kv", "params", "flops", "memory") or model not in (
        "model",
        "folder",
    ):
        return
    if any(name.endswith((".safetensors", ".index.json", ".gguf")) for name in case.files):
        return  # a model file has no weights
    flags = ("--assume-grouped",) if _has(case, "--assume-grouped") else ()
    added = run_case(case._replace(arguments=("presets", "add", model, *flags)))
    if added.code:
        return
    words = (
        case.arguments[0],
        "added.yaml",
        *(word for word in case.arguments[2:] if word != "--assume-grouped"),
    )
    answer, changed = _answer(
        case._replace(arguments=words, files={**case.files, "added.yaml": added.out.encode()})
    )
    assert answer.code == 0, (case.arguments, answer.err)
    assert _values(changed) == _values(data), (case.arguments, _values(changed), _values(data))


def quotes_change_no_figure(case: Case, result: Result, data: Data) -> None:
    """A number or a boolean in quotes is an error, or belongs to a field that changes nothing."""
    for file, content in case.files.items():
        if not file.endswith("config.json") or not content.startswith(b"{"):
            continue
        config = json.loads(content)
        inner = next(
            (
                value
                for value in config.values()
                if isinstance(value, dict) and "hidden_size" in value
            ),
            config,
        )
        scalars = [key for key, value in inner.items() if type(value) in (int, bool)]
        for key in scalars[len(content) % 5 :: 5]:
            value, inner[key] = inner[key], quoted(inner[key])
            answer = run_case(
                case._replace(files={**case.files, file: json.dumps(config).encode()})
            )
            inner[key] = value
            check_result(case, answer)
            if answer.code < 2:
                changed = check_json(answer.out, case.arguments[0])
                assert _values(changed) == _values(data), (
                    case.arguments,
                    key,
                    _values(changed),
                    _values(data),
                )


def sweep_equals_command(case: Case, result: Result, data: Data) -> None:
    """A row of `sweep` has the figure of the command that it stands for."""
    figure = {
        "kv": "kv_cache",
        "params": "params_total",
        "flops": "flops_total",
        "memory": "peak_flash",
    }
    command = case.arguments[0]
    if (
        command not in figure
        or _has(case, "--engine", "--full", "--lengths", "--revision", "--unit")
        or data["model"]["tp"] > 1
    ):
        return
    if _has(
        case, "--kv-dtype-k", "--cache-type-k", "-ctk", "--kv-dtype-v", "--cache-type-v", "-ctv"
    ):
        return  # a sweep takes them with a GPU only
    name = figure[command]
    # a command reads 1,000 as a number; a sweep rejects it, because it could be a list
    same = (re.sub(r"(?<=\d),(?=\d{3}\b)", "", word) for word in case.arguments[2:-1])
    words = ("sweep", case.arguments[1], *same, "--columns", name, "--json")
    answer = run_case(case._replace(arguments=words))
    assert answer.code == 0, (words, answer.err)
    (row,) = json.loads(answer.out)["rows"]
    assert row[name] == _values(data)[name], (words, row, _values(data)[name])


_OF_FORMATS: tuple[Relation, ...] = (
    same_twice,
    csv_equals_json,
    screen_equals_json,
    explanation_equals_json,
    markdown_equals_screen,
)
RELATIONS: tuple[Relation, ...] = (
    *_OF_FORMATS,
    larger_batch,
    longer_context,
    more_memory,
    limits_hold,
    fewest_gpus_hold,
    shards_sum_to_the_whole,
    batch_is_linear,
    added_preset_equals_its_config,
    quotes_change_no_figure,
    sweep_equals_command,
)
