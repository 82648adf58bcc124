"""JSON as the schemas say: every command's answer is valid, and no name is lost.

`python tests/test_json_schema.py` writes the tables of docs/json.md and the list of names.
"""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # to be run as a script

from asking import REPOSITORY, Ask
from jsonschema import Draft202012Validator
from reports import one_per_structure
from schemas import check_answer, schema_of

from attncalc import load, preset_names
from attncalc.attention import FULL, KINDS, Sliding, required_keys
from attncalc.check import Check, Reported, ScalingRow, Timing, VerifyResult
from attncalc.logs.log_file import read_log
from attncalc.quantity import quantity
from attncalc.questions import QUESTIONS
from attncalc.questions.question import declared
from attncalc.questions.schema.command import schemas
from attncalc.questions.schemas import schema, schema_name
from attncalc.questions.verify.engine_question import read_question
from attncalc.questions.verify.engine_report import engine_report
from attncalc.questions.verify.engine_run import compare_start
from attncalc.questions.verify.report import VerifiedModel, catalogue_report, verify_report
from attncalc.show import json as as_json
from attncalc.show.report import Report
from attncalc.show.schemas.reading import properties
from attncalc.workload import Workload

# Every name that scripts may rely on, one per line: a schema, and a key or a figure of it.
NAMES = Path(__file__).parent / "data/json-names.txt"
PAGE = REPOSITORY / "docs/json.md"
LOGS = Path(__file__).parent / "data/engine-logs"


# The names


def names_of(part: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the keys that a schema allows, each with its path, and the figures, each with its
    unit.
    """
    for key, value in part.get("properties", {}).items():
        yield f"{path}{key}"
        yield from names_of(value, f"{path}{key}.")
    for option in part.get("oneOf", ()):
        yield from names_of(option, path)
    items = part.get("items") or {}
    if items and items.get("$ref") != "#/$defs/figure":
        yield from names_of(items, path)
    for name, unit, _ in figures_of(part):
        yield f"{path[:-1]} {name} [{unit}]"


def figures_of(part: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the name or pattern, the unit and the meaning of each figure of a list."""
    for figure in (*part.get("allOf", ()), *(part.get("items") or {}).get("anyOf", ())):
        allowed = figure.get("contains", figure)["properties"]
        name = allowed["name"].get("const", allowed["name"].get("pattern"))
        if name:
            yield name, allowed["unit"]["const"], figure["description"].partition(": ")[2]


def names(name: str) -> set[str]:
    """Return the names of a schema: 'kv workload.batch', 'kv results kv_cache [B]'."""
    document = schema(name)
    found = {*names_of(document, f"{name} ")}
    for defined, part in document.get("$defs", {}).items():
        found |= {*names_of(part, f"{PLACES.get(defined, f'{name} layers.results')}.")}
    return found


# Where definitions of a schema are used: these are the same in every schema.
PLACES = {"figure": "figure", "attention": "attention"}


def printed_names(answer: Mapping[str, Any], known: set[str], path: str) -> Iterator[str]:
    """Yield the lines of `known` that an answer uses."""
    for key, value in answer.items():
        here = {
            "results": "figure.",
            "attention": "attention.",
            "cross_attention": "attention.",
        }.get(key, "")
        if f"{path}{key}" not in known:  # a key that is data: a symbol, a model_type
            continue
        yield f"{path}{key}"
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                yield from printed_names(item, known, here or f"{path}{key}.")
            if key == "results":
                yield figure_line(f"{path}{key}", item, known)


def figure_line(path: str, figure: Mapping[str, Any], known: set[str]) -> str:
    """Return the line of a figure: its name's, or that of a pattern."""
    unit = f" [{figure['unit']}]"
    patterns = [
        line.split()[2] for line in known if line.startswith(f"{path} ^") and line.endswith(unit)
    ]
    found = [pattern for pattern in patterns if re.search(pattern, figure["name"])]
    lines = [f"{path} {name}{unit}" for name in (figure["name"], *found)]
    return next(line for line in lines if line in known)


def promised() -> set[str]:
    """Return the lines that the list of names must have: the version of each schema, and its
    names.
    """
    return {line for name in schemas() for line in (schema(name)["title"], *names(name))}


def frozen(known: set[str]) -> set[str]:
    """Return the list of names as it should be: a name leaves it only with a new version of its
    schema.
    """
    renewed = {name for name in schemas() if schema(name)["title"] not in known}
    return promised() | {line for line in known if " " in line and line.split()[0] not in renewed}


def test_no_name_disappears_from_the_contract() -> None:
    """A name that is gone, or has another unit, breaks scripts: increase the `version` of its
    schema.

    `python tests/test_json_schema.py` adds new names, and removes old ones if the number is new.
    """
    known = set(NAMES.read_text(encoding="utf-8").splitlines())
    assert frozen(known) - promised() == set(), "these names are gone"
    assert frozen(known) == known, "`python tests/test_json_schema.py` writes the list"


def test_a_name_leaves_the_contract_with_a_new_version_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {*promised(), "kv results kv_bytes [B]"}
    assert frozen(known) == known
    older = schema_name("kv")
    newer = f"{older}0"
    monkeypatch.setitem(schema("kv"), "title", newer)
    assert frozen(known) == known - {"kv results kv_bytes [B]", older} | {newer}


# The tables of figures

_SECTION = re.compile(r"(?m)^(?=## )")
_TABLE = re.compile(
    r"(?m)^\| name(?P<layers> in `layers`)? \| unit \| meaning \|\n\|---.*\n(?:\|.*\n)*"
)
_HEAD = "| name | unit | meaning |\n|---|---|---|\n"
# What is to be typed, options and names.
_CODE = re.compile(r"(?<!\w)'([^']+)'(?!\w)|(?<![\w'-])(--?[a-z][\w-]*|\w+_\w+|null)")


def with_tables(page: str) -> str:
    """Return docs/json.md with its tables of figures written anew; '## presets families' has those
    of 'families'.

    A command without a section gets one before that about schemas.
    """
    for command in QUESTIONS:
        if not re.search(rf"(?m)^## {command}$", page) and command in schemas():
            page = page.replace("## Schemas\n", f"## {command}\n\n{_HEAD}\n## Schemas\n")
    sections = []
    for section in _SECTION.split(page):
        name = section.partition("\n")[0].split()[-1]
        sections.append(_TABLE.sub(partial(table, name), section))
    return "".join(sections)


def table(name: str, match: re.Match[str]) -> str:
    """Return the figures of a schema as a table; that of `layers` leaves out what `results` has in
    the same words.
    """
    document = schema(name)
    figures = list(figures_of(document["properties"]["results"]))
    if match["layers"]:
        layers = document["properties"]["layers"]["items"]
        answer = layers.get("oneOf", [layers])[0]["properties"]["results"]
        answer = document["$defs"].get(answer.get("$ref", "").rpartition("/")[2], answer)
        figures = [figure for figure in figures_of(answer) if figure not in figures]
    rows = (
        f"| `{shown(name)}` | {unit} | {_CODE.sub(code, meaning)} |\n"
        for name, unit, meaning in figures
    )
    return "".join([*match[0].splitlines(keepends=True)[:2], *rows]).replace("|  |", "| |")


def shown(name: str) -> str:
    """Return a name, or a pattern as people write it: '^peak_[a-z0-9]+$' is 'peak_*'."""
    return re.sub(r"\[.*?\]\+", "*", name.strip("^$"))


def code(match: re.Match[str]) -> str:
    return f"`{match[1] or match[2]}`"


def test_the_tables_of_the_docs_have_every_figure() -> None:
    """`python tests/test_json_schema.py` writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page)
    assert page.count("| unit | meaning |") == len(_TABLE.findall(page))


def test_every_name_is_documented() -> None:
    """The keys of attention are those of a model file, and the schema explains them."""
    pages = ("docs/json.md", "docs/verify.md")
    text = "".join((REPOSITORY / page).read_text(encoding="utf-8") for page in pages)
    documented = set(re.findall(r"`([A-Za-z_0-9]+)`", text))
    lines = {line for name in schemas() for line in names(name)}
    figures = {figure for _, _, figure, _ in (line.split() for line in lines if line.endswith("]"))}
    keys = {line.split()[-1].rpartition(".")[2] for line in lines if not line.endswith("]")}
    keys -= {line.partition(".")[2] for line in lines if line.startswith("attention.")} - {"kind"}
    assert {name for name in figures | keys if not name.startswith("^")} - documented == set()


# What commands print


def test_a_wrong_answer_is_noticed(ask: Ask) -> None:
    """A renamed or a missing figure, another unit, an unknown key, and text in place of a
    number.
    """
    text = ask("kv", "gpt2", "--json").out
    check_answer(text)
    for before, after in (
        ('"name": "kv_cache",', '"name": "cache",'),
        ('"name": "kv_cache_per_layer",', '"name": "per_layer",'),
        ('"unit": "B"', '"unit": "KiB"'),
        ('"batch": 1', '"batch": "1"'),
        ('"batch": 1', '"batch": 1, "batches": 1'),
        ('"title": ', '"Title": '),
        (schema_name("kv"), f"{schema_name('kv')}0"),
        ('"vocab_size": 50257', '"vocab_size": NaN'),
    ):
        assert before in text, before
        with pytest.raises(AssertionError):
            check_answer(text.replace(before, after, 1))


# {schema: command lines, without the command}. Together their answers have every name of the
# schema.
RUNS = {
    "kv": [
        "presets/kinds/chunked.yaml",
        "presets/kinds/recurrent.yaml",
        "t5-base --tp 4 --fail-if kv_cache>1",
        "llama2-70b --lengths 512,300 --kv-dtype fp32 --engine transformers",
    ],
    "params": ["gpt2 --tp 2 --fail-if params_total>1", "docs/examples/qwen3-next-80b-a3b"],
    "flops": [
        "gpt2 --phase train --fail-if flops_total>1",
        "gemma3-27b --past 100 -c 300",
        "t5-base --phase decode --mask prefix:3",
    ],
    "memory": [
        "gpt2 --phase decode --fail-if score_matrix>1",
        "gemma3-27b --past 100 -c 300",
        "llama2-70b --attention mla:512",
    ],
    "train": [
        "gpt2 --fail-if weights>1",
        "llama3-8b --gpu a100-80gb --gpus 4 --zero 3 --tokens 1B --mfu 0.4 --price 2",
        "llama3-8b --gpu all --lora r=16",
        "llama3-8b --gpu a100-80gb",
    ],
    "compare": [
        "llama2-70b --attention mla:512",
        "llama2-70b gemma3-27b t5-base",
        "gpt2 bert-base",
        "gpt2 llama2-7b --fail-if kv_cache>=+900%",
    ],
    "gpus": ["", "h100", "mi300x", "m4-max"],
    "presets": ["", "qwen 32b", "--full"],
    "explain": ["", "units", "mha gqa"],
    "families": [""],
    "fit": [
        "llama2-70b --gpu h100 --gpus 4 --fail-if weights>1",
        "llama2-70b --gpu h100",
        "llama2-70b --kv-memory 40GiB --engine all",
        "llama2-70b --kv-memory 40GiB --engine-version 0.7 --swap-space 4GiB",
        "gemma3-27b --gpu 2xh100 --engine all --prompt 4K --output-len 1K --shared-prefix 2K",
        "mixtral-8x7b --gpu 8xh200 --dp 4 --engine all",
        "mixtral-8x7b --gpu 8xh200 --dp 4 --enable-expert-parallel",
        "deepseek-v3 --gpu 8xh200 --attn-dp 8 --engine sglang",
        "qwen3-8b --gpu a100-40gb --lengths 512,300,128 --roofline --full",
        "llama3-70b --engine llamacpp --gpu rtx-4090 --n-gpu-layers auto",
        "llama3-8b --engine llamacpp --gpu rtx-4090 --no-kv-offload",
        "mixtral-8x7b --engine llamacpp --gpu rtx-4090",
        "deepseek-v4-flash --kv-memory 40GiB",
        "deepseek-v4-flash --engine sglang --kv-memory 40GiB",
        "deepseek-v4-flash --engine llamacpp --kv-memory 40GiB",
        "deepseek-v3.2 --engine llamacpp --kv-memory 40GiB",
        "gemma3-27b --engine llamacpp --kv-memory 40GiB",
        "t5-base --engine transformers --gpu t4",
        "presets/kinds/recurrent.yaml --engine ideal --gpu t4",
        "llama3-8b --gpu h100 --speculative-tokens 3 --reserve 2GiB",
        "llama3-8b --gpu h100 --engine llamacpp --reserve 2GiB -b 100000",
        "qwen3-8b --engine llamacpp --kv-memory 9GiB --speculative-model qwen3-0.6b",
        *(
            f"{model} --engine {engine} --kv-memory 9GiB"
            for model in ("gpt-oss-20b", "gemma3-27b", "qwen3-next-80b-a3b", "jamba-1.5-mini")
            for engine in ("vllm", "sglang", "llamacpp")
        ),
        f"{LOGS}/models/gemma-4-e2b.json --gpu l4 -c 8192",
        f"gemma3-27b --vllm-log {LOGS}/excerpts/vllm-gemma3-27b-0.11rc.log --gpu h100",
        f"qwen3-8b --log {LOGS}/refusals/vllm-qwen3-8b-24g.log --gpu rtx-4090",
        f"--log {LOGS}/doctor/vllm-running.log",
        f"qwen3-8b --log {LOGS}/doctor/pasted-sglang-negative.log",
    ],
    "sizes": [
        "kv gpt2 -c 512,1K",
        "flops qwen3-8b -c 1K,2K",
        "memory gpt2 -b 1,8 --fail-if score_matrix>1",
    ],
    "vram": ["qwen3-8b --quants", "deepseek-v3 --tp 8"],
    "what_fits": ["gpt2 --gpu all", "--gpu 2GB"],
    "diagnosis": [f"--log {LOGS}/doctor/pasted-vllm-3090-180k.log"],
    "plan": [
        "gpt2 --users 9 --prompt 99 --output-len 9 --gpu t4,l4 --price t4=0.5,l4=0.7 --growth 2 "
        "--disaggregate",
        "gpt2 --users 9 --prompt 99 --output-len 9 --gpu t4 --fail-if gpus>1",
        "llama3.1-70b --users 9 --gpu h200",  # with fp8 weights one GPU is enough
    ],
    "sweep": [
        "gpt2 llama2-7b -c 1K,2K --tp 1,5 --gpu t4",
        "gpt2 --phase prefill,train --columns flops_total,model",
    ],
    "verify": [
        "transformer-base -c 8 --kernel math",
        "gemma3-27b -c 64 --simulate cuda",
        "gpt2 -c 8 --train --kernel math --device cpu",
    ],
}
# The words of a command whose schema has another name.
WORDS = {
    "families": "presets families",
    "diagnosis": "fit",
    "sizes": "",
    "vram": "fit",
    "what_fits": "fit",
}
# Commands that are run on a preset of each structure.
EVERY_STRUCTURE = ("kv", "params", "flops", "memory", "compare")


def runs_of_example(question: str) -> list[str]:
    """Return the example of a question, and the same with a condition if it has --fail-if."""
    run = declared(question).example.removeprefix(f"attncalc {question}")
    keys = schema(question)["properties"]
    if "fail_if" not in keys:
        return [run]
    figure, _, _ = next(figures_of(keys["results"]))
    return [run, f"{run} --fail-if {figure}>0"]


# A question without runs above has its example.
for _name in QUESTIONS:
    if _name not in RUNS and _name in schemas():
        RUNS[_name] = runs_of_example(_name)


@pytest.mark.parametrize("name", [name for name in RUNS if name in schemas()])
def test_answers_are_valid_and_have_every_name(
    ask: Ask, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if name == "verify":
        pytest.importorskip("torch")
    monkeypatch.chdir(REPOSITORY)
    known = names(name)
    seen = {line for line in known if line.startswith("attention.")}  # another test covers them
    for document in answers(ask, name, tmp_path):
        assert schema_of(document) == name
        seen |= set(printed_names(document, known, f"{name} "))
    assert known - seen == set(), "no answer has these names"


def answers(ask: Ask, name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what the runs of a schema print, which `ask` has checked."""
    models = one_per_structure(preset_names()) if name in EVERY_STRUCTURE else []
    # it runs no attention kernel
    models = [model for model in models if (name, model) != ("memory", "mamba2-2.7b")]
    if name == "params":
        models.append(folder_with_weights(folder))
    for run in (*models, *RUNS[name]):
        answer = ask(*WORDS.get(name, name).split(), *run.split(), "--json")
        assert answer.code in (0, 1), (run, answer.err)
        yield answer.document
    if name == "verify":
        yield from (check_answer(as_json.render(report)) for report in verify_reports())


def folder_with_weights(folder: Path) -> str:
    """Write a config.json and a safetensors file, and return their folder."""
    (folder / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1})
    )
    header = json.dumps(
        {"wte": {"dtype": "F16", "shape": [2, 4], "data_offsets": [0, 16]}}
    ).encode()
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(16)
    )
    return str(folder)


def verify_reports() -> Iterator[Report]:
    """Yield reports of a GPU, of a disagreement, of a number that is none, of --scaling, without a
    model, and of an engine.
    """
    device = {
        "type": "cuda",
        "name": "cuda:0 (NVIDIA H200)",
        "torch": "2.13.0",
        "threads": 2,
        "multiprocessors": 132,
        "memory": 150 * 10**9,
        "compute_capability": "9.0",
        "cuda": "13.0",
        "rocm": None,
        "cudnn": 91300,
        "datasheet": {
            "gpu": "h200",
            "flop_per_s": {"bf16": 989 * 10**12},
            "bytes_per_s": 4800 * 10**9,
        },
    }
    checks = (
        Check(
            "peak memory",
            "peak_decode_math",
            "decode, math",
            quantity(1000),
            1003,
            10,
            "B",
            of="decoder",
        ),
        Check(
            "parameters", "params_W_q", "W_q", quantity(768), 767, unit="parameters", of="decoder"
        ),
        Check("kernels vs reference", "math_masks", "math", 0, math.nan, 1e-3),
    )
    result = VerifyResult(
        checks,
        (Timing("decoder", "prefill", "math", 2.0, 10**9, 10**6, 1.0, 1.9, 2.2),),
        (
            ScalingRow("decoder", "math", 64, 1.5, 10**9, None, 10**6),
            ScalingRow("decoder", "math", 64, None, 1, 2, 3),
        ),
        reported=(Reported("memory", "reserved", "reserved", 2**20, "B", predicted=None),),
        context=64,
    )
    verified = VerifiedModel(load("gpt2"), Workload.prefill(1, 64, dtype="bf16"), ("math",), result)
    yield verify_report(verified, device)
    yield verify_report(verified._replace(result=VerifyResult((), simulated=True)), device)
    yield catalogue_report([verified, verified], device)
    question = read_question("vllm", ["gpt2"], {})
    lines = ["vLLM API server version 0.32.0", "CPU KV cache size: 37,449 tokens"]
    log = read_log("\n".join(lines).encode(), "", "vllm")
    yield engine_report(
        compare_start(question, load("gpt2"), load("gpt2"), {}, 2**30, log, is_plan=False)
    )


def test_the_records_of_the_docs_are_valid_and_have_every_name() -> None:
    """A GPU's keys are those of `verify`; a record of a CPU has none of them."""
    records = [
        file.read_text(encoding="utf-8") for file in (REPOSITORY / "docs/measured").glob("*.json")
    ]
    known, seen = names("record"), set[str]()
    for record in records:
        seen |= set(printed_names(check_answer(record), known, "record "))
    keys = (*properties({"+gpu": None}), "clocks")
    of_gpus = {
        line for line in known if line.startswith(tuple(f"record device.{key}" for key in keys))
    }
    assert known - seen <= {*of_gpus, "record device.notes", *DISAGREEMENT}


# The keys of a check that disagrees, which no record of the docs has.
DISAGREEMENT = {line for line in names("record") if line.startswith("record runs.disagree.")}


def test_every_kind_of_attention_has_known_facts_and_every_fact_has_a_kind() -> None:
    attention = schema("kv")["$defs"]["attention"]
    validator = Draft202012Validator(attention)
    seen = {"span"}
    for name, kind in KINDS.items():
        span = Sliding(8) if name in ("compressed", "global_window") else FULL
        facts = kind.from_keys(dict.fromkeys(required_keys(kind), 64), 64, span).facts()
        validator.validate(json.loads(json.dumps(facts)))
        seen |= set(facts)
    assert set(attention["properties"]) == seen


@pytest.mark.parametrize(
    "command",
    ["kv no-such-model", "fit gpt2 -c auto", "gpus h100000", "presets no-such", "verify gpt2 -b 0"],
)
def test_an_error_prints_no_json(ask: Ask, command: str) -> None:
    answer = ask(*command.split(), "--json")
    assert (answer.code, answer.out) == (2, "")


def test_a_path_that_never_arrives_is_null(ask: Ask, tmp_path: Path) -> None:
    # chunks of 16 tokens in every layer: token 0 never reaches token 20
    model = "d_model: 64\nn_layers: 2\nn_heads: 4\nd_ff: 9\nnorm: rmsnorm\nchunk: 16\n"
    (tmp_path / "chunks.yaml").write_text(model)
    answer = ask("flops", str(tmp_path / "chunks.yaml"), "-c", "20", "--json").document
    values = {figure["name"]: figure["value"] for figure in answer["results"]}
    assert values["attention_longest_path"] is None


def test_an_unknown_schema_is_an_error(ask: Ask) -> None:
    error = ask("schema", "kvs").error
    assert "error: there is no schema 'kvs'" in error
    assert "did you mean 'kv'" in error


def test_the_schemas_are_listed_and_those_of_files_are_printed_too(ask: Ask) -> None:
    listed = [line.split()[0] for line in ask("schema").out.splitlines()]
    assert listed == [*schemas(), "model", "gpu"]
    assert ask("schema", "model").out == ask("presets", "schema").out
    assert ask("schema", "gpu").document == json.loads(
        (REPOSITORY / "presets/gpu.schema.json").read_text()
    )


@pytest.mark.parametrize("name", schemas())
def test_the_command_prints_the_schema_that_answers_are_checked_with(ask: Ask, name: str) -> None:
    assert ask("schema", name).out == json.dumps(schema(name), indent=2) + "\n"
    Draft202012Validator.check_schema(schema(name))


def test_a_validator_without_our_shortcut_agrees(ask: Ask) -> None:
    answer = ask("kv", "gemma3-27b", "--json").document
    validator = Draft202012Validator(schema("kv"))
    validator.validate(answer)
    answer["results"][0]["name"] = "cache"
    assert not validator.is_valid(answer)


if __name__ == "__main__":
    lines = frozen(set(NAMES.read_text(encoding="utf-8").splitlines()))
    NAMES.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
